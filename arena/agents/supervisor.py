"""Watching an agent at work: until it ends, is done and lingers, has used up its time, or somebody wants it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from arena.agents.transcript import Transcript
from arena.sandboxes import RunningSandbox

LOOK_S = 0.25
"""How often it is looked at and reported on."""
STOP_GRACE_S = 3.0
"""What an agent gets to end by itself whose provider or whose means have failed: it has nothing left to do."""

Cause = Literal["itself", "budget", "silence", "gateway"]


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a live display."""

    phase: str
    """agent: at work; lingering: done but still there; stopping: it is being ended; ended."""
    text: str = ""
    """The last thing heard, one line without control characters."""
    elapsed_s: float = 0.0
    budget_s: float = 0.0


@dataclass(frozen=True)
class Terms:
    """What an agent is granted, in seconds."""

    budget_s: float
    grace_s: float = 10.0
    """From the budget's end, when it is asked to end, to the kill."""
    linger_s: float = 20.0
    """From its word that it is done to the kill."""
    silence_s: float | None = None
    """So long without a word from it or its model, with no request under way, and it hangs. None: it may be silent."""
    without_backoff: bool = False
    """Whether the time for which its provider failed does not count."""


class Traffic(Protocol):
    """What is to be known of an agent's talk with its model."""

    @property
    def stop(self) -> object:
        """Why the session should be ended now; None while it need not."""

    @property
    def in_flight(self) -> int:
        """Requests under way."""

    @property
    def active_s(self) -> float:
        """When the last byte passed, on the monotonic clock."""

    @property
    def backoff_s(self) -> float:
        """Seconds for which the provider failed."""

    def leaving(self) -> None:
        """What breaks off from now on is our doing."""


class Ending(NamedTuple):
    """How the supervision ended."""

    exit_code: int | None
    """None when arena had to kill it."""
    cause: Cause
    elapsed_s: float
    """Seconds from the start until the command had ended or was about to be killed."""
    granted_s: float
    """The budget, and what was added to it."""


def supervise(
    running: RunningSandbox,
    transcript: Transcript,
    terms: Terms,
    traffic: Traffic | None,
    report: Callable[[Progress], None],
    start_s: float,
) -> Ending:
    """Wait for the end of the command, of its lingering, or of its time, on the clock that nobody can set.

    It started at `start_s` of the monotonic clock.
    """
    while True:
        granted_s = terms.budget_s + (traffic.backoff_s if traffic and terms.without_backoff else 0.0)
        end_s = start_s + granted_s
        done_s = transcript.trajectory.ended_s
        until_s = end_s if done_s is None else min(end_s, done_s + terms.linger_s)
        left_s = until_s - time.monotonic()
        code = running.wait(min(LOOK_S, max(0.0, left_s)))
        elapsed_s = time.monotonic() - start_s
        if code is not None:
            return Ending(code, "itself", elapsed_s, granted_s)
        # What was heard during this wait decides, not what was known before it.
        done = transcript.trajectory.ended_s is not None
        if done and done_s is not None and left_s <= 0:
            return Ending(None, "itself", elapsed_s, granted_s)
        cause = None if done else "budget" if time.monotonic() >= end_s else _cause(transcript, terms, traffic)
        if cause is not None:
            report(Progress("stopping", transcript.last, elapsed_s, terms.budget_s))
            if traffic:
                traffic.leaving()
            running.terminate()
            code = running.wait(terms.grace_s if cause == "budget" else min(terms.grace_s, STOP_GRACE_S))
            return Ending(code, cause, time.monotonic() - start_s, granted_s)
        report(Progress("lingering" if done else "agent", transcript.last, elapsed_s, terms.budget_s))


def _cause(transcript: Transcript, terms: Terms, traffic: Traffic | None) -> Cause | None:
    """Why it should end now, before its time."""
    if traffic is not None and traffic.stop is not None:
        return "gateway"
    if terms.silence_s is not None and not (traffic and traffic.in_flight):
        heard_s = max(transcript.heard_s, traffic.active_s if traffic else 0.0)
        if time.monotonic() - heard_s > terms.silence_s:
            return "silence"
    return None
