"""The launcher and process 1 as C programs: how they are built, whose files they believe, and what reaches them."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import needs_sandbox
from sandbox_programs import ROOT

from arena.sandboxes import Limits, SandboxSpec, bwrap, native
from arena.system import process

compiled = pytest.mark.skipif(native.programs() is None, reason=f"the C programs are not in use: {native.why_not()}")


@pytest.fixture(params=["c", "python"])
def language(request, monkeypatch):
    """Each kind of program in turn."""
    if request.param == "python":
        monkeypatch.setenv(native.SWITCH, "0")
    elif native.programs() is None:
        pytest.skip(f"the C programs are not in use: {native.why_not()}")
    return request.param


@compiled
def test_the_compiler_has_no_warning(tmp_path):
    for name, files in native.FILES.items():
        sources = [str(native.SOURCES / file) for file in files]
        done = process.run(["cc", *native.FLAGS, "-Werror", "-Wshadow", "-o", str(tmp_path / name), *sources], limit_s=60)
        assert (done.returncode, done.stderr) == (0, b"")


@compiled
def test_arenas_that_start_at_once_all_find_whole_programs(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: native._built(tmp_path, "launch", native.FILES["launch"]), range(4)))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == list(made)  # one program, nothing else
    assert process.run([str(next(tmp_path.iterdir()))], limit_s=20).stderr.startswith(b"usage: launch FD")


@compiled
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_program_that_others_may_change_is_not_used(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert isinstance(native._found.__wrapped__(), native.Programs)
    folder = tmp_path / "arena" / "programs"
    next(folder.glob("init-*")).chmod(mode)
    assert "another user may have changed it" in native._found.__wrapped__()
    next(folder.glob("init-*")).chmod(0o755)
    next(folder.glob("launch-*")).write_bytes(b"")  # as a crash of the machine may leave it
    assert "is no program" in native._found.__wrapped__()
    next(folder.glob("launch-*")).unlink()
    next(folder.glob("init-*")).rename(tmp_path / "init")
    assert isinstance(native._found.__wrapped__(), native.Programs)  # made anew
    init = next(folder.glob("init-*"))
    init.unlink()
    init.symlink_to(tmp_path / "init")
    assert "Too many levels of symbolic links" in native._found.__wrapped__()


@compiled
def test_the_programs_in_memory_cannot_be_changed():
    made = native.programs()
    assert made is not None
    for fd in (made.launch_fd, made.init_fd):
        before = os.pread(fd, 1 << 22, 0)
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"changed", 0)
        for size in (0, len(before) + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        assert os.pread(fd, 1 << 22, 0) == before and before.startswith(native.ELF)


@compiled
@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a pid namespace of its own")
@pytest.mark.skipif(not Path("/proc/sys/vm/memfd_noexec").exists(), reason="this kernel cannot forbid programs in memory")
@pytest.mark.parametrize(("rule", "why"), [("1", "None"), ("2", "the kernel forbids programs in memory")])
def test_hosts_that_forbid_programs_in_memory_get_a_sandbox(rule, why):
    arena = f"{sys.executable} -m arena sandbox -- echo inside"
    look = f"{sys.executable} -c 'from arena.sandboxes import native; print(native.why_not())'"
    set_rule = f"echo {rule} > /proc/sys/vm/memfd_noexec"
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", f"{set_rule} && {arena} && {look}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("inside\n"), done.stderr
    assert why in done.stdout


@compiled
@needs_sandbox
def test_no_process_inside_reaches_the_program_of_process_1():
    look = "readlink /proc/1/exe; cat /proc/1/exe | head -c 4; ls /proc/1/fd; ls -l /proc/self/fd | grep -c memfd"
    with bwrap.run(SandboxSpec("agent", ("sh", "-c", f"{look}; find /proc/1/map_files 2>&1 | head -2"))) as running:
        lines = running.stdout.read().decode().splitlines()
        errors = running.stderr.read().decode()
    assert lines[0] == "0" and errors.count("Permission denied") >= 2, (lines, errors)


def test_without_a_compiler_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native._found.__wrapped__() == "no C compiler (cc) is installed"
    monkeypatch.setattr(native, "_found", native._found.__wrapped__)
    assert native.programs() is None and native.why_not() == "no C compiler (cc) is installed"


@compiled
def test_a_program_that_does_not_compile_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "FLAGS", ("-std=none",))
    assert "cc failed: " in native._found.__wrapped__()
    assert list((tmp_path / "arena" / "programs").iterdir()) == []


@pytest.mark.parametrize(
    "order",
    [b"", b"bwrap=/bin/true", b"bwrap\0", b"bwrap=/bin/true\0", b"nonsense=1\0", b"limit=7\0bwrap=/bin/true\0argv=a\0env=A=1\0"],
)
def test_a_broken_order_starts_nothing(language, order):
    fd = process.readable_fd(order)
    made = native.programs()
    program = [f"/proc/self/fd/{made.launch_fd}"] if made else [sys.executable, "-I", "-S", native.SOURCES / "launch.py"]
    try:
        done = subprocess.run([*program, str(fd)], pass_fds=[fd, *([made.launch_fd] if made else [])], capture_output=True)
    finally:
        os.close(fd)
    assert done.returncode == 1 and done.stderr and not done.stdout


@needs_sandbox
def test_names_are_taken_as_they_are(language, tmp_path):
    folder = tmp_path / "a %s\nü = b"
    folder.mkdir()
    (folder / "x").write_text("found")
    with bwrap.run(SandboxSpec("worker", ("cat", "/opt/%n ü/x"), binds={"/opt/%n ü": folder})) as running:
        assert (running.stdout.read(), running.wait(20)) == (b"found", 0)
    with bwrap.run(SandboxSpec("worker", ("%s%n\n",))) as running:
        assert (running.stderr.read(), running.wait(20)) == (b"%s%n\n: not found in the sandbox\n", 127)


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        (("/etc/passwd",), 126, "/etc/passwd: Permission denied\n"),
        (("/workspace",), 126, "/workspace: Permission denied\n"),
        (("no/such",), 127, "no/such: not found in the sandbox\n"),
        (("/opt/text",), 126, "/opt/text: Exec format error\n"),
        (("sh", "-c", "kill -9 $$"), 137, ""),
        (("sh", "-c", "exit 7"), 7, ""),
    ],
)
def test_both_say_how_a_command_ends(language, tmp_path, command, status, why):
    text = tmp_path / "text"
    text.write_text("echo no shell may read this")
    text.chmod(0o755)
    with bwrap.run(SandboxSpec("worker", command, binds={"/opt/text": text})) as running:
        assert (running.stderr.read().decode(), running.wait(20)) == (why, status)


@needs_sandbox
def test_files_of_a_home_are_the_users(language):
    script = "cd ~ && cat .a/b/c && stat -c '%a %U' .a .a/b .a/b/c && echo new > .a/b/c && rm -r .a && ls -A"
    with bwrap.run(SandboxSpec("agent", ("sh", "-c", script), home={".a/b/c": b"text\n"})) as running:
        assert running.stdout.read().decode() == "text\n700 agent\n700 agent\n600 agent\n"
        assert running.wait(20) == 0


@needs_sandbox
def test_the_command_starts_with_ordinary_signals(language):
    look = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l"
    with bwrap.run(SandboxSpec("worker", ("sh", "-c", look))) as running:
        blocked, ignored, descriptors = running.stdout.read().decode().splitlines()
    ordinary = [int(line.split()[1], 16) & 0x7FFFFFFF for line in (blocked, ignored)]  # 32 and 33 are the C library's own
    assert (ordinary, int(descriptors)) == ([0, 0], 4)  # ls itself has a fourth


@needs_sandbox
def test_signals_from_inside_do_not_end_process_1(language):
    script = "for s in INT HUP USR1 CHLD PIPE SEGV KILL STOP CONT; do kill -$s 1; done; sleep 0.1; echo alive"
    with bwrap.run(SandboxSpec("worker", ("sh", "-c", script))) as running:
        assert running.stdout.readline() == b"alive\n"


@pytest.mark.slow
@compiled
def test_the_python_programs_pass_the_same_tests():
    """Where there is no compiler they run: what holds of one kind of program holds of the other."""
    files = [f"tests/sandboxes/{name}.py" for name in ("test_conformance", "test_bwrap", "test_bridge", "test_init")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not timing and not slow",
        "-k",
        "not docker",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {native.SWITCH: "0"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


SIGNALS = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(800):  # the longer the command's group, the longer process 1 takes to signal it
    if os.fork() == 0:
        signal.pause()
for _ in range(4):
    if os.fork() == 0:
        while True:
            os.kill(1, signal.SIGTERM)
            os.kill(1, signal.SIGCHLD)
for _ in range(2):
    if os.fork() == 0:
        while True:
            if os.fork() == 0:
                os._exit(0)  # its parent never waits; and when that ends, process 1 reaps
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
print("ready", flush=True)
signal.pause()
"""


@needs_sandbox
def test_signals_without_end_do_not_hold_process_1(language):
    with bwrap.run(SandboxSpec("worker", ("python", "-c", SIGNALS), limits=Limits(processes=1024))) as running:
        assert running.stdout.readline() == b"ready\n"
        for _ in range(3):
            running.cpu_ns()
            stopped = running.freeze()
            assert running.cpu_ns() == stopped
            running.resume()
