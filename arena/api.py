"""The functions of `import arena`: score a solution, run a cell, load problems and annotations."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from arena import catalog, judge, paths
from arena.agents.supervisor import Progress
from arena.errors import UsageError
from arena.plan import RunOptions, plan, problem_on
from arena.results import annotations
from arena.run_cell import run_cell
from arena.sandboxes.backends import backend
from arena.schema import Annotation, Problem, Score
from arena.submission import NoSubmission, Submission, collect, submission_of
from arena.system import gpu_locks


def score(
    path_or_source: Path | str | bytes,
    *,
    problem: str,
    hardware: str | None = None,
    gpu: int = 0,
    sandbox: str = "bwrap",
    report: Callable[[str], None] = lambda text: None,
) -> Score:
    """Score one solution with the judge of a run, in a sandbox. Takes half a minute or more.

    Args:
        path_or_source: a file (a Path, or a str of one line), or the source itself (bytes, or a str of several lines).
        problem: a folder under problems/.
        hardware: a name of `arena list hardware`; without it the GPU `gpu`, or `cpu` where there is none.
        gpu: index of the GPU, as CUDA counts.
        sandbox: `bwrap` or `docker`.
        report: called with what the judge is doing.

    Returns:
        `Passed` with `peak_fraction` (0 to 1 of the hardware's ceiling, the geometric mean over the shapes), each shape's seconds
        per call, and `unsteady` where they scattered; `Rejected` with a verdict and the reason; or `JudgeFailed`, which says
        nothing about the submission.

    Raises:
        ArenaError: the problem, hardware, file or sandbox is not there, or the device is not free.
    """
    asked, found = problem_on(problem, hardware, gpu)
    digest, chosen = catalog.problem_digest(asked.name), backend(sandbox)
    submission = _submission(path_or_source)
    report("looking at the machine")
    with gpu_locks.held_by("arena score", found, frozenset({gpu})):
        judge.preflight(found, gpu)
        if isinstance(submission, str):
            return judge.missing(submission, asked, found, digest)
        return judge.score(submission, asked, found, digest=digest, sandbox=chosen, report=report, gpu=gpu)


def run(
    model: str = "oracle",
    *,
    problem: str,
    report: Callable[[Progress], None] = lambda progress: None,
    **options: Unpack[RunOptions],
) -> Annotation:
    """Run one cell: the agent works in the sandbox for its budget, then the judge scores its submission.

    The run folder lies under `workspaces/`, the annotation under `annotations/` of $ARENA_HOME, the checkout, or the current
    directory.

    Args:
        model: a model of `arena list models`, `harness/model`, or `harness/route/id`; `oracle` needs no key.
        problem: a folder under problems/.
        report: called with the progress, about four times a second.
        options: `hardware`, `budget`, `effort`, `caps` and more; `arena.plan.RunOptions` lists them.

    Raises:
        ArenaError: something that the run needs is missing, every fault at once; or the sandbox or the judge's device failed.
    """
    spec = plan(problem, model, **options)
    with gpu_locks.held_by("arena run", spec.hardware, frozenset({spec.gpu})):
        return run_cell(spec, report)


def load_problem(name: str) -> Problem:
    """The public facts of a problem: shapes (names to sizes, in elements), tensors, tolerances, work. ArenaError."""
    return catalog.problem(name)


def load_annotations(folder: Path | None = None) -> list[Annotation]:
    """All annotations of `folder`, by default arena's own, in the order of their run ids. ArenaError for a broken file."""
    return annotations.read_all(folder or paths.annotations())


def _submission(path_or_source: Path | str | bytes) -> Submission | str:
    """The submission, or why there is none."""
    try:
        if isinstance(path_or_source, bytes):
            return submission_of(path_or_source)
        if isinstance(path_or_source, str) and "\n" in path_or_source:
            return submission_of(path_or_source.encode())
        path = Path(path_or_source)
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file")
        return collect(path.parent.resolve(), path.name)
    except NoSubmission as none:
        return none.reason
