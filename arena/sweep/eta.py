"""How long a sweep still takes, by the medians of its own finished trials: a pure function of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

SCORE_S = 100.0
"""A score before any is known: 52 to 150 s on GPUs."""


class Took(NamedTuple):
    """What one trial took, in seconds; None where it is not known yet."""

    model: str
    problem: str
    session_s: float | None
    score_s: float | None


class Left(NamedTuple):
    """What one trial still needs."""

    model: str
    problem: str
    budget_s: float
    session: bool
    """Whether a session of it is over or not."""
    score: bool
    at_work_s: float = 0.0
    """How long the session, or without one the score, has been at work."""


class Slots(NamedTuple):
    """How much is done at once."""

    sessions: int
    scores: int
    waves: bool
    """Whether sessions and scores take turns."""


def eta_s(left: Sequence[Left], took: Sequence[Took], slots: Slots) -> float | None:
    """Seconds until nothing is left; None before a session has ended.

    A session lasts as the median of those of its model on its problem, else on any problem, else of all, and at most its budget.
    A score lasts as the median of its problem's. Work is shared out evenly, and its longest part is a bound.
    """
    if not left:
        return 0.0
    if not any(each.session_s is not None for each in took):
        return None
    sessions = [max(0.0, _session_s(each, took) - each.at_work_s) for each in left if each.session]
    scores = [max(0.0, _score_s(each, took) - (0.0 if each.session else each.at_work_s)) for each in left if each.score]
    for_sessions, for_scores = _shared(sessions, slots.sessions), _shared(scores, slots.scores)
    if slots.waves or not sessions:
        return for_sessions + for_scores
    return max(for_sessions + (scores[-1] if scores else 0.0), for_scores)


def _shared(each_s: Sequence[float], at_once: int) -> float:
    return max(sum(each_s) / max(1, at_once), max(each_s, default=0.0))


def _session_s(one: Left, took: Sequence[Took]) -> float:
    alike = (
        [each.session_s for each in took if each.session_s is not None and wanted(each)]
        for wanted in (
            lambda each: (each.model, each.problem) == (one.model, one.problem),
            lambda each: each.model == one.model,
            lambda each: True,
        )
    )
    return min(one.budget_s, median(next(found for found in alike if found)))


def _score_s(one: Left, took: Sequence[Took]) -> float:
    known = [(each.problem, each.score_s) for each in took if each.score_s is not None]
    same = [score_s for problem, score_s in known if problem == one.problem]
    return median(same or [score_s for _, score_s in known] or [SCORE_S])
