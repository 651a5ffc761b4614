"""One agent's session: started in its box, watched, ended at the budget's end, told as a record. Nothing it does raises.

supervise.py watches it, and ending.py says what its end is called.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arena import paths
from arena.agents.launch import agent_box
from arena.agents.snapshots import Snapshots
from arena.agents.status import Seen, decide
from arena.agents.supervisor import Ending, Progress, Terms, supervise
from arena.agents.trajectory import Trajectory, reader
from arena.agents.transcript import Transcript
from arena.catalog import SelectedModel
from arena.files.text import plain
from arena.gateway.config import GATEWAY_PORT, ModelAccess
from arena.gateway.network import Network, connected
from arena.results.run_folder import RunFolder
from arena.sandboxes import Limits, RunningSandbox, Sandbox
from arena.sandboxes.limits import limits_for
from arena.schema import Harness, Session
from arena.system import tempdirs

if TYPE_CHECKING:
    from arena.gateway.model.server import Gateway

ADDRESS = f"http://127.0.0.1:{GATEWAY_PORT}"
"""Of the gateway, inside the box."""
SOCKET = "model"
TOLD_S = 0.5
"""The program's last word may be here before the gateway has written down why there was no other."""
MESSAGE = 4000
"""Characters of a session's message."""
LISTED = 10_000
"""Names of the workspace that are compared to see whether anything changed; a prankster may make millions."""


def play(
    chosen: SelectedModel,
    run: RunFolder,
    *,
    terms: Terms,
    sandbox: Sandbox,
    prompt: str,
    tape: bytes | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    gpu: int | None = None,
    limits: Limits | None = None,
    network: Network = Network(),  # noqa: B008  frozen
    asked: ModelAccess | None = None,
    login: bool = False,
    harness_folder: Path | None = None,
    sandbox_name: str = "bwrap",
) -> Session:
    """Run the agent in the run's workspace for its time; when this returns, the box is proven empty.

    `limits` are the harness's on this machine unless given. With `asked`, the gateway serves that model; with
    `login` there is none, and the agent's program uses a person's subscription.
    """
    harness, folder = chosen.harness, harness_folder or paths.harnesses()
    limits = limits_for("agent", harness.limits) if limits is None else limits
    read = reader(folder / harness.events if harness.events else None, harness.terminal_event)
    before = _listing(run.work)
    started_at = datetime.now(UTC)
    equip = partial(agent_box, chosen, run.work, prompt, folder=folder, limits=limits, login=login, tape=tape, gpu=gpu)
    with _gateway(asked, run, network) as (gateway, network), connected(network, run.network) as way:
        box = equip(gateway=ADDRESS, key=gateway.key) if gateway else equip()
        shown = [word.replace(gateway.key, "KEY") if gateway else word for word in box.command]
        run.event("session_started", command=shown, env=sorted(box.env), budget_s=terms.budget_s)
        box = replace(box, network=way.network, bridges=way.bridges, env={**box.env, **way.env})
        with sandbox.run(box) as running, Snapshots(running.workspace or run.work, run.snapshots, run.event) as snapshots:
            start_s = time.monotonic()
            transcript = Transcript(running.stdout, running.stderr, run.agent, Trajectory(run.trajectory, read))
            try:
                ending = supervise(running, transcript, terms, gateway, report, start_s)
            finally:
                # Also when the user interrupts: nothing lives on, and the readers come to the end of their pipes.
                if gateway:
                    gateway.leaving()
                running.kill()
                empty_s = time.monotonic() - start_s
                transcript.close()
    seen = _seen(ending, transcript, harness, gateway, changed=_listing(run.work) != before)
    status, message = decide(seen)
    if running.lost.count:
        run.event("not_kept", count=running.lost.count, first=running.lost.first)
    if troubles := [*way.troubles, *(gateway.troubles if gateway else ())]:
        run.event("network_trouble", troubles=troubles)
    session = Session(
        agent_status=status,
        message=plain("; ".join([message, *_notes(running, transcript.trajectory), *troubles]), MESSAGE),
        exit_code=ending.exit_code,
        started_at=started_at,
        elapsed_s=round(ending.elapsed_s, 3),
        overshoot_s=round(max(0.0, empty_s - ending.granted_s), 3) if ending.cause == "budget" else 0.0,
        events=transcript.events,
        snapshots=snapshots.count,
        sandbox=sandbox_name,
        network=network.recorded(),
        allowed=tuple(map(str, network.allowed)),
        unsealed=network.mode == "open",
        limits=dict(running.limits),
        usage=gateway.usage() if gateway else transcript.trajectory.usage if login else None,
        unpinned=asked is not None and asked.route.broker and not asked.provider,
    )
    run.event("session_ended", **session.model_dump(mode="json"))
    report(Progress("ended", plain(f"{status}: {message}"), ending.elapsed_s, terms.budget_s))
    return session


@contextmanager
def _gateway(asked: ModelAccess | None, run: RunFolder, network: Network) -> Iterator[tuple[Gateway | None, Network]]:
    """The gateway to the model that is asked for, and the network with it, for the length of the block."""
    if asked is None:
        yield None, network
        return
    from arena.gateway.model.server import serve  # its HTTP library takes half a second to import

    with tempdirs.folder() as folder, serve(folder / SOCKET, run.ledger, asked) as gateway:
        yield gateway, replace(network, gateway=folder / SOCKET)


def _seen(ending: Ending, transcript: Transcript, harness: Harness, gateway: Gateway | None, *, changed: bool) -> Seen:
    trajectory, seen = transcript.trajectory, Seen(ending.exit_code)
    if gateway is not None:
        done_s = trajectory.ended_s if trajectory.ended_well else None
        # What began to fail after its last word, such as a helper that lingered, says nothing of its work.
        stop = gateway.stop if done_s is None or gateway.stopped_s <= done_s + TOLD_S else None
        seen = replace(
            seen,
            stop=(stop.status, stop.message) if stop else None,
            asked=gateway.usage().requests,
            failed=gateway.last_failure if done_s is None else gateway.last_failure_before(done_s),
            refused=gateway.refused,
        )
    return replace(
        seen,
        cause=ending.cause,
        done=None if trajectory.ended_s is None else trajectory.ended_well,
        says_when_done=bool(harness.terminal_event or harness.events),
        events=transcript.events,
        changed=changed,
        told=f"it told: {plain(trajectory.error)}"
        if trajectory.error
        else f"agent/stderr.log ends: {transcript.last_error or 'empty'}",
    )


def _notes(running: RunningSandbox, trajectory: Trajectory) -> list[str]:
    """What there is to say of a box that has ended, besides how."""
    notes = [f"the sandbox says that {hit}" for hit in running.exceeded]
    if lost := running.lost.count:
        notes.append(f"{lost} of the workspace's files could not be kept, among them {plain(running.lost.first[0])}")
    if trajectory.misread:
        notes.append(f"{trajectory.misread} of its events could not be read")
    return notes


def _listing(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Names, sizes and times at the top of the workspace, which tell whether somebody was at work there."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in itertools.islice(entries, LISTED)]
    except PermissionError:  # the agent locked its own folder: a change
        return frozenset()
    # Not the change time: the folder is given to the box's user, and that counts as a change.
    return frozenset((name, status.st_size, status.st_mtime_ns) for name, status in found)
