"""Score a run's snapshots, apart from its score: when did the run reach what? No leaderboard uses the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import arena
from arena import catalog, judge
from arena.agents.snapshots import Stored, stored
from arena.errors import JudgeError, UsageError
from arena.judge.sampling import CPU, GPU
from arena.results.run_folder import RunFolder
from arena.sandboxes import Sandbox
from arena.schema import Annotation, Curve, CurvePoint, Passed, Score
from arena.submission import NoSubmission, submission_of

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
    different = first_of_each(stored(run.snapshots) if run.snapshots.is_dir() else [])
    if not different:
        raise UsageError(f"run {run.run_id} has no snapshots here that can be scored ({run.snapshots})")
    judge.preflight(hardware, gpu)
    chosen = spread(different, most)
    points, device = [], ""
    for number, snapshot in enumerate(chosen, start=1):
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
        snapshots=len(different),
        measured_at=datetime.now(UTC).replace(microsecond=0),
        arena_version=arena.__version__,
        points=tuple(points),
    )


def first_of_each(found: Sequence[Stored]) -> list[Stored]:
    """The first snapshot of each text that can be scored, oldest first. An agent often returns to an old state."""
    kept: dict[str, Stored] = {}
    for snapshot in found:
        try:
            kept.setdefault(submission_of(snapshot.path.read_bytes()).sha256, snapshot)
        except NoSubmission:
            continue
    return list(kept.values())


def spread(found: Sequence[Stored], most: int) -> list[Stored]:
    """At most `most` of them, evenly spaced, with the last one, and the first one where there is room for two."""
    if len(found) <= most:
        return list(found)
    if most == 1:
        return [found[-1]]
    return [found[round(at * (len(found) - 1) / (most - 1))] for at in range(most)]


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
