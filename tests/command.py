"""The `arena` command as a real process, started from a copy of the source tree that a test may change."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from arena.cli import settings
from arena.sandboxes import bwrap

ROOT = Path(__file__).resolve().parent.parent
NEEDS = ("arena", "problems", "harnesses", "pyproject.toml")
RUN = ("run", "--problem", "paged_attention", "--hardware", "cpu")
ONE_SHAPE = "    - {B: 4, Hq: 8, Hkv: 2, D: 64, mean_len: 300, page: 16}\n"
BRIEF = "processes=1, min_windows=3, max_windows=5"
needs_sandbox = pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Arena:
    """One copy of the tree, and a home for its results."""

    tree: Path
    home: Path

    def environment(self, **given: str) -> dict[str, str]:
        """Ours, with this tree in front of any installed arena, and nothing that would colour or move the output."""
        dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "ARENA_HOME", *map(settings.variable, settings.PARAMETERS))
        plain = {name: value for name, value in os.environ.items() if name not in dropped}
        return plain | {"PYTHONPATH": str(self.tree), "ARENA_HOME": str(self.home)} | given

    def start(self, *words: str, env: dict[str, str] | None = None, **given: Any) -> subprocess.Popen[str]:
        """Start the command, with its output on pipes."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | given
        command = [sys.executable, "-m", "arena", *words]
        with interruptible_children():
            return subprocess.Popen(command, env=self.environment(**env or {}), cwd=self.tree.parent, text=True, **streams)

    def __call__(self, *words: str, env: dict[str, str] | None = None, limit_s: float = 120, **given: Any) -> Done:
        """Run the command to its end."""
        process = self.start(*words, env=env, **given)
        out, err = process.communicate(timeout=limit_s)
        return Done(process.returncode, out, err)

    def json(self, *words: str, code: int = 0) -> Any:
        """What the command says to programs."""
        done = self(*words, "--json")
        assert done.code == code, f"{done.err}{done.out}"
        return json.loads(done.out)

    def refused(self, *words: str, **given: Any) -> str:
        """The one thing that the command says when it refuses to begin."""
        done = self(*words, **given)
        assert done.code == 2, (done.code, done.err)
        assert done.out == ""
        assert done.err.startswith("arena: ")
        assert "Traceback" not in done.err
        return done.err.removeprefix("arena: ").removesuffix("\n")

    def python(self, program: str, *words: str, limit_s: float = 120, **env: str) -> Done:
        """Run a program that imports this tree's arena."""
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env=self.environment(**env),
            cwd=self.tree.parent,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def started_python(self, program: str, **env: str) -> subprocess.Popen[str]:
        """Start a program that imports this tree's arena, with its streams on pipes."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", program]
        return subprocess.Popen(command, env=self.environment(**env), cwd=self.tree.parent, text=True, **pipes)

    def harness(self, name: str, *command: str, **given: object) -> str:
        """Add a harness that starts `command`; the name of its one model."""
        document = {
            "schema_version": 1,
            "title": name,
            "command": list(command),
            "terminal_event": {"type": "end"},
            "models": {f"{name}-model": {}},
        }
        (self.tree / "harnesses" / f"{name}.yaml").write_text(yaml.safe_dump(document | given))
        return f"{name}-model"

    def solution(self, name: str, text: str) -> Path:
        """Add a solution to the problem."""
        path = self.solutions / f"{name}.py"
        path.write_text(text)
        return path

    def edit(self, file: str, edit: Callable[[str], str]) -> None:
        """Change a file of the tree."""
        path = self.tree / file
        before = path.read_text()
        path.write_text(edit(before))
        assert path.read_text() != before

    def one_shape(self) -> None:
        """Leave the problem one scored shape on a CPU, timed in one process, so that a full score takes a fifth of its time."""
        self.edit("arena/judge/sampling.py", lambda text: text.replace("CPU = Sampling()", f"CPU = Sampling({BRIEF})"))
        self.edit(
            "problems/paged_attention/problem.yaml",
            lambda text: re.sub(r"(  cpu:\n)(    - .*\n)+", lambda found: found[1] + ONE_SHAPE, text),
        )

    @property
    def solutions(self) -> Path:
        """Solutions of this tree's problem."""
        return self.tree / "problems" / "paged_attention" / "solutions"

    @property
    def shipped(self) -> Path:
        """Solutions of the problem as it is in the repository."""
        return ROOT / "problems" / "paged_attention" / "solutions"

    @property
    def runs(self) -> list[Path]:
        """Folders of the runs, oldest first."""
        return sorted(self.home.glob("workspaces/[!.]*"))

    @property
    def annotations(self) -> list[Path]:
        """The annotations, oldest first."""
        return sorted(self.home.glob("annotations/*"))

    def board(self) -> dict[str, bytes]:
        """The leaderboard's files."""
        return {path.name: path.read_bytes() for path in sorted((self.home / "leaderboard").iterdir())}


def copy(folder: Path) -> Arena:
    """A copy of the tree in `folder`, and a home beside it."""
    tree, home = folder / "tree", folder / "home"
    tree.mkdir(parents=True)
    for name in NEEDS:
        if (ROOT / name).is_dir():
            # With arena's compiled modules, but for those being written now: else each copy compiles all modules again.
            unwanted = shutil.ignore_patterns("*.pyc.*" if name == "arena" else "__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, tree / name)
    return Arena(tree, home)


def alive(marker: str) -> list[int]:
    """Processes of this machine with `marker` among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def until(reached: Callable[[], object], what: str, limit_s: float = 60) -> None:
    """Wait for something, looking as often as possible: some moments are short."""
    end_s = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < end_s, f"waited {limit_s} s for {what}"
        time.sleep(0.0005)


@contextmanager
def interruptible_children() -> Iterator[None]:
    """Let SIGINT end programs started in this block, also where this process ignores it and they would inherit that.

    Outside the main thread, Python cannot change that, and nothing is interrupted there.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before == signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End the process with the block, whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
