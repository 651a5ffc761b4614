"""What may start now: sessions by route, routes that fail, waits before another attempt, and the cost cap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from arena.errors import UsageError
from arena.plan import seconds
from arena.schema import Sweep
from arena.sweep.grid import Trial
from arena.sweep.progress import Attempt

DEFAULT_SESSIONS = 4
"""At once on a route that `providers` does not name."""


def until_s(at: str, now: datetime) -> float:
    """Seconds from `now` to a time such as `2026-12-01T08:00Z`, or to the next `08:00` of the clock. UsageError."""
    try:
        found = datetime.fromisoformat(f"{now:%Y-%m-%d}T{at}" if len(at) == len("08:00") else at)
    except ValueError:
        raise UsageError(f"stop.at: {at!r} is no time: write 08:00, or 2026-12-01T08:00Z with its date") from None
    if found.tzinfo is None:  # of this machine's clock
        found = found.astimezone(now.tzinfo) if now.tzinfo is None else found.replace(tzinfo=now.tzinfo)
    left_s = (found - now).total_seconds()
    return left_s + timedelta(days=1).total_seconds() if len(at) == len("08:00") and left_s <= 0 else left_s


@dataclass
class Limits:
    """The state of the routes and of waits, in seconds of a monotonic clock."""

    sweep: Sweep
    failures: Counter[str] = field(default_factory=Counter)
    """Sessions in a row that ended by the provider's failure, by route."""
    paused_until: dict[str, float] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    """Routes whose account needs a person, with what to do."""
    not_before: dict[Trial, float] = field(default_factory=dict)
    stop_at_s: float = math.inf
    """From then on no session starts."""

    def ended(self, trial: Trial, attempt: Attempt, failed_before: int, now_s: float) -> str:
        """Take an ended session into account; what it changes, for people, or nothing.

        `failed_before` counts the trial's earlier attempts that ended by the provider's failure.
        """
        route = trial.planned.cell.route
        if route is None:
            return ""
        if attempt.outcome != "provider_error":
            self.failures[route] = 0
            return ""
        self.not_before[trial] = now_s + seconds(self.sweep.retry.after, "retry.after") * 4**failed_before
        if attempt.account_fault:
            self.closed[route] = attempt.account_fault
            return f"route {route} is closed: {attempt.account_fault}"
        self.failures[route] += 1
        if self.failures[route] < self.sweep.stop.route_failures:
            return ""
        self.paused_until[route] = now_s + seconds(self.sweep.stop.pause, "stop.pause")
        return (
            f"route {route} is paused for {self.sweep.stop.pause}: {self.failures[route]} sessions in a row ended by its failure"
        )

    def blocks(self, trial: Trial, at_work: Sequence[Trial], spent_usd: float, now_s: float) -> str:
        """Why no session of this trial may start now: `at`, `route`, `closed`, `wait`, `cost`, or nothing."""
        if now_s >= self.stop_at_s:
            return "at"
        cell = trial.planned.cell
        if cell.route is not None:
            if cell.route in self.closed:
                return "closed"
            mine = sum(other.planned.cell.route == cell.route for other in at_work)
            failing = self.failures[cell.route] >= self.sweep.stop.route_failures
            if mine >= (1 if failing else self.sweep.providers.get(cell.route, DEFAULT_SESSIONS)):
                return "route"
            if now_s < self.paused_until.get(cell.route, 0.0):
                return "wait"
        if now_s < self.not_before.get(trial, 0.0):
            return "wait"
        cap_usd = self.sweep.stop.cost_usd
        if cap_usd is not None and reservation(trial) and spent_usd + reserved_usd([*at_work, trial]) > cap_usd:
            return "cost"
        return ""

    def next_s(self, waiting: Sequence[Trial]) -> float | None:
        """When the first of these may start; None when no wait holds any of them."""
        times = [self.not_before.get(trial, 0.0) for trial in waiting]
        routes = [self.paused_until.get(trial.planned.cell.route or "", 0.0) for trial in waiting]
        return min((max(pair) for pair in zip(times, routes, strict=True)), default=None)


def reservation(trial: Trial) -> float:
    """USD that a session of it may use at most; 0 without a model."""
    return (trial.planned.session.grid.max_cost or 0.0) if trial.planned.cell.route else 0.0


def reserved_usd(at_work: Sequence[Trial]) -> float:
    """USD that these sessions may use at most."""
    return sum(map(reservation, at_work))


def spent_usd(made: Mapping[Trial, Sequence[Attempt]]) -> float:
    """The cost of all attempts. One of unknown cost counts with all that it was allowed."""
    return sum(
        reservation(trial) if attempt.cost_usd is None else attempt.cost_usd
        for trial, each in made.items()
        for attempt in each
        if attempt.outcome != "running"
    )
