"""One attempt at one cell: workspace, session, submission, score, annotation. It reads like the data's one-way trip."""

import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import arena
from arena import annotations, catalog, documents, leaderboard, machine, paths, session, tape, workspace
from arena.collect import NoSubmission, Submission, collect
from arena.sandboxes import Sandbox
from arena.schema import Annotation, Cell, Hardware, Problem, Score, Taken

SUBMISSION_BYTES = 1 << 20
"""Largest solution.py that is taken."""


@dataclass(frozen=True)
class Attempt:
    """What is to be run."""

    chosen: catalog.Chosen
    problem: Problem
    hardware: Hardware
    budget_s: float
    sandbox_name: str
    sandbox: Sandbox
    gpu: int = 0
    """Which GPU, as CUDA counts; of no meaning on hardware `cpu`."""

    def cell(self) -> Cell:
        """The attempt's identity in the record."""
        return Cell(
            problem=self.problem.name,
            problem_version=self.problem.version,
            problem_digest=catalog.problem_digest(self.problem.name),
            harness=self.chosen.harness.name,
            harness_digest=catalog.harness_digest(self.chosen.harness.name),
            model=self.chosen.model_name,
            effort=self.chosen.model.effort,
            hardware=self.hardware.name,
            budget_s=self.budget_s,
        )


Report = Callable[[session.Progress], None]


def run(attempt: Attempt, report: Report) -> Annotation:
    """Play the session, judge what it left, write the annotation and render the leaderboard."""
    from arena import judge  # torch takes a second to import, and whoever only lists runs need not wait for it

    # Before anybody's time is spent: is the device there, the right one, and free?
    node = judge.preflight(attempt.hardware, attempt.gpu)
    cell = attempt.cell()
    tape_ = tape.tape(attempt.chosen, paths.problems() / attempt.problem.name, attempt.hardware.profile, paths.workspaces())
    with workspace.create(cell, manifest=_manifest(attempt), root=paths.workspaces()) as folder:
        profile = attempt.hardware.profile
        prompt = workspace.fill(
            folder,
            attempt.problem,
            profile,
            attempt.problem.shapes[profile],
            machine.processor(),
            problem_folder=paths.problems() / attempt.problem.name,
            kit_folder=paths.problems() / "kit",
        )
        played = session.play(
            attempt.chosen,
            folder,
            budget_s=attempt.budget_s,
            sandbox=attempt.sandbox,
            sandbox_name=attempt.sandbox_name,
            prompt=prompt,
            tape=tape_,
            gpu=node,
            report=report,
        )
        try:
            submission: Submission | None = collect(folder.work, cap_bytes=SUBMISSION_BYTES)
            reason = ""
        except NoSubmission as none:
            submission, reason = None, none.reason
        folder.event("collected", sha256=submission.sha256 if submission else None, reason=reason)
        score = _score(attempt, cell, submission, reason, folder, report)
        annotation = Annotation(
            run_id=folder.run_id,
            arena_version=arena.__version__,
            cell=cell,
            session=played,
            submission=_taken(submission),
            score=score,
        )
        annotations.write(paths.annotations(), annotation)
        workspace.commit(folder, annotation)
    render()
    return annotation


def render() -> None:
    """Rebuild `leaderboard/` from `annotations/`."""
    leaderboard.write(paths.leaderboard(), annotations.read_all(paths.annotations()))


def _score(
    attempt: Attempt, cell: Cell, submission: Submission | None, reason: str, folder: workspace.Run, report: Report
) -> Score:
    """The judge is given the submission and nothing of the run."""
    from arena import judge

    if submission is None:
        score: Score = judge.missing(reason, attempt.problem, attempt.hardware, cell.problem_digest)
    else:
        documents.write_bytes(folder.solution, submission.source)
        score = judge.score(
            submission,
            attempt.problem,
            attempt.hardware,
            digest=cell.problem_digest,
            sandbox=attempt.sandbox,
            report=lambda text: report(session.Progress("judge", text)),
            logs=folder.folder / "judge",
            gpu=attempt.gpu,
        )
    documents.write_json(folder.score, score)
    return score


def _taken(submission: Submission | None) -> Taken | None:
    if submission is None:
        return None
    return Taken(sha256=submission.sha256, bytes=len(submission.source), lines=submission.lines)


def _manifest(attempt: Attempt) -> dict[str, Any]:
    """What a run depended on, besides the cell."""
    return {
        "arena_version": arena.__version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "machine": machine.describe(),
        "sandbox": attempt.sandbox_name,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
