"""One agent's session: started in its box, watched, ended at the budget's end, told as a record. Nothing it does raises.

How `agent_status` is decided, the first row that fits:

    the budget ended before the terminal event       deadline
    the terminal event was seen                      complete     whatever the exit code; killed if it lingers
    exit code not 0                                  crashed
    no event, and nothing in the workspace changed   no_activity
    exit 0, but the terminal event was to come       crashed      an exit code alone is never taken for success
    exit 0, and the harness defines no such event    complete

`refused`, `provider_error` and `budget_exhausted` are known only to whoever carries the model's traffic: never decided here.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from arena import paths
from arena.catalog import Chosen
from arena.errors import UsageError
from arena.gateway import Network, connected
from arena.sandboxes import Box, Limits, Running, Sandbox, allowance
from arena.schema import AgentStatus, Session
from arena.snapshots import Snapshots
from arena.transcript import Transcript, plain
from arena.workspace import Run

TAPE = "/run/arena/tape.json"
"""Where `harnesses/builtin.py` finds its tape inside the sandbox."""
LOOK_S = 0.25
"""How often the supervisor looks at the terminal event and reports."""
LISTED = 10_000
"""Names of the workspace that are compared to see whether anything changed; a prankster may make millions."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a live display."""

    phase: str
    """agent: at work; lingering: finished but still there; stopping: the budget is over; ended."""
    text: str = ""
    """The last thing heard, one line without control characters."""
    elapsed_s: float = 0.0
    budget_s: float = 0.0


class Ending(NamedTuple):
    """How the supervision ended."""

    exit_code: int | None
    """None when arena had to kill it."""
    over_budget: bool
    """The budget ended before the terminal event was seen."""
    elapsed_s: float
    """Seconds from the start until the command had ended or was about to be killed."""


def play(
    chosen: Chosen,
    run: Run,
    *,
    budget_s: float,
    sandbox: Sandbox,
    prompt: str,
    tape: bytes | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    grace_s: float = 10.0,
    linger_s: float = 20.0,
    gpu: int | None = None,
    limits: Limits | None = None,
    network: Network = Network(),  # noqa: B008  frozen
    harness_folder: Path | None = None,
    sandbox_name: str = "bwrap",
) -> Session:
    """Run the agent in the run's workspace for at most `budget_s`; when it returns, the box is proven empty.

    `limits` are the harness's on this machine unless given.
    """
    limits = allowance.limits("agent", chosen.harness.limits) if limits is None else limits
    box = _box(chosen, run, prompt, tape, gpu, limits, harness_folder or paths.harnesses())
    before = _listing(run.work)
    started_at = datetime.now(UTC)
    run.event("session_started", command=list(box.command), env=sorted(box.env), budget_s=budget_s)
    with (
        connected(network, run.network) as way,
        sandbox.run(replace(box, network=way.network, bridges=way.bridges, env={**box.env, **way.env})) as running,
        Snapshots(running.workspace or run.work, run.snapshots, run.event) as snapshots,
    ):
        start_s = time.monotonic()
        transcript = Transcript(running.stdout, running.stderr, run.agent, chosen.harness.terminal_event)
        try:
            ending = _supervise(running, transcript, start_s, budget_s, grace_s, linger_s, report)
        finally:
            # Also when the user interrupts: nothing lives on, and the readers come to the end of their pipes.
            running.kill()
            empty_s = time.monotonic() - start_s
            transcript.close()
    status, message = _status(ending, transcript, chosen.harness.terminal_event is not None, _listing(run.work) != before)
    if running.lost.count:
        run.event("not_kept", count=running.lost.count, first=running.lost.first)
    if way.troubles:
        run.event("network_trouble", troubles=way.troubles)
    session = Session(
        agent_status=status,
        message="; ".join([message, *_notes(running), *way.troubles]),
        exit_code=ending.exit_code,
        started_at=started_at,
        elapsed_s=round(ending.elapsed_s, 3),
        overshoot_s=round(max(0.0, empty_s - budget_s), 3) if ending.over_budget else 0.0,
        events=transcript.events,
        snapshots=snapshots.count,
        sandbox=sandbox_name,
        network=network.recorded(),
        allowed=tuple(map(str, network.allowed)),
        unsealed=network.mode == "open",
        limits=dict(running.limits),
    )
    run.event("session_ended", **session.model_dump(mode="json"))
    report(Progress("ended", f"{status}: {message}", ending.elapsed_s, budget_s))
    return session


