"""Arena as a plain user, and from a wheel."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import ROOT, RUN, Arena, copy, needs_sandbox


@pytest.fixture
def open_tree() -> Iterator[Arena]:
    """A tree and a home that every user may enter. The user with id 65534 owns the home."""
    with tempfile.TemporaryDirectory(prefix="arena-test-") as folder:
        arena = copy(Path(folder))
        arena.home.mkdir()
        os.chown(arena.home, 65534, 65534)
        Path(folder).chmod(0o755)
        yield arena


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as a plain user already")
def test_commands_work_as_a_plain_user(open_tree: Arena) -> None:
    pytest.importorskip("torch")
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable]
    env = open_tree.environment(HOME=str(open_tree.home))
    env.pop("XDG_CACHE_HOME", None)

    def ended(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*plain, *words], env=env, cwd=open_tree.home, capture_output=True, text=True)

    itself = "import os, sys, pydantic; os.execv(sys.executable, [sys.executable, '-c', ''])"
    if shutil.which("setpriv") is None or ended("-c", itself).returncode:
        pytest.skip(f"needs setpriv, and {sys.executable} in a place that every user may enter")
    for words in (("doctor",), ("sandbox", "true"), (*RUN, "--model", "nop"), ("list", "runs")):
        done = ended("-m", "arena", *words)
        assert done.returncode == 0, done.stderr
    assert open_tree.annotations[0].stat().st_uid == 65534
    assert stat.S_ISREG(open_tree.annotations[0].stat().st_mode)


@needs_sandbox
@pytest.mark.slow
def test_wheel_runs_outside_a_checkout(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("hatchling", reason="hatchling is not installed (scripts/setup test installs it)")
    source, site = tmp_path / "source", tmp_path / "site"
    kept = shutil.ignore_patterns(".*", "__pycache__", "workspaces", "annotations", "tests", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=kept)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    built = subprocess.run([*pip, "--target", str(site), str(source)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    shutil.rmtree(source)

    arena = Arena(site, tmp_path / "home")
    assert arena("doctor").code == 0
    [annotation] = arena.json(*RUN, "--model", "cheat/exit_zero")
    assert (annotation["score"]["verdict"], annotation["session"]["agent_status"]) == ("crashed", "complete")
    assert json.loads((arena.home / "leaderboard" / "leaderboard.json").read_text())["trials"] == 1
    seen = arena("sandbox", "--", "sh", "-c", "find / -name 'problem.yaml' -o -name 'hidden.py' -o -name 'h200.yaml' 2>/dev/null")
    assert seen.out == ""
