"""`arena sandbox`: a command inside the sandbox of an agent or a worker."""

from __future__ import annotations

import json
import selectors
import shutil
import sys
from pathlib import Path
from typing import BinaryIO, Literal

import rich_click as click

from arena import catalog, judge, paths
from arena.cli import options
from arena.cli.console import safe, tell
from arena.errors import UsageError
from arena.gateway.network import Network, connected
from arena.plan import problem_on
from arena.results import run_folder
from arena.sandboxes import SandboxSpec
from arena.sandboxes.backends import backend
from arena.sandboxes.limits import limits_for
from arena.system import tempdirs
from arena.system.provenance import processor


# Not interspersed: all words after the command's first word belong to the command, options included.
@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--kind",
    type=click.Choice(["agent", "worker"]),
    default="agent",
    show_default=True,
    help="Choose the sandbox: an agent's, or that of the worker which runs a submission.",
)
@click.option(
    "--problem",
    "-p",
    "problem_name",
    metavar="P",
    shell_complete=options.problems_complete,
    help="Fill the workspace as in a run on this problem.",
)
@options.hardware
@options.gpu
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Put a copy of this file into the workspace, such as a solution.py to check. Repeatable.",
)
@options.sandbox
@options.network
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def sandbox(
    context: click.Context,
    kind: Literal["agent", "worker"],
    problem_name: str | None,
    hardware_name: str | None,
    gpu: int,
    files: tuple[Path, ...],
    sandbox_name: str,
    network: Network,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND inside the same sandbox as an agent or a submission: arena sandbox -- sh -c 'ls /'.

    COMMAND gets no input. Its exit code becomes arena's; 127 means that the sandbox has no such command.
    """
    if kind == "worker" and (problem_name or files):
        raise UsageError("a worker has no workspace to fill: leave out --problem and --file, or --kind worker")
    if kind == "worker" and network.mode != "none":
        raise UsageError("a submission runs without a network: --network needs --kind agent")
    filled_for = problem_on(problem_name, hardware_name, gpu) if problem_name else None
    chosen = backend(sandbox_name)
    # As in a run: what is filled for a GPU sees that GPU.
    device_node = judge.preflight(filled_for[1], gpu) if filled_for and filled_for[1].profile == "gpu" else None
    if filled_for:
        options.say_hardware(hardware_name, filled_for[1], gpu)
    with tempdirs.folder() as path:
        folder = run_folder.RunFolder(path)
        folder.work.mkdir()
        if filled_for:
            problem, hardware = filled_for
            run_folder.fill_workspace(
                folder,
                problem,
                hardware.profile,
                problem.shapes[hardware.profile],
                processor(),
                None,
                problem_folder=catalog.problem_folder(problem.name),
                kit_folder=paths.problems() / "kit",
            )
        for file in files:
            shutil.copyfile(file, folder.work / file.name)
        limits = limits_for(kind)
        work = folder.work if kind == "agent" else None
        with connected(network, folder.network) as link:
            spec = SandboxSpec(
                kind,
                command,
                work,
                env=link.env,
                network=link.network,
                bridges=link.bridges,
                gpu=device_node,
                limits=limits,
            )
            with chosen.run(spec) as running:
                _copy(running.stdout, sys.stdout.buffer, running.stderr, sys.stderr.buffer)
                exit_code = running.wait()
        _show_requests(folder.network)
        for trouble in link.troubles:
            tell(safe(trouble))
    context.exit(exit_code or 0)


def _show_requests(log: Path) -> None:
    """Print the requests in the egress proxy's log."""
    for line in log.read_text().splitlines() if log.exists() else ():
        request = json.loads(line)
        address = f"{request['host']}:{request['port']}" if request["host"] else "request"
        tell(f"{request['verdict']} {safe(address)} {safe(request['reason'])}".rstrip())


def _copy(stdout: BinaryIO, to_stdout: BinaryIO, stderr: BinaryIO, to_stderr: BinaryIO) -> None:
    """Forward both streams as data arrives."""
    with selectors.DefaultSelector() as ready:
        ready.register(stdout, selectors.EVENT_READ, (stdout, to_stdout))
        ready.register(stderr, selectors.EVENT_READ, (stderr, to_stderr))
        while ready.get_map():
            for key, _ in ready.select():
                source, target = key.data
                if chunk := source.read1(1 << 16):
                    target.write(chunk)
                    target.flush()
                else:
                    ready.unregister(source)
