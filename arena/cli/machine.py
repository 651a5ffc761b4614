"""`arena doctor` and `arena sandbox`: is this machine fit, and what does an agent see of it."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import rich_click as click
from rich.markup import escape

from arena import catalog, machine, paths, workspace
from arena.cli import options
from arena.cli.output import data, people
from arena.errors import ArenaError
from arena.sandboxes import Box, backend


class Check(NamedTuple):
    """One thing `doctor` looked at. A needed one that is missing makes the exit code 2."""

    name: str
    state: str
    """ok, missing or note."""
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
            mark = {"ok": "[green]ok     [/]", "missing": "[bold red]missing[/]", "note": "[yellow]note   [/]"}[check.state]
            people.print(f"{mark} {check.name:10} {escape(check.detail)}", soft_wrap=True)
    if any(check.state == "missing" for check in checks):
        context.exit(2)


def _checks(sandbox_name: str) -> Iterator[Check]:
    yield Check("machine", "ok", machine.describe())
    yield _tried(
        "sandbox",
        lambda: (
            backend(sandbox_name),
            f"{sandbox_name}: builds, and holds inside (no capabilities, seccomp, no new privileges)",
        )[1],
    )
    yield _tried(
        "catalogue",
        lambda: (
            f"{len(catalog.problems())} problems, {len(catalog.harnesses())} harnesses, {len(catalog.hardwares())} hardware files"
        ),
    )
    yield _torch()
    compiler = shutil.which("cc")
    yield Check(
        "compiler", "ok" if compiler else "missing", compiler or "no cc: install gcc, which the C solutions of hardware cpu need"
    )
    yield _tried("home", lambda: _writable(paths.home()))


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", look())
    except ArenaError as error:
        return Check(name, "missing", str(error))


def _torch() -> Check:
    try:
        return Check("torch", "ok", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", "missing", "not installed: pip install 'arena[torch]' -c constraints.txt; the judge needs it")


def _writable(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{folder} (workspaces, annotations and leaderboard are kept here; $ARENA_HOME moves it)"
    except OSError as error:
        raise ArenaError(f"{folder}: cannot be written ({error.strerror}); set ARENA_HOME to a folder that can") from None


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--kind", type=click.Choice(["agent", "worker"]), default="agent", show_default=True, help="Whose sandbox.")
@click.option("--problem", "-p", "problem_name", metavar="P", help="Fill the workspace as for this problem.")
@options.hardware
@options.sandbox
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def sandbox(
    context: click.Context, kind: str, problem_name: str | None, hardware_name: str, sandbox_name: str, command: tuple[str, ...]
) -> None:
    """Run COMMAND inside exactly the sandbox that an agent or a submission gets: arena sandbox -- sh -c 'ls /'."""
    wall = backend(sandbox_name)
    with tempfile.TemporaryDirectory(prefix="arena-") as scratch:
        work = Path(scratch) / "work"
        work.mkdir()
        if problem_name:
            problem, hardware = options.problem_on(problem_name, hardware_name)
            folder = workspace.Run(Path(scratch))
            workspace.fill(
                folder,
                problem,
                hardware.profile,
                problem.shapes[hardware.profile],
                machine.processor(),
                problem_folder=paths.problems() / problem.name,
                kit_folder=paths.problems() / "kit",
            )
        box = Box(kind, command, workspace=work if kind == "agent" else None)  # type: ignore[arg-type]
        with wall.run(box) as running:
            _copy(running.stdout, sys.stdout.buffer, running.stderr, sys.stderr.buffer)
            status = running.wait()
    context.exit(status or 0)


def _copy(stdout: BinaryIO, to_stdout: BinaryIO, stderr: BinaryIO, to_stderr: BinaryIO) -> None:
    """Pass both streams on as they come."""
    import selectors

    with selectors.DefaultSelector() as ready:
        ready.register(stdout, selectors.EVENT_READ, to_stdout)
        ready.register(stderr, selectors.EVENT_READ, to_stderr)
        while ready.get_map():
            for key, _ in ready.select():
                if chunk := key.fileobj.read1(1 << 16):  # type: ignore[union-attr]
                    key.data.write(chunk)
                    key.data.flush()
                else:
                    ready.unregister(key.fileobj)


COMMANDS = (doctor, sandbox)
