"""`arena baseline`: the speed of libraries at a problem, and of its own naive and oracle. Shown beside scores, never scored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import arena
from arena import catalog, judge
from arena.errors import DataError, UsageError
from arena.judge.sampling import CPU, GPU, Sampling
from arena.results import baselines
from arena.sandboxes import Sandbox
from arena.schema import BaselineLine, Baselines, BaselineShape, Device, Hardware, Passed, Problem, Profile, Score
from arena.submission import NoSubmission, collect

TITLE = "# baseline: "
NEEDS = "# needs: "
ALWAYS = ("torch", "triton")
"""Packages whose versions every record names."""
SAMPLING = {"gpu": replace(GPU, processes=1, kernels=False, counters=False, build_limit_s=300.0, total_limit_s=600.0), "cpu": CPU}
"""A score's sampling, less what only a score needs: on a GPU one process instead of three, and no evidence. A line that
compiles anew for most inputs is `timed_out`, rather than measured for an hour."""
SPEED_ONLY = ("incorrect", "crashed")
"""Verdicts after which a line is timed again without a tolerance: a library may be less exact, or fail on a hidden shape."""


REFERENCES = {"naive": "the problem's plain solution", "oracle": "the problem's best stored solution"}
"""Solutions of a problem that are stored beside its baselines, under the problem's own rules. Gains are measured from naive."""


class Line(NamedTuple):
    """One baseline of a problem: a file like a submission that may use what the problem forbids; or one of its solutions."""

    name: str
    title: str
    needs: tuple[str, ...]
    """Packages beside torch, by the names under which they are imported."""
    path: Path
    reference: bool = False


def lines(folder: Path, profile: Profile) -> tuple[Line, ...]:
    """A problem's baselines for one profile, in the order of their names; DataError where a first line gives no title."""
    found = catalog.baselines(folder, profile)
    for name in REFERENCES.keys() & found.keys():
        raise DataError(f"{found[name]}: a baseline may not be called {name}: that is the problem's solution of that name")
    return tuple(_line(name, path) for name, path in sorted(found.items()))


def references(folder: Path, profile: Profile) -> tuple[Line, ...]:
    """The problem's naive and its oracle."""
    known = catalog.solutions(folder, profile)
    return tuple(Line(name, title, (), known[name], True) for name, title in REFERENCES.items() if name in known)


def chosen(problem: Problem, hardware: Hardware, only: Collection[str] = ()) -> tuple[Line, ...]:
    """The problem's baselines and references on that hardware, or those of these names; UsageError where a name is unknown."""
    home = catalog.problem_folder(problem.name)
    known = (*lines(home, hardware.profile), *references(home, hardware.profile))
    if unknown := sorted({*only} - {line.name for line in known}):
        listed = ", ".join(line.name for line in known)
        raise UsageError(f"{problem.name} has no line {unknown[0]!r} on {hardware.name} (known: {listed})")
    return tuple(line for line in known if not only or line.name in only)


def versions(measured: Collection[Line]) -> dict[str, str]:
    """The versions of torch, triton and what these lines need, as far as they are installed."""
    needed = {name for line in measured for name in line.needs}
    return baselines.versions((*ALWAYS, *sorted(needed - {*ALWAYS})))


def measure(
    problem: Problem,
    hardware: Hardware,
    sandbox: Sandbox,
    *,
    gpu: int = 0,
    sampling: Sampling | None = None,
    only: Collection[str] = (),
    report: Callable[[BaselineLine], None] = lambda _: None,
) -> Baselines:
    """Measure every baseline and reference of one problem, and pass each line to `report` at once.

    `sampling` replaces `SAMPLING`. `only` names the lines to measure, as in `chosen`.
    """
    known = chosen(problem, hardware, only)
    judge.preflight(hardware, gpu)
    digest = catalog.problem_digest(problem.name)
    sampling = sampling or SAMPLING[hardware.profile]

    def score(line: Line, eased: Problem, hidden: bool) -> Score:
        try:
            submission = collect(line.path.parent, line.path.name)
        except NoSubmission as absent:
            return judge.missing(absent.reason, eased, hardware, digest)
        packages = tuple(owner for name in line.needs for owner in packages_distributions()[name])
        how = partial(judge.score, sandbox=sandbox, sampling=sampling, gpu=gpu, hidden=hidden, packages=packages)
        return how(submission, eased, hardware, digest=digest)

    found, device = [], None
    for line in known:
        measured, on = _measured(line, problem, score)
        found.append(measured)
        device = device or on
        report(measured)
    return Baselines(
        problem=problem.name,
        problem_version=problem.version,
        problem_digest=digest,
        hardware=hardware.name,
        device=device,
        measured_at=datetime.now(UTC).replace(microsecond=0),
        arena_version=arena.__version__,
        versions=versions(known),
        lines=tuple(found),
    )


def _line(name: str, path: Path) -> Line:
    first, second = [*path.read_bytes().decode(errors="replace").split("\n", 2), ""][:2]
    title = first.removeprefix(TITLE).strip()
    if not first.startswith(TITLE) or not title:
        raise DataError(f"{path}:1: must read `{TITLE}<title>`, a few words on what is measured")
    if not second.startswith(NEEDS):
        return Line(name, title, (), path)
    needs = tuple(word.strip() for word in second.removeprefix(NEEDS).split(","))
    if wrong := [word for word in needs if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)]:
        raise DataError(f"{path}:2: {wrong[0]!r} is not a package name as Python imports it (`{NEEDS}a, b`)")
    return Line(name, title, needs, path)


def without_rules(problem: Problem) -> Problem:
    """The problem with nothing forbidden."""
    return problem.model_copy(update={"forbidden": (), "forbidden_kernels": (), "absent_libraries": ()})


def without_tolerance(problem: Problem) -> Problem:
    """The problem with nothing forbidden and a tolerance that every number is within."""
    return without_rules(problem).model_copy(update={"tolerance": dict.fromkeys(problem.tolerance, math.inf)})


def _measured(line: Line, problem: Problem, score: Callable[[Line, Problem, bool], Score]) -> tuple[BaselineLine, Device | None]:
    """The line, and the device that it was measured on; None where it was not measured."""
    if missing := [name for name in line.needs if name not in packages_distributions()]:
        message = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        return BaselineLine(name=line.name, title=line.title, verdict=None, message=message), None
    first = score(line, problem if line.reference else without_rules(problem), True)
    again = first.verdict in SPEED_ONLY and not line.reference
    result = score(line, without_tolerance(problem), False) if again else first
    message = " ".join(dict.fromkeys(filter(None, (first.message, result.message))))
    if not isinstance(result, Passed):
        failed = BaselineLine(name=line.name, title=line.title, verdict=result.verdict, message=message, reference=line.reference)
        return failed, None
    errors = [shape.error for shape in result.shapes]
    measured = BaselineLine(
        name=line.name,
        title=line.title,
        verdict=first.verdict,
        fraction=result.peak_fraction,
        message=message,
        shapes=tuple(
            BaselineShape(
                shape=shape.shape,
                fraction=shape.peak_fraction,
                ceiling_s=shape.ceiling_s,
                flops=shape.flops,
                bytes=shape.bytes,
                measured_s=shape.measured_s,
                launch_mode=shape.launch_mode,
                error=shape.error,
            )
            for shape in result.shapes
        ),
        error={metric: max(error[metric] for error in errors) for metric in errors[0]},
        reference=line.reference,
    )
    return measured, result.device
