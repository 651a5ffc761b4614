"""`arena sandbox`: what does an agent, or a submission, see of this machine?"""

from __future__ import annotations

import selectors
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, Literal

import rich_click as click

from arena import machine, paths, workspace
from arena.cli import options
from arena.errors import UsageError
from arena.sandboxes import Box, backend
from arena.schema import Hardware, Problem


# Not interspersed: what follows the command's first word is the command's own, options included.
@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--kind", type=click.Choice(["agent", "worker"]), default="agent", show_default=True, help="Whose sandbox.")
@click.option("--problem", "-p", "problem_name", metavar="P", help="Fill the workspace as for this problem.")
@options.hardware
@options.sandbox
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def sandbox(
    context: click.Context,
    kind: Literal["agent", "worker"],
    problem_name: str | None,
    hardware_name: str,
    sandbox_name: str,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND inside exactly the sandbox that an agent or a submission gets: arena sandbox -- sh -c 'ls /'.

    It gets no input, and its exit code becomes arena's; 127 says that there is no such command inside.
    """
    if kind == "worker" and problem_name:
        raise UsageError("a worker has no workspace that --problem could fill: leave one of the two out")
    asked = options.problem_on(problem_name, hardware_name) if problem_name else None
    wall = backend(sandbox_name)
    with tempfile.TemporaryDirectory(prefix="arena-") as scratch:
        folder = workspace.Run(Path(scratch))
        folder.work.mkdir()
        if asked:
            _fill(folder, *asked)
        with wall.run(Box(kind, command, workspace=folder.work if kind == "agent" else None)) as running:
            _copy(running.stdout, sys.stdout.buffer, running.stderr, sys.stderr.buffer)
            status = running.wait()
    context.exit(status or 0)


def _fill(folder: workspace.Run, problem: Problem, hardware: Hardware) -> None:
    workspace.fill(
        folder,
        problem,
        hardware.profile,
        problem.shapes[hardware.profile],
        machine.processor(),
        problem_folder=paths.problems() / problem.name,
        kit_folder=paths.problems() / "kit",
    )


def _copy(stdout: BinaryIO, to_stdout: BinaryIO, stderr: BinaryIO, to_stderr: BinaryIO) -> None:
    """Pass both streams on as they come."""
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


COMMANDS = (sandbox,)
