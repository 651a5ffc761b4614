"""`arena sandbox`: streams, exit codes, kinds and networks."""

import re
import tempfile
from pathlib import Path

import pytest
from command import Arena, killed, needs_sandbox


@needs_sandbox
def test_sandbox_forwards_streams_and_exit_code(shared: Arena) -> None:
    done = shared("sandbox", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done == (7, "out\n", "err\n")
    assert shared("sandbox", "sh", "-c", "kill -9 $$").code == 137
    assert shared("sandbox", "no-such-command") == (127, "", "no-such-command: not found in the sandbox\n")


@needs_sandbox
def test_sandbox_takes_no_input(shared: Arena) -> None:
    with tempfile.TemporaryFile("w+") as typed:
        typed.write("secret\n")
        typed.seek(0)
        assert shared("sandbox", "cat", stdin=typed) == (0, "", "")


@pytest.mark.slow
@needs_sandbox
def test_sandbox_leaves_the_command_its_own_options(shared: Arena) -> None:
    assert shared("sandbox", "echo", "-h", "--json", "--kind", "--").out == "-h --json --kind --\n"
    assert shared("sandbox", "--kind", "worker", "--", "printf", "%s\\n", "--help").out == "--help\n"


@pytest.mark.slow
@needs_sandbox
def test_sandbox_kind_decides_workspace_access(shared: Arena) -> None:
    write = ("sh", "-c", "touch /workspace/x && echo wrote")
    assert shared("sandbox", *write).out == "wrote\n"
    done = shared("sandbox", "--kind", "worker", *write)
    assert done.code != 0
    assert "Read-only file system" in done.err
    filled = shared("sandbox", "--problem", "paged_attention", "ls").out.split()
    assert set(filled) == {"PROMPT.md", "benchmark.py", "check.py", "problem.json", "reference.py", "rules"}


@pytest.mark.slow
@needs_sandbox
def test_sandbox_gets_the_files_that_it_is_given(shared: Arena, tmp_path: Path) -> None:
    for name in ("solution.py", "other.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    words = ("--file", str(tmp_path / "solution.py"), "--file", str(tmp_path / "other.py"))
    assert shared("sandbox", *words, "cat", "solution.py", "other.py").out == "# solution.py\n# other.py\n"
    (tmp_path / "solution.py").chmod(0o600)
    done = shared("sandbox", *words, "sh", "-c", "echo changed > solution.py")
    assert done.code == 0 and (tmp_path / "solution.py").read_text() == "# solution.py\n", "it is a copy"
    assert "leave out --problem and --file" in shared.refused("sandbox", "--kind", "worker", *words, "true")
    assert "does not exist" in shared.refused("sandbox", "--file", str(tmp_path / "none.py"), "true")


@needs_sandbox
def test_sandbox_prints_requests_to_the_egress_proxy(shared: Arena) -> None:
    ask = "import os, urllib.request as r; print(os.environ['https_proxy']); r.urlopen('https://evil.example/')"
    done = shared("sandbox", "--network", "allow", "--allow", "good.example", "--", "python", "-c", ask)
    assert (done.code, done.out) == (1, "http://127.0.0.1:3128\n")
    assert "Tunnel connection failed: 403 Forbidden" in done.err
    assert done.err.endswith("\nrefused evil.example:443 not on the allowlist\n")


@pytest.mark.slow
@needs_sandbox
def test_sandbox_removes_leftovers_of_a_killed_one(shared: Arena, tmp_path: Path) -> None:
    words = ("sandbox", "--network", "allow", "--allow", "good.example", "--", "sh", "-c", "echo up; exec sleep 60")
    with killed(shared.start(*words, env={"TMPDIR": str(tmp_path)})) as arena:
        assert arena.stdout is not None
        assert arena.stdout.readline() == "up\n"
        arena.kill()
        arena.wait()
    assert len(list(tmp_path.iterdir())) == 2, "its workspace, and the proxy's socket"
    assert shared("sandbox", "true", env={"TMPDIR": str(tmp_path)}).code == 0
    assert list(tmp_path.iterdir()) == []


@needs_sandbox
def test_sandbox_shows_nothing_of_the_host(shared: Arena) -> None:
    script = "cat /proc/1/environ; ls /home; cat /etc/shadow; find / -name '*.yaml' 2>/dev/null; env"
    done = shared("sandbox", "--", "sh", "-c", script, env={"HOST_SECRET": "s3cret"})
    assert "s3cret" not in done.out
    assert str(shared.tree) not in done.out + done.err
    assert not re.search(r"problem\.yaml|builtin\.yaml|cpu\.yaml|h200", done.out)
    assert "root:" not in done.out
