"""`arena doctor`: is this machine fit to run agents and to score what they leave?"""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import rich_click as click

from arena import catalog, machine
from arena import run as run_
from arena.cli import options
from arena.cli.output import data, safe, tell
from arena.errors import ArenaError
from arena.sandboxes import backend

MARKS = {"ok": "[green]ok     [/]", "missing": "[bold red]missing[/]", "note": "[yellow]note   [/]"}


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "missing", "note"]
    """What is missing is needed, and makes the exit code 2."""
    detail: str


@click.command()
@options.sandbox
@options.as_json
@click.pass_context
def doctor(context: click.Context, sandbox_name: str, as_json: bool) -> None:
    """Check that this machine can run agents and score what they leave, and say what to do where it cannot."""
    checks = list(_checks(sandbox_name))
    if as_json:
        data([check._asdict() for check in checks])
    else:
        for check in checks:
            tell(f"{MARKS[check.state]} {check.name:10} {safe(check.detail)}")
    if any(check.state == "missing" for check in checks):
        context.exit(2)


def _checks(sandbox_name: str) -> Iterator[Check]:
    yield Check("machine", "ok", machine.describe())
    yield _tried("sandbox", lambda: _sandbox(sandbox_name))
    yield _tried("catalogue", _catalogue)
    yield _torch()
    compiler = shutil.which("cc")
    install = "no cc: install gcc, which the C solutions of hardware cpu need"
    yield Check("compiler", "ok" if compiler else "missing", compiler or install)
    yield _gpu()
    yield _tried("home", lambda: f"{run_.home()} (workspaces, annotations and leaderboard; $ARENA_HOME moves them)")


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", look())
    except ArenaError as error:
        return Check(name, "missing", str(error))


def _sandbox(name: str) -> str:
    backend(name)
    return f"{name}: builds, and holds inside (no capabilities, seccomp, no new privileges)"


def _catalogue() -> str:
    problems, harnesses, hardware = catalog.problems(), catalog.harnesses(), catalog.hardwares()
    return f"{len(problems)} problems, {len(harnesses)} harnesses, {len(hardware)} hardware files"


def _torch() -> Check:
    try:
        return Check("torch", "ok", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", "missing", "not installed, and the judge needs it: pip install torch")


def _gpu() -> Check:
    """What the NVIDIA driver lists; without torch, so that a broken CUDA does not hide the device."""
    found = [
        line.partition(":")[2].strip()
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in file.read_text().splitlines()
        if line.startswith("Model")
    ]
    return Check(
        "gpu", "ok" if found else "note", ", ".join(found) or "no NVIDIA driver is loaded: only hardware cpu can be scored"
    )


COMMANDS = (doctor,)
