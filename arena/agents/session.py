"""Play one agent's session: start it in its sandbox, supervise it, end it, record its end. Nothing the agent does raises."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arena.agents import gpu_commands
from arena.agents.gpu_commands import GpuCommands
from arena.agents.progress_watch import ProgressWatch
from arena.agents.run_spec import RunSpec
from arena.agents.snapshots import Snapshots
from arena.agents.status import Observed, decide
from arena.agents.supervisor import Activity, Progress, SessionEnd, supervise
from arena.agents.trajectory import Trajectory
from arena.agents.transcript import Transcript
from arena.errors import SandboxError
from arena.files.text import plain
from arena.gateway.config import ModelAccess
from arena.gateway.network import Network, connected
from arena.results.run_folder import ROOM_BYTES, RunFolder, start_clock
from arena.sandboxes import RunningSandbox
from arena.sandboxes.programs import no_sockets
from arena.schema import Harness, Session
from arena.submission import Submission
from arena.system import tempdirs

if TYPE_CHECKING:
    from arena.gateway.model.server import Gateway

SOCKET, GPU_SOCKET = "model", "gpu"
LEDGER_DELAY_S = 0.5
"""The agent's last event may arrive this long before the gateway has written why its last request failed."""
MESSAGE_CHARACTERS = 4000
LIMITS = {
    "context": "the model's context was full at its last answer",
    "output": "the limit on one answer cut the model's last one",
}
UNCONFINED = "this kernel has no Landlock: a command could hand the GPU's open files to its session by a socket in the workspace"
LISTED_FILES = 10_000
"""Names compared at the top of the workspace to see whether anything changed; an agent may make millions."""


class Played(NamedTuple):
    """A session, and the submission that it left; without one, why there is none."""

    session: Session
    submission: Submission | None
    reason: str


