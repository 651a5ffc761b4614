"""What each trial of a sweep still needs: a pure function of the run folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from arena.errors import UsageError
from arena.files import documents
from arena.gateway.model import ledger
from arena.results import gains, leaderboard, run_folder, statistics
from arena.results.board import NOT_COUNTED, Naive
from arena.results.run_folder import RunState
from arena.schema import Annotation, Cell, Passed, Retry, Sweep, Usage
from arena.sweep.grid import PlannedCell, Trial

Outcome = Literal["running", "interrupted", "unjudged", "judge_failed", "provider_error", "counted"]
Problem = tuple[str, int, str]
"""Its name, version and digest."""
Step = Literal["wait", "play", "judge", "done", "failed", "spared"]
"""What a trial needs next. failed: no attempt counts, and its kind of ending allows no further one. spared: its cell is sure
enough without it (`stop.when`)."""
LEAST_TRIALS = 3
"""Of a cell, before `stop.when` may spare it the others."""


@dataclass(frozen=True)
class Attempt:
    """One run folder of a trial."""

    run_id: str
    outcome: Outcome
    verdict: str = ""
    fraction: float | None = None
    """Of a passed one that counts, unless a review withdrew it."""
    figures: bool = True
    """Whether a counted one is in the figures. A run that a review calls a bug of arena is not."""
    failed: bool = False
    """Whether arena itself ended it with an error. One that was killed with its sweep is no fault of the trial."""
    judged: int = 0
    """Scores drawn of its session."""
    account_fault: str = ""
    cost_usd: float | None = 0.0
    """None: unknown."""
    session_s: float | None = None
    """How long its session took; None before it has a score."""
    score_s: float | None = None


def attempts(state: RunState) -> Attempt:
    """What became of a run."""
    run = state.run
    kinds = [event["kind"] for event in run_folder.read_events(run)]
    if state.state != "committed":
        used = ledger.read(run.ledger) if run.ledger.exists() else None
        return Attempt(run.run_id, state.state, failed="failed" in kinds, cost_usd=_cost(used))
    annotation = documents.read_yaml(run.result, Annotation)
    session, verdict = annotation.session, annotation.score.verdict
    outcome: Outcome = "counted"
    if session.agent_status == "provider_error":
        outcome = "provider_error"
    elif verdict == "judge_failed":
        outcome = "judge_failed"
    figured = leaderboard.outcome(annotation)
    fraction = annotation.score.peak_fraction if figured == "passed" and isinstance(annotation.score, Passed) else None
    judged = kinds.count("committed")
    cost_usd = _cost(session.usage)
    return Attempt(
        run.run_id,
        outcome,
        verdict,
        fraction,
        figures=figured not in NOT_COUNTED,
        judged=judged,
        account_fault=session.account_fault,
        cost_usd=cost_usd,
        session_s=session.elapsed_s,
        score_s=annotation.score.timings.total_s,
    )


def _cost(used: Usage | None) -> float | None:
    """The cost of a session; None where that of some request is unknown."""
    if used is None or (used.requests == used.failed and not used.unmetered):
        return 0.0
    return None if used.unmetered else used.cost_usd


def next_step(made: Sequence[Attempt], retry: Retry) -> Step:
    """What a trial with these attempts needs, were it alone. Scores other than `judge_failed` are never looked at."""
    outcomes = [attempt.outcome for attempt in made]
    if "counted" in outcomes:
        return "done"
    if "running" in outcomes:
        return "wait"
    if "unjudged" in outcomes:
        return "judge"
    for attempt in made:
        if attempt.outcome == "judge_failed":
            return "judge" if attempt.judged <= retry.judge_failed else "failed"
    if any(attempt.account_fault for attempt in made[-1:]):
        return "play"  # by the same command, after the person has acted
    failed = sum(attempt.outcome == "interrupted" and attempt.failed for attempt in made)
    kinds = ((outcomes.count("provider_error"), retry.provider_error), (failed, retry.interrupted))
    if any(count > allowed for count, allowed in kinds):
        return "failed"
    return "play"


def sure(made: Mapping[Trial, Sequence[Attempt]], sweep: Sweep, naive: Mapping[Problem, Naive]) -> set[PlannedCell]:
    """The cells that `stop.when` gives no further trial or attempt: a trial that the provider failed is spared too.

    This depends on scores, by the width of their intervals: docs/statistics.md says how little that moves at 0.1.
    """
    if sweep.stop.when is None:
        return set()
    cells: dict[PlannedCell, list[Attempt]] = {}
    for trial, attempts in made.items():
        cells.setdefault(trial.planned, []).extend(
            attempt for attempt in attempts if attempt.outcome == "counted" and attempt.figures
        )
    found = set()
    for planned, counted in cells.items():
        base = naive.get(problem_of(planned.cell))
        if base and len(counted) >= LEAST_TRIALS and max(widths(counted, base)) < sweep.stop.when.half_width:
            found.add(planned)
    return found


def widths(counted: Sequence[Attempt], naive: Naive) -> tuple[float, float]:
    """Half of the interval of the chance to pass, and the standard error of the gain as a part of the gain."""
    success = statistics.success(sum(attempt.fraction is not None for attempt in counted), len(counted))
    variance = gains.mean([[gains.gain(attempt.fraction, naive) for attempt in counted]]).variance
    assert success is not None and variance is not None  # with two counted trials or more
    return (success.high - success.low) / 2, math.log(2) * math.sqrt(variance)


def problem_of(cell: Cell) -> Problem:
    """The state of a problem, of which a naive kernel is known or not."""
    return cell.problem, cell.problem_version, cell.problem_digest


def by_trial(name: str, states: Iterable[RunState], planned: Sequence[Trial]) -> dict[Trial, list[RunState]]:
    """The sweep's runs by trial, oldest first.

    UsageError when a run belongs to no trial: a problem, a harness or the file of the sweep has changed since.
    """
    found: dict[Trial, list[RunState]] = {trial: [] for trial in planned}
    of_cell = {(_key(trial.planned.cell), trial.number): trial for trial in planned}
    cells = {_key(trial.planned.cell) for trial in planned}
    for state in states:
        if state.sweep is None or state.sweep.name != name or state.cell is None:
            continue
        if trial := of_cell.get((_key(state.cell), state.sweep.trial)):
            found[trial].append(state)
        elif _key(state.cell) not in cells:
            raise UsageError(_stranger(name, state, [trial.planned for trial in planned]))
    return found


def _key(cell: Cell) -> str:
    return cell.model_dump_json()


def _stranger(name: str, state: RunState, planned: Sequence[PlannedCell]) -> str:
    """Why a run of the sweep is not one of its trials."""
    assert state.cell is not None
    digests = {"problem_digest": "", "problem_version": 0, "harness_digest": ""}
    same = state.cell.model_copy(update=digests)
    for one in planned:
        if one.cell.model_copy(update=digests) != same:
            continue
        changed = f"problems/{one.cell.problem}" if one.cell.problem_digest != state.cell.problem_digest else ""
        changed = changed or f"harnesses/{one.cell.harness}.yaml or a file beside it"
        return (
            f"sweep {name}: {changed} has changed since run {state.run.run_id}, and scores before and after do not compare. "
            "Restore it, or give the sweep another name"
        )
    return (
        f"sweep {name}: run {state.run.run_id} ({state.cell.model} on {state.cell.problem}) is none of its cells any more. "
        "Put them back, or give the sweep another name"
    )
