"""`arena sandbox`: what does an agent, or a submission, see of this machine?"""

from __future__ import annotations

import json
import selectors
import sys
from pathlib import Path
from typing import BinaryIO, Literal

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import safe, tell
from arena.errors import UsageError
from arena.gateway.network import Network, connected
from arena.plan import problem_on
from arena.results import run_folder
from arena.sandboxes import SandboxSpec
from arena.sandboxes.backends import backend
from arena.sandboxes.limits import limits_for
from arena.schema import Hardware, Problem
from arena.system import machine, tempdirs


# Not interspersed: what follows the command's first word is the command's own, options included.
@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--kind", type=click.Choice(["agent", "worker"]), default="agent", show_default=True, help="Whose sandbox.")
@click.option("--problem", "-p", "problem_name", metavar="P", help="Fill the workspace as for this problem.")
@options.hardware
@options.sandbox
@options.network
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def sandbox(
    context: click.Context,
    kind: Literal["agent", "worker"],
    problem_name: str | None,
    hardware_name: str | None,
    sandbox_name: str,
    network: Network,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND inside exactly the sandbox that an agent or a submission gets: arena sandbox -- sh -c 'ls /'.

    It gets no input, and its exit code becomes arena's; 127 says that there is no such command inside.
    """
    if kind == "worker" and problem_name:
        raise UsageError("a worker has no workspace that --problem could fill: leave one of the two out")
    if kind == "worker" and network.mode != "none":
        raise UsageError("a submission is run without any network: --network is for --kind agent")
    asked = problem_on(problem_name, hardware_name, 0) if problem_name else None
    wall = backend(sandbox_name)
    if asked:
        options.say_hardware(hardware_name, asked[1], 0)
    with tempdirs.folder() as place:
        folder = run_folder.RunFolder(place)
        folder.work.mkdir()
        if asked:
            _fill(folder, *asked)
        limits = limits_for(kind)
        work = folder.work if kind == "agent" else None
        with (
            connected(network, folder.network) as way,
            wall.run(
                SandboxSpec(kind, command, work, env=way.env, network=way.network, bridges=way.bridges, limits=limits)
            ) as running,
        ):
            _copy(running.stdout, sys.stdout.buffer, running.stderr, sys.stderr.buffer)
            status = running.wait()
        _tell_requests(folder.network)
        for trouble in way.troubles:
            tell(safe(trouble))
    context.exit(status or 0)


def _fill(folder: run_folder.RunFolder, problem: Problem, hardware: Hardware) -> None:
    run_folder.fill_workspace(
        folder,
        problem,
        hardware.profile,
        problem.shapes[hardware.profile],
        machine.processor(),
        problem_folder=paths.problems() / problem.name,
        kit_folder=paths.problems() / "kit",
    )


def _tell_requests(log: Path) -> None:
    """What the allow proxy was asked for."""
    for line in log.read_text().splitlines() if log.exists() else ():
        asked = json.loads(line)
        where = f"{asked['host']}:{asked['port']}" if asked["host"] else "request"
        tell(f"{asked['verdict']} {safe(where)} {safe(asked['reason'])}".rstrip())


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
