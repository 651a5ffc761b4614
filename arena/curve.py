"""Score a run's snapshots, apart from its score: when did the run reach what? No leaderboard uses the numbers."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import arena
from arena import catalog, judge
from arena.agents.snapshots import Stored, stored
from arena.agents.trajectory import KEPT_BYTES, check_result, doing
from arena.errors import JudgeError, UsageError
from arena.judge.sampling import CPU, GPU
from arena.results.run_folder import RunFolder
from arena.sandboxes import Sandbox
from arena.schema import Annotation, Curve, CurvePoint, Passed, Score
from arena.submission import NoSubmission, read_regular, submission_of

SAMPLING = {"gpu": replace(GPU, processes=1, counters=False), "cpu": replace(CPU, processes=1)}
"""A score's sampling with one process instead of three, and no counters: there are many snapshots."""


def measure(
    annotation: Annotation,
    workspaces: Path,
    sandbox: Sandbox,
    *,
    most: int,
    gpu: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> Curve:
    """Score at most `most` snapshots of a run. UsageError when it has none here; JudgeError when the judge fails on one."""
    cell, run = annotation.cell, RunFolder(workspaces / annotation.run_id)
    problem, hardware = catalog.problem(cell.problem), catalog.hardware(cell.hardware)
    if catalog.problem_digest(cell.problem) != cell.problem_digest:
        raise UsageError(f"run {run.run_id}: problem {cell.problem} has changed since, so its curve would be of another problem")
    states = scorable(stored(run.snapshots) if run.snapshots.is_dir() else [])
    if not states:
        raise UsageError(f"run {run.run_id} has no snapshots here that can be scored ({run.snapshots})")
    judge.preflight(hardware, gpu)
    offset_s = annotation.session.clock_offset_s or 0.0
    chosen = choose(states, [at_s + offset_s for at_s in passed_checks(run.trajectory)], most)
    points, device = [], ""
    for number, (snapshot, _) in enumerate(chosen, start=1):
        report(f"snapshot {number} of {len(chosen)}, after {snapshot.at_s:.0f} s")
        submission = submission_of(snapshot.path.read_bytes())
        score = judge.score(
            submission,
            problem,
            hardware,
            digest=cell.problem_digest,
            sandbox=sandbox,
            sampling=SAMPLING[hardware.profile],
            gpu=gpu,
        )
        if score.verdict == "judge_failed":
            raise JudgeError(f"snapshot {snapshot.path.name}: {score.message}")
        points.append(_point(snapshot, submission.sha256, score))
        device = score.device.name if isinstance(score, Passed) else device
    return Curve(
        run_id=run.run_id,
        problem=cell.problem,
        problem_digest=cell.problem_digest,
        hardware=cell.hardware,
        device=device,
        processes=SAMPLING[hardware.profile].processes,
        snapshots=len({state.sha256 for state in states}),
        measured_at=datetime.now(UTC).replace(microsecond=0),
        arena_version=arena.__version__,
        points=tuple(points),
    )


class State(NamedTuple):
    """A snapshot that can be scored."""

    snapshot: Stored
    sha256: str
    """Of its text."""


def scorable(found: Sequence[Stored]) -> list[State]:
    """The snapshots that can be scored, in their order."""
    kept = []
    for snapshot in found:
        try:
            kept.append(State(snapshot, submission_of(snapshot.path.read_bytes()).sha256))
        except NoSubmission:
            continue
    return kept


def passed_checks(trajectory: Path) -> list[float]:
    """The times, by the agent's clock, at which its own check.py said PASS. An agent can print that too: it only chooses."""
    try:
        lines = read_regular(trajectory.parent, trajectory.name, 2 * KEPT_BYTES).split(b"\n")
    except NoSubmission:
        return []
    calls, times = set[str](), list[float]()
    for line in lines:
        if b"check.py" not in line and b"PASS" not in line:
            continue
        try:
            step = json.loads(line)
            if step["kind"] == "call" and "check.py" in doing(step["tool"], step["input"]):
                calls.add(str(step["id"]))
            elif step["kind"] == "result" and str(step["id"]) in calls and check_result(str(step["output"])) == "passed":
                times.append(float(step["at_s"]))
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            continue
    return times


def choose(states: Sequence[State], passed_s: Collection[float], most: int) -> list[State]:
    """At most `most` different texts, each at its first time: the last one, then those that were there when a check passed.

    Where these are too many, and for the room that is left, evenly spaced ones. `passed_s`: by the snapshots' clock.
    """
    first: dict[str, State] = {}
    for state in states:  # an agent often returns to an old state
        first.setdefault(state.sha256, state)
    times = [state.snapshot.at_s for state in states]
    passed = {states[place - 1].sha256 for at_s in passed_s if (place := bisect_right(times, at_s))}
    kept = {states[-1].sha256}
    for group in ([sha256 for sha256 in first if sha256 in passed], list(first)):
        kept |= set(_spread([sha256 for sha256 in group if sha256 not in kept], most - len(kept)))
    return [state for sha256, state in first.items() if sha256 in kept]


def _spread(found: Sequence[str], most: int) -> Sequence[str]:
    """At most `most`, evenly spaced, with the first and the last one where there is room for two."""
    if len(found) <= most:
        return found
    return [found[round(at * (len(found) - 1) / max(1, most - 1))] for at in range(most)]


def _point(snapshot: Stored, sha256: str, score: Score) -> CurvePoint:
    passed = score if isinstance(score, Passed) else None
    return CurvePoint(
        at_s=snapshot.at_s,
        sha256=sha256,
        verdict=score.verdict,
        peak_fraction=passed.peak_fraction if passed else None,
        unsteady=passed.unsteady if passed else False,
        message=score.message,
    )
