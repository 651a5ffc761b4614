"""Arena where things are not as usual: odd paths, narrow and absent terminals, plain locales, missing parts of the machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, RUN, Arena, copy, needs_sandbox

from arena.cli import COMMANDS

HELP_S = 0.4


@pytest.mark.slow
@needs_sandbox
def test_a_path_with_spaces_and_umlauts_works(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arena = copy(tmp_path / "mein Ordner für Kerne")
    done = arena(*RUN, "-m", "cheat/exit_zero", "--json")
    assert done.code == 0, done.err
    assert [annotation["score"]["verdict"] for annotation in json.loads(done.out)] == ["crashed"]
    assert "mein Ordner für Kerne" in done.err
    [path] = arena.annotations
    assert arena("score", str(arena.runs[0] / "solution.py"), "-p", "paged_attention", "--hardware", "cpu").code == 0
    assert arena.json("show", path.stem)["run_id"] == path.stem


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "60"}],
    ids=lambda env: "".join(f"{name}={value} " for name, value in env.items()),
)
def test_lists_and_errors_are_readable(env: dict[str, str], shared: Arena) -> None:
    done = shared("list", "problems", env=env)
    assert (done.code, done.err) == (0, "") and "paged_attention" in done.out and "\x1b" not in done.out
    assert "did you mean 'paged_attention'?" in shared.refused("run", "-p", "paged_atention", env=env)
    assert shared("--help", env=env).code == 0


@pytest.mark.slow
def test_help_fits_60_columns(shared: Arena) -> None:
    for words in (("--help",), ("run", "--help"), ("doctor", "--help")):
        lines = shared(*words, env={"COLUMNS": "60"}).out.splitlines()
        assert max(map(len, lines)) <= 60


def test_help_takes_little_processor_time(shared: Arena) -> None:
    """The least of five: a busy machine adds to each, and takes nothing off."""
    used = []
    for _ in range(5):
        before = os.times()
        assert shared("--help").code == 0
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(used) < HELP_S


def test_help_imports_no_command(shared: Arena) -> None:
    program = "import sys; from arena.cli import main\ntry: main()\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    done = shared.python(program, "--help")
    assert "arena.cli.console" in done.out
    heavy = ("arena.cli.run", "arena.schema", "pydantic", "jinja2", "torch", "aiohttp")
    assert [name for name in heavy if name in done.out.splitlines()] == []


def test_every_module_with_a_command_is_listed() -> None:
    modules = {
        path.stem.replace("_", "-")
        for path in (ROOT / "arena" / "cli").glob("*.py")
        if re.search(r"@click\.(command|group)\(", path.read_text())
    }
    assert modules - {"--init--"} == set(COMMANDS)
    assert list(COMMANDS) == sorted(COMMANDS)


def test_version_names_what_a_bug_report_needs(shared: Arena) -> None:
    done = shared("--version")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[:6]] == ["arena", "Python", "torch", "triton", "bwrap", "Linux"]
    assert lines[1] == f"Python {sys.version.split()[0]}"
    assert "bwrap not installed" in shared("--version", env={"PATH": ""}).out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("arena r", "run"),
        ("arena run -p pa", "paged_attention"),
        ("arena run -m orac", "oracle"),
        ("arena score --hardware h2", "h200"),
        ("arena show lat", "latest"),
        ("arena run --sandbox d", "docker"),
    ],
)
def test_completion_knows_names(words: str, wanted: str, shared: Arena) -> None:
    env = {"_ARENA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert f"plain,{wanted}" in shared(env=env).out.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_the_shell_reads(shell: str, shared: Arena) -> None:
    done = shared("completion", shell)
    assert done.code == 0 and "_ARENA_COMPLETE" in done.out
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=done.out, text=True).returncode == 0


@needs_sandbox
def test_doctor_without_a_compiler_says_what_to_install(shared: Arena, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/sbin", "/usr/bin"):
        for path in Path(folder).iterdir():
            if not re.search(r"cc|gcc|clang|c\+\+|g\+\+|c89|c99", path.name) and not (programs / path.name).is_symlink():
                (programs / path.name).symlink_to(path)
    done = shared("doctor", "--json", env={"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    checks = {check["name"]: check for check in json.loads(done.out)}
    assert done.code == 2
    assert (checks["compiler"]["state"], checks["sandbox"]["state"]) == ("missing", "ok")
    assert "install gcc" in checks["compiler"]["detail"]
    assert checks["sandbox start"]["state"] == "note"


WITHOUT_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


def test_no_user_namespaces_says_what_to_do(shared: Arena) -> None:
    """As in many containers."""
    if shutil.which("unshare") is None or shutil.which("bwrap") is None:
        pytest.skip("needs unshare and bwrap")
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", WITHOUT_NAMESPACES, "sh", sys.executable, "-m", "arena", *RUN]
    done = subprocess.run(command, env=shared.environment(), cwd=shared.tree.parent, capture_output=True, text=True)
    if "arena: " not in done.stderr:
        pytest.skip(f"such a place cannot be made here: {done.stderr.strip()[-200:]}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "user namespaces are switched off here: `sudo sysctl -w user.max_user_namespaces=10000`" in done.stderr
