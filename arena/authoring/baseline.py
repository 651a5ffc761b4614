"""`arena baseline`: what libraries reach at a problem, by the judge's own method of timing. Plotted and never scored."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import arena
from arena import catalog, judge, paths
from arena.errors import DataError
from arena.judge.sampling import CPU, GPU, Sampling
from arena.results import baselines
from arena.sandboxes import Sandbox
from arena.schema import BaselineLine, Baselines, BaselineShape, Device, Hardware, Passed, Problem, Profile, Score
from arena.submission import NoSubmission, collect

TITLE = "# baseline: "
NEEDS = "# needs: "
ALWAYS = ("torch", "triton")
"""Packages whose versions every record names."""
EFFORT = {"gpu": replace(GPU, processes=1, counters=False, build_limit_s=300.0, total_limit_s=600.0), "cpu": CPU}
"""A score's plan, less what only a score needs: on a GPU it takes one process for three, and nobody reads counters. Nor does
anybody wait an hour for a line that compiles anew for most inputs: it is `timed_out`."""
STILL_A_SPEED = ("incorrect", "crashed")
"""Verdicts after which a line is timed once more without the gate: a library may be less exact, or refuse a hidden shape."""


class Line(NamedTuple):
    """One baseline of a problem: a file like a submission, which may use what the problem forbids."""

    name: str
    title: str
    needs: tuple[str, ...]
    """Packages beside torch, by the names under which they are imported."""
    path: Path

    def missing(self) -> tuple[str, ...]:
        """Those that are not installed."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


def lines(folder: Path, profile: Profile) -> tuple[Line, ...]:
    """A problem's baselines for one profile, in the order of their names; DataError where a first line gives no title."""
    return tuple(_line(name, path) for name, path in sorted(catalog.baselines(folder, profile).items()))


def measure(
    problem: Problem,
    hardware: Hardware,
    sandbox: Sandbox,
    *,
    gpu: int = 0,
    plan: Sampling | None = None,
    report: Callable[[BaselineLine], None] = lambda _: None,
) -> Baselines:
    """Measure every baseline of one problem, telling `report` each line as it comes. `plan` replaces `EFFORT`."""
    judge.preflight(hardware, gpu)
    digest = catalog.problem_digest(problem.name)
    known, effort = lines(paths.problems() / problem.name, hardware.profile), plan or EFFORT[hardware.profile]

    def score(line: Line, asked: Problem, hidden: bool) -> Score:
        try:
            submission = collect(line.path.parent, line.path.name)
        except NoSubmission as none:
            return judge.missing(none.reason, asked, hardware, digest)
        return judge.score(submission, asked, hardware, digest=digest, sandbox=sandbox, sampling=effort, gpu=gpu, hidden=hidden)

    found, device = [], None
    for line in known:
        one, where = _measured(line, problem, score)
        found.append(one)
        device = device or where
        report(one)
    needed = {name for line in known for name in line.needs}
    return Baselines(
        problem=problem.name,
        problem_version=problem.version,
        problem_digest=digest,
        hardware=hardware.name,
        device=device,
        measured_at=datetime.now(UTC).replace(microsecond=0),
        arena_version=arena.__version__,
        versions=baselines.versions((*ALWAYS, *sorted(needed - {*ALWAYS}))),
        lines=tuple(found),
    )


def _line(name: str, path: Path) -> Line:
    first, second = [*path.read_bytes().decode(errors="replace").split("\n", 2), ""][:2]
    title = first.removeprefix(TITLE).strip()
    if not first.startswith(TITLE) or not title:
        raise DataError(f"{path}:1: must read `{TITLE}<title>`, what is measured in a few words")
    if not second.startswith(NEEDS):
        return Line(name, title, (), path)
    needs = tuple(word.strip() for word in second.removeprefix(NEEDS).split(","))
    if wrong := [word for word in needs if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)]:
        raise DataError(f"{path}:2: {wrong[0]!r} is no name of a package as Python imports it (`{NEEDS}a, b`)")
    return Line(name, title, needs, path)


def allowed(problem: Problem) -> Problem:
    """The problem with nothing forbidden."""
    return problem.model_copy(update={"forbidden": (), "forbidden_kernels": ()})


def ungated(problem: Problem) -> Problem:
    """The same with a gate that every number passes."""
    return allowed(problem).model_copy(update={"tolerance": dict.fromkeys(problem.tolerance, math.inf)})


def _measured(line: Line, problem: Problem, score: Callable[[Line, Problem, bool], Score]) -> tuple[BaselineLine, Device | None]:
    """The line with the device that it was measured on, None where it was not."""
    if missing := line.missing():
        said = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        return BaselineLine(name=line.name, title=line.title, verdict=None, message=said), None
    first = score(line, allowed(problem), True)
    result = first if first.verdict not in STILL_A_SPEED else score(line, ungated(problem), False)
    told = " ".join(dict.fromkeys(filter(None, (first.message, result.message))))
    if not isinstance(result, Passed):
        return BaselineLine(name=line.name, title=line.title, verdict=result.verdict, message=told), None
    errors = [shape.error for shape in result.shapes]
    one = BaselineLine(
        name=line.name,
        title=line.title,
        verdict=first.verdict,
        fraction=result.peak_fraction,
        message=told,
        shapes=tuple(
            BaselineShape(
                shape=shape.shape,
                fraction=shape.peak_fraction,
                ceiling_s=shape.ceiling_s,
                measured_s=shape.measured_s,
                launch_mode=shape.launch_mode,
                error=shape.error,
            )
            for shape in result.shapes
        ),
        error={metric: max(error[metric] for error in errors) for metric in errors[0]},
    )
    return one, result.device