def play(
    spec: RunSpec,
    run: RunFolder,
    prompt: str,
    *,
    device_node: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Played:
    """Run the agent in the run's workspace for its budget, and take its solution.py as it is when the session ends.

    When this returns, the sandbox is proven empty. A clean-up that failed is a note in the session's message: an agent can make
    its sandbox die slowly, and that must not take its run from the record. Then processes of it may still be dying
    (`await_dying`).

    Args:
        spec: the plan of the run.
        run: its folder, with a filled workspace.
        prompt: what the agent is asked.
        device_node: number of the GPU's device node that the agent may use; None for none.
        report: called about four times a second with the progress.
    """
    start_clock(run, spec.times.budget_s)  # no agent is there yet that could put a link in its place
    harness, before, started_at = spec.selected.harness, _listing(run.work), datetime.now(UTC)
    with (
        _gateway(spec.access, run, spec.network) as (gateway, network),
        connected(network, run.network) as connection,
        _gpu_commands(spec, gateway, run) as (gpu, gpu_bridges),
    ):
        key = gateway.key if gateway else ""
        sandbox = spec.launch.sandbox_spec(harness.prompt, run.work, prompt, key=key, gpu=device_node)
        shown = [word.replace(key, "KEY") if key else word for word in sandbox.command]
        run.event("session_started", command=shown, env=sorted(sandbox.env), budget_s=spec.times.budget_s)
        env = {**sandbox.env, **connection.env}
        sandbox = replace(
            sandbox, network=connection.network, bridges={**connection.bridges, **gpu_bridges}, env=env, cpus=spec.cpus
        )
        if gpu:
            command = (gpu_commands.NO_SOCKETS, *sandbox.command)
            path = (*sandbox.path, gpu_commands.FOLDER)
            sandbox = replace(sandbox, shared=True, command=command, programs=gpu_commands.PROGRAMS, path=path)
        end, cleanup = None, ""
        try:
            with (
                spec.sandbox.run(sandbox) as running,
                Snapshots(running.workspace or run.work, run.snapshots, run.event) as snapshots,
            ):
                start_s, watch = time.monotonic(), ProgressWatch(running.workspace or run.work)
                if gpu:
                    gpu.attach(running)
                trajectory = Trajectory(run.trajectory, spec.launch.read_events)
                transcript = Transcript(running.stdout, running.stderr, run.agent, trajectory)

                def with_activity(progress: Progress) -> None:
                    report(replace(progress, activity=_activity(trajectory, snapshots, gateway)))

                try:
                    end = supervise(
                        running,
                        transcript,
                        spec.times,
                        gateway,
                        with_activity,
                        start_s,
                        snapshots.take,
                        watch.looping,
                        lambda: gpu.credit_s if gpu else 0.0,
                    )
                    if gpu:
                        gpu.close()
                    taken = snapshots.take()
                finally:
                    # Also when the user interrupts: no process lives on, and the readers reach the end of their pipes.
                    if gateway:
                        gateway.leaving()
                    if gpu:
                        gpu.close()
                    try:
                        _end(running, transcript)
                    finally:
                        empty_s = time.monotonic() - start_s
        except SandboxError as error:
            if end is None:
                raise
            cleanup = str(error)
        run.free_room(keep_bytes=ROOM_BYTES // 2)
        if cleanup:
            run.event("clean_up_failed", message=cleanup)
        if gateway and end.cause in ("itself", "gateway"):  # the others decide the status alone
            gateway.settle()
    observed = _observed(end, transcript, harness, gateway, changed=_listing(run.work) != before)
    status, message = decide(observed)
    if running.lost.count:
        run.event("not_kept", count=running.lost.count, first=running.lost.first)
    cut = LIMITS[gateway.limit_reached] if gateway and gateway.limit_reached else ""
    breaks = f"its command went on after breaks of the provider: {gateway.resumed}" if gateway and gateway.resumed else ""
    open_ = UNCONFINED if gpu and not no_sockets.available() else ""
    remarks = [text for text in (cut, breaks, open_, transcript.trouble, snapshots.trouble) if text]
    if troubles := [*connection.troubles, *(gateway.troubles if gateway else ())]:
        run.event("network_trouble", troubles=troubles)
    session = Session(
        agent_status=status,
        message=plain("; ".join([message, *_notes(running, trajectory, cleanup), *remarks, *troubles]), MESSAGE_CHARACTERS),
        exit_code=end.exit_code,
        started_at=started_at,
        elapsed_s=round(end.elapsed_s, 3),
        overshoot_s=round(max(0.0, empty_s - end.granted_s), 3) if end.cause == "budget" else 0.0,
        events=transcript.events,
        snapshots=snapshots.count,
        clock_offset_s=round(trajectory.start_s - snapshots.start_s, 3),
        sandbox=spec.sandbox_name,
        network=network.recorded(),
        allowed=tuple(map(str, network.allowed)),
        unsealed=network.mode == "open",
        limits=dict(running.limits),
        **({key: round(value, 3) for key, value in asdict(gpu.use).items()} if gpu else {}),
        usage=gateway.usage() if gateway else trajectory.usage if spec.login else None,
        account_fault=observed.account_fault if status == "provider_error" else "",
        limit_reached=gateway.limit_reached if gateway else None,
        resumed=gateway.resumed if gateway else 0,
        unpinned=spec.access is not None and spec.access.route.broker and not spec.access.provider,
    )
    run.event("session_ended", **session.model_dump(mode="json"))
    report(Progress("ended", plain(f"{status}: {message}"), end.elapsed_s, spec.times.budget_s))
    submission, reason = (taken, "") if isinstance(taken, Submission) else (None, taken.reason)
    return Played(session, submission, reason)


def _activity(trajectory: Trajectory, snapshots: Snapshots, gateway: Gateway | None) -> Activity:
    """What the agent has done so far."""
    used = gateway.usage() if gateway else trajectory.usage
    tokens = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens + used.output_tokens + used.reasoning_tokens
    return Activity(
        steps=trajectory.calls,
        requests=used.requests if gateway else 0,
        asking=gateway.asking if gateway else "",
        tokens=tokens,
        cost_usd=used.cost_usd if gateway else None,
        snapshots=snapshots.count,
        check=trajectory.check,
    )


def _end(running: RunningSandbox, transcript: Transcript) -> None:
    """Kill the sandbox and read its output to the end. SandboxError when one of them takes too long."""
    try:
        running.kill()
    except SandboxError:  # its processes hold the pipes as long as they die, and write no more
        with suppress(SandboxError):
            transcript.close(0.0)
        raise
    transcript.close()


@contextmanager
def _gateway(access: ModelAccess | None, run: RunFolder, network: Network) -> Iterator[tuple[Gateway | None, Network]]:
    """Serve the gateway for the length of the block; the network with it."""
    if access is None:
        yield None, network
        return
    from arena.gateway.model.server import serve  # its HTTP library takes half a second to import

    with tempdirs.folder() as folder, serve(folder / SOCKET, run.ledger, access) as gateway:
        yield gateway, replace(network, gateway=folder / SOCKET)


@contextmanager
def _gpu_commands(spec: RunSpec, gateway: Gateway | None, run: RunFolder) -> Iterator[tuple[GpuCommands | None, dict[int, Path]]]:
    """Serve the session's `gpu` commands for the length of the block; with the bridge to them."""
    if spec.leased is None:
        yield None, {}
        return
    served = GpuCommands(spec.leased, spec.launch.limits, lambda: bool(gateway and gateway.in_flight), run.event, spec.cpus)
    with tempdirs.folder() as folder, served.serving(folder / GPU_SOCKET):
        yield served, {gpu_commands.PORT: folder / GPU_SOCKET}


def _observed(end: SessionEnd, transcript: Transcript, harness: Harness, gateway: Gateway | None, *, changed: bool) -> Observed:
    trajectory, observed = transcript.trajectory, Observed(end.exit_code)
    if gateway is not None:
        done_s = trajectory.ended_s if trajectory.ended_well else None
        # What failed after the agent was done, such as a request of a helper that lingered, does not change its status.
        stop = gateway.stop if done_s is None or gateway.stopped_s <= done_s + LEDGER_DELAY_S else None
        observed = replace(
            observed,
            stop=(stop.status, stop.message) if stop else None,
            requests=gateway.usage().requests,
            arrived=gateway.arrived,
            last_refusal=gateway.last_refusal,
            failed=gateway.last_failure if done_s is None else gateway.last_failure_before(done_s),
            refused=gateway.refused,
            account_fault=gateway.account_fault,
        )
    return replace(
        observed,
        cause=end.cause,
        done=None if trajectory.ended_s is None else trajectory.ended_well,
        reports_its_end=bool(harness.terminal_event or harness.events),
        events=transcript.events,
        changed=changed,
        last_words=f"its last error: {plain(trajectory.error)}"
        if trajectory.error
        else f"agent/stderr.log ends: {transcript.last_error or 'empty'}",
    )


def _notes(running: RunningSandbox, trajectory: Trajectory, cleanup: str) -> list[str]:
    """Remarks on a sandbox that has ended, besides the status; `cleanup` is what went wrong with its end."""
    notes = [f"the clean-up failed: {cleanup}"] if cleanup else []
    notes += [f"the sandbox reports: {limit}" for limit in running.exceeded]
    if lost := running.lost.count:
        notes.append(f"{lost} of the workspace's files could not be kept, among them {plain(running.lost.first[0])}")
    if trajectory.misread:
        notes.append(f"{trajectory.misread} of its events could not be read")
    return notes


def _listing(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Names, sizes and times at the top of the workspace, which show whether the agent changed anything there."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in itertools.islice(entries, LISTED_FILES)]
    except (PermissionError, FileNotFoundError):  # the agent locked its own folder, or its clean-up failed: a change
        return frozenset()
    # Not the change time: the folder is given to the sandbox's user, and that counts as a change.
    return frozenset((name, status.st_size, status.st_mtime_ns) for name, status in found)