def _box(chosen: Chosen, run: Run, prompt: str, tape: bytes | None, gpu: int | None, limits: Limits, folder: Path) -> Box:
    harness, effort = chosen.harness, chosen.model.effort
    if effort is None and any("{effort}" in word for word in harness.command):
        raise UsageError(
            f"harness {harness.name} is started with an effort, and model {chosen.model_name} names none: give --effort"
        )
    words = [word.replace("{model}", chosen.model_name).replace("{effort}", effort or "") for word in harness.command]
    files = {inside: (folder / name).read_bytes() for inside, name in harness.files.items()}
    return Box(
        kind="agent",
        command=(*words, prompt) if harness.prompt == "argument" else tuple(words),
        workspace=run.work,
        files=files if tape is None else files | {TAPE: tape},
        env=harness.env,
        stdin=prompt.encode() if harness.prompt == "stdin" else b"",
        gpu=gpu,
        limits=limits,
    )


def _supervise(
    running: Running,
    transcript: Transcript,
    start_s: float,
    budget_s: float,
    grace_s: float,
    linger_s: float,
    report: Callable[[Progress], None],
) -> Ending:
    """Wait for the end of the command, of its lingering, or of the budget, on the clock that nobody can set."""
    while True:
        finished_s = transcript.finished_s
        until_s = start_s + budget_s if finished_s is None else min(start_s + budget_s, finished_s + linger_s)
        left_s = until_s - time.monotonic()
        code = running.wait(min(LOOK_S, max(0.0, left_s)))
        elapsed_s = time.monotonic() - start_s
        if code is not None:
            return Ending(code, False, elapsed_s)
        # What was heard during this wait decides, not what was known before it.
        if left_s <= 0 and transcript.finished_s is None:
            report(Progress("stopping", transcript.last, elapsed_s, budget_s))
            running.terminate()
            code = running.wait(grace_s)
            return Ending(code, True, time.monotonic() - start_s)
        if left_s <= 0 and finished_s is not None:
            return Ending(None, False, elapsed_s)
        report(Progress("agent" if finished_s is None else "lingering", transcript.last, elapsed_s, budget_s))


def _status(ending: Ending, transcript: Transcript, has_terminal: bool, changed: bool) -> tuple[AgentStatus, str]:
    """The table above, and a sentence for people."""
    code, finished = ending.exit_code, transcript.finished_s is not None
    how = "was killed" if code is None else f"ended with exit code {code}"
    if ending.over_budget:
        return "deadline", f"the budget ended; the command {how}"
    if finished:
        return "complete", f"the terminal event was seen, and the command {how}"
    if code != 0:
        return "crashed", f"the command {how}; agent/stderr.log ends: {transcript.last_error or 'empty'}"
    if not transcript.events and not changed:
        return "no_activity", "the command ended at once with exit code 0, without an event and without a change in the workspace"
    if has_terminal:
        return "crashed", "the command ended with exit code 0, but without its terminal event"
    return "complete", "the command ended with exit code 0"


def _notes(running: Running) -> list[str]:
    """What there is to say of a box that has ended, besides how."""
    notes = [f"the sandbox says that {hit}" for hit in running.exceeded]
    if lost := running.lost.count:
        notes.append(f"{lost} of the workspace's files could not be kept, among them {plain(running.lost.first[0])}")
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
