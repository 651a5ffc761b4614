"""Supervise an agent at work until it ends, lingers, uses up its budget, falls silent, makes no progress, or is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from arena.agents.run_spec import TimeLimits
from arena.agents.transcript import Transcript
from arena.sandboxes import RunningSandbox

PERIOD_S = 0.25
"""Between two checks, and between two progress reports."""
STOP_GRACE_S = 3.0
"""From SIGTERM to SIGKILL when the gateway stops the run or the agent falls silent: there is nothing left for it to do."""

Cause = Literal["itself", "budget", "silence", "gateway", "loop", "unasked"]


@dataclass(frozen=True)
class Activity:
    """What an agent has done so far, for a live display. The agent's own events say a part of it, so it decides nothing."""

    steps: int = 0
    """Tools that it has used."""
    requests: int = 0
    """To its model."""
    asking: str = ""
    """What its requests are doing: waiting, receiving, retrying or pausing after a failure; empty: nothing."""
    tokens: int = 0
    cost_usd: float | None = None
    """None: unknown, or there is no model."""
    snapshots: int = 0
    """States of solution.py that were kept."""
    check: str = ""
    """The last result of its own check.py: `passed`, `failed`, or empty."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a live display."""

    phase: str
    """agent: at work; lingering: done but still running; stopping: asked to end; ended."""
    text: str = ""
    """The agent's last output, one line without control characters."""
    elapsed_s: float = 0.0
    budget_s: float = 0.0
    activity: Activity | None = None
    """Only while an agent is at work."""


class Traffic(Protocol):
    """What the supervisor reads of an agent's traffic with its model."""

    @property
    def stop(self) -> object:
        """Why the session should end now; None while it need not."""

    @property
    def in_flight(self) -> int:
        """Requests under way."""

    @property
    def answers(self) -> int:
        """Good answers of the model."""

    @property
    def resuming(self) -> bool:
        """Whether the agent's command has ended by a break of the provider, and waits to go on."""

    @property
    def resumed_s(self) -> float:
        """When it last went on, on the monotonic clock; 0: never."""

    @property
    def arrived(self) -> int:
        """Requests of any kind that reached the gateway."""

    @property
    def active_s(self) -> float:
        """When the last byte passed, on the monotonic clock."""

    @property
    def backoff_s(self) -> float:
        """Seconds for which the provider failed."""

    def leaving(self) -> None:
        """Count requests that break off from now on as ended by arena."""


class SessionEnd(NamedTuple):
    """How a session ended."""

    exit_code: int | None
    """None when arena killed the command."""
    cause: Cause
    elapsed_s: float
    """Seconds from the start until the command ended, or until arena was about to kill it."""
    granted_s: float
    """The budget, the back-off time and the waits for a shared GPU that were added to it."""


def supervise(
    running: RunningSandbox,
    transcript: Transcript,
    times: TimeLimits,
    traffic: Traffic | None,
    report: Callable[[Progress], None],
    start_s: float,
    take: Callable[[], object],
    looping: Callable[[int], bool] = lambda answers: False,
    credit: Callable[[], float] = lambda: 0.0,
) -> SessionEnd:
    """Wait until the session ends, by the monotonic clock, which the agent cannot set. The session began at `start_s`.

    `take` takes the submission: called before the agent is asked to end, so that its grace is no working time. `looping` tells
    whether the agent makes no progress, by the number of good answers. `credit` is the time in seconds for which it has waited
    for others: it is added to the budget, at most once the budget.
    """
    while True:
        # One more budget at most: an agent can make its provider fail, by too many requests for one.
        backoff_s = min(traffic.backoff_s, times.budget_s) if traffic and times.without_backoff else 0.0
        granted_s = times.budget_s + backoff_s + min(credit(), times.budget_s)
        end_s = start_s + granted_s
        done_s = _done_s(transcript, traffic)
        until_s = end_s if done_s is None else min(end_s, done_s + times.linger_s)
        left_s = until_s - time.monotonic()
        code = running.wait(min(PERIOD_S, max(0.0, left_s)))
        elapsed_s = time.monotonic() - start_s
        if code is not None:
            return SessionEnd(code, "itself", elapsed_s, granted_s)
        # An event that arrived during this wait counts: read the trajectory again.
        done = _done_s(transcript, traffic) is not None
        if done and done_s is not None and left_s <= 0:
            return SessionEnd(None, "itself", elapsed_s, granted_s)
        cause = None if done else "budget" if time.monotonic() >= end_s else _early_cause(transcript, times, traffic, elapsed_s)
        cause = "loop" if cause is None and not done and traffic and looping(traffic.answers) else cause
        if cause is not None:
            report(Progress("stopping", transcript.last, elapsed_s, times.budget_s))
            if traffic:
                traffic.leaving()
            take()
            running.terminate()
            code = running.wait(times.grace_s if cause == "budget" else min(times.grace_s, STOP_GRACE_S))
            return SessionEnd(code, cause, time.monotonic() - start_s, granted_s)
        report(Progress("lingering" if done else "agent", transcript.last, elapsed_s, times.budget_s))


def _done_s(transcript: Transcript, traffic: Traffic | None) -> float | None:
    """When the agent reported its end, on the monotonic clock; None before, and when its command goes on after that report."""
    done_s = transcript.trajectory.ended_s
    goes_on = traffic is not None and done_s is not None and (traffic.resuming or done_s < traffic.resumed_s)
    return None if goes_on else done_s


def _early_cause(transcript: Transcript, times: TimeLimits, traffic: Traffic | None, elapsed_s: float) -> Cause | None:
    """Why the session should end before its budget; None while it should not."""
    if traffic is not None and traffic.stop is not None:
        return "gateway"
    if traffic is not None and times.unasked_s is not None and not traffic.arrived and elapsed_s > times.unasked_s:
        return "unasked"
    if times.silence_s is not None and not (traffic and traffic.in_flight):
        heard_s = max(transcript.heard_s, traffic.active_s if traffic else 0.0)
        if time.monotonic() - heard_s > times.silence_s:
            return "silence"
    return None
