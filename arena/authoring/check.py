"""`arena check`: find what keeps a problem from being published: a broken contract, a wrong verdict, a score that varies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from arena import catalog, judge
from arena.authoring import contract
from arena.authoring.contract import Finding
from arena.authoring.side_by_side import side_by_side
from arena.errors import DataError
from arena.files.documents import unknown
from arena.judge.evaluation import Untimed
from arena.judge.sampling import CPU, GPU, Sampling
from arena.sandboxes import Sandbox
from arena.schema import Device, Hardware, JudgeFailed, Passed, Problem, Profile, Record, Rejected, Score, Verdict
from arena.submission import NoSubmission, collect
from arena.system import tempdirs

FIRST_LINE = "# verdict: "
HONEST = ("oracle", "naive")
"""Solutions that every problem has, scored first. On a processor no other that should pass is timed."""
WRONG = "wrong_"
"""Every problem has solutions whose name starts so: a tolerance that rejects nothing has shown nothing."""
CHEAT = "cheat_"
CHECKS_AT_ONCE = {"gpu": 6, "cpu": 2}
"""How many solutions are checked side by side at most, while nothing is timed: one may import torch while the judge computes
another's reference."""
SETS_OF_A_CHECK = 12
"""The memory of a check on a GPU, in units of the largest shape's traffic. By trial with paged_attention on 85 GB: with six
checks at once solutions of torch's own operations ran out of memory, with four none did."""
SIDE_BY_SIDE = ("incorrect", "forbidden")
"""Expected verdicts that other work on the machine does not bring about, as it might a `crashed`, `cheated` or `timed_out`. Nor
does it bring about that a solution passes its checks."""
Samplings = Mapping[str, Sampling | None]
"""For each profile; None is the published sampling."""
BRIEF: Samplings = {"gpu": replace(GPU, processes=1), "cpu": replace(CPU, processes=1, min_calls=4, min_windows=3, max_windows=3)}
"""For all but the oracle's first score, naive and the cheats, which must fail against the published sampling."""
ORACLE: Samplings = {"gpu": None, "cpu": replace(CPU, processes=1)}
"""For the oracle's first score. On a processor it is held against bounds so wide that one process is enough."""
ONCE: dict[str, Any] = {"processes": 1, "min_windows": 1, "max_windows": 1, "audit_windows": 0, "kernels": False}
"""One window in one process, and no evidence."""
NAIVE: Samplings = {"gpu": replace(GPU, alone_windows=1, **ONCE), "cpu": replace(CPU, min_calls=4, empty_windows=3, **ONCE)}
"""Of naive, whose calls take longest, only a factor is needed."""
REPEATED: Samplings = {"gpu": replace(GPU, kernels=False, counters=False), "cpu": BRIEF["cpu"]}
"""For the oracle's further scores, of which the time alone is compared."""
LEAST_SPEEDUP = 3.0
"""The oracle must be faster than naive by more than this factor."""
MOST_SCORES = {"gpu": 3, "cpu": 4}
"""Scores of the oracle at most, until two in a row agree. Other work on a processor passes. On a GPU one score in eighteen lay
more than 1 % from the median (docs/measurements/judge.md)."""
MOST_SPREAD = {"gpu": 0.01, "cpu": 0.25}
"""Largest relative difference between two scores of the oracle. On a processor shared with other machines, five scores
in a row by the published sampling lay 12 % apart (docs/measurements/judge.md)."""

VERSIONS = ("arena", "torch", "python", "kernel")
"""What a report keeps of a score's environment."""

Scorer = Callable[..., Score]
"""Scores the solution at a path, with the published sampling or another. With `shared` it only checks, on a device that others
use too, and raises `Untimed` for what passes the checks. Without `hidden` it times the scored shapes on public inputs alone."""


class Report(Record):
    """All findings of one problem."""

    problem: str
    hardware: str
    findings: tuple[Finding, ...]
    version: int | None = None
    """The problem's."""
    device: Device | None = None
    """What the first solution that passed was timed on; None where none passed."""
    environment: Mapping[str, str] = {}
    """Versions of what that score was taken with."""
    seconds: float | None = None
    """How long the whole check took."""


def check_problem(
    problem: Problem,
    hardware: Hardware,
    sandbox: Sandbox,
    *,
    gpu: int = 0,
    sampling: Sampling | None = None,
    report: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Check one problem and pass each finding to `report` at once. `sampling` replaces the published one in every score."""
    judge.preflight(hardware, gpu, problem)
    digest = catalog.problem_digest(problem.name)

    def score(path: Path, own: Sampling | None = None, shared: bool = False, hidden: bool = True) -> Score:
        try:
            submission = collect(path.parent, path.name)
        except NoSubmission as absent:
            return judge.missing(absent.reason, problem, hardware, digest)
        how = partial(judge.score, sandbox=sandbox, sampling=sampling or own, gpu=gpu, shared=shared, hidden=hidden)
        result = how(submission, problem, hardware, digest=digest)
        if isinstance(result, Passed):
            passed.append(result)
        return result

    passed, findings, begin_s = list[Passed](), [], time.monotonic()
    for finding in _findings(problem, hardware, score):
        findings.append(finding)
        report(finding)
    return Report(
        problem=problem.name,
        version=problem.version,
        hardware=hardware.name,
        findings=tuple(findings),
        device=passed[0].device if passed else None,
        environment=_versions(passed[0]) if passed else {},
        seconds=round(time.monotonic() - begin_s, 1),
    )


def _versions(score: Passed) -> dict[str, str]:
    return {name: score.environment[name] for name in VERSIONS if name in score.environment}


def expected(path: Path) -> str:
    """The verdict that a solution's first line names."""
    first = path.read_bytes().partition(b"\n")[0].decode(errors="replace")
    if not first.startswith(FIRST_LINE):
        raise DataError(f"{path}:1: must read `{FIRST_LINE}<verdict>`, the verdict that the judge must give")
    word = first.removeprefix(FIRST_LINE).strip()
    if word not in get_args(Verdict):
        raise DataError(f"{path}:1: {unknown('verdict', word, get_args(Verdict))}")
    return word


def _findings(problem: Problem, hardware: Hardware, score: Scorer) -> Iterator[Finding]:
    solutions = catalog.solutions(catalog.problem_folder(problem.name), hardware.profile)
    wanted = {name: expected(path) for name, path in solutions.items()}  # first, so that a slip shows at once
    yield from contract.check(problem)
    yield from contract.check_degenerate(problem, hardware.profile)
    yield from _absent(solutions)
    yield _nop(problem, hardware, catalog.problem_digest(problem.name))
    passed = {}
    for name, result, seconds in _scored(solutions, wanted, score, hardware.profile, _checks_at_once(problem, hardware)):
        got = verdict_of(result)
        detail = f"peak_fraction {result.peak_fraction:.4f}" if isinstance(result, Passed) else message_of(result)
        if got != wanted[name]:
            detail = f"expected {wanted[name]}: {detail}"
        yield Finding(
            kind="solution",
            name=name,
            ok=got == wanted[name],
            got=got,
            detail=detail,
            expected=wanted[name],
            seconds=seconds,
            **_measured(result),
        )
        if isinstance(result, Passed):
            passed[name] = result
    if problem.imported:
        why = "not asked of an imported problem: its oracle is not written by hand"
        yield Finding(kind="order", name="oracle over naive", ok=True, got="skipped", detail=why)
    elif passed.keys() >= set(HONEST):
        yield _order(passed["oracle"], passed["naive"])
    if passed.keys() >= set(HONEST):
        begin_s = time.monotonic()
        again = partial(score, solutions["oracle"], REPEATED[hardware.profile], hidden=False)
        finding = _repeat(passed["oracle"], again, hardware.profile)
        yield finding.model_copy(update={"seconds": round(time.monotonic() - begin_s, 1)})


class Scored(NamedTuple):
    """A solution's score, or that it passed its checks, and how long that took."""

    name: str
    score: Score | Untimed
    seconds: float


def _checks_at_once(problem: Problem, hardware: Hardware) -> int:
    """How many solutions are checked side by side: as many as the GPU has memory for, by its hardware file."""
    most = CHECKS_AT_ONCE[hardware.profile]
    if hardware.memory_gb is None:  # a CPU, or a GPU of unknown size
        return most
    largest_gb = max(problem.bytes(shape) for shape in problem.shapes["gpu"]) / 1e9
    return max(1, min(most, int(hardware.memory_gb.value / (SETS_OF_A_CHECK * largest_gb))))


def _scored(
    solutions: Mapping[str, Path], wanted: Mapping[str, str], score: Scorer, profile: Profile, at_once: int
) -> Iterator[Scored]:
    """Every solution's score: oracle and naive first, and last what passed the checks that come before timing, but should not.

    A solution that should be rejected is only checked at first, which takes one worker and no clock. On a processor so are those
    that should pass. The verdict counts when it is the expected one. Else the solution is scored as any other.
    """
    names = sorted(solutions, key=lambda name: (name not in HONEST, name))
    together = [name for name in names if _together(name, wanted[name], profile)]
    left = []

    def one(name: str) -> Scored:
        sampling = None if name.startswith(CHEAT) else {"oracle": ORACLE, "naive": NAIVE}.get(name, BRIEF)[profile]
        return _timed(name, lambda: score(solutions[name], sampling))

    def checked(name: str) -> Scored | None:
        found = _timed(name, lambda: score(solutions[name], shared=True))
        return found if verdict_of(found.score) == wanted[name] else None

    for name in names:
        if name in together:
            continue
        if found := one(name) if wanted[name] == "passed" else checked(name):
            yield found
        else:
            left.append(name)
    for name, found in side_by_side(checked, together, at_once):
        if found:
            yield found
        else:
            left.append(name)
    yield from map(one, left)


def _together(name: str, wanted: str, profile: Profile) -> bool:
    """Whether this solution is only checked at first, and other checks may run beside its own.

    On a processor they would slow a cheat's threads, since workers share one core. So a cheat is alone there and has a fair try.
    """
    if profile == "gpu":
        return wanted in SIDE_BY_SIDE
    return wanted in (*SIDE_BY_SIDE, "passed") and name not in HONEST and not name.startswith(CHEAT)


def _timed(name: str, score: Callable[[], Score]) -> Scored:
    begin_s = time.monotonic()
    result: Score | Untimed
    try:
        result = score()
    except Untimed as untimed:
        result = untimed
    return Scored(name, result, round(time.monotonic() - begin_s, 1))


def verdict_of(result: Score | Untimed) -> str:
    """`passed` also for what passed its checks and was not timed."""
    return "passed" if isinstance(result, Untimed) else result.verdict


def message_of(result: Score | Untimed) -> str:
    """The verdict in words."""
    return str(result) if isinstance(result, Untimed) else result.message


def _measured(result: Score | Untimed) -> dict[str, Any]:
    """The numbers of a score, for tables."""
    if isinstance(result, Untimed):
        return {"error": result.error}
    if isinstance(result, Rejected):
        return {"error": result.error, "input_class": result.input_class}
    if isinstance(result, JudgeFailed):
        return {}
    shapes = (*result.shapes, *result.latency)
    worst = {metric: max(shape.error[metric] for shape in shapes) for metric in shapes[0].error}
    disturbed = tuple(why for shape in shapes for why in shape.disturbed)
    return {"peak_fraction": result.peak_fraction, "error": worst, "disturbed": disturbed}


def _absent(solutions: Iterable[str]) -> Iterator[Finding]:
    """Solutions that every problem has and this one lacks."""
    names = set(solutions)
    for name in HONEST:
        if name not in names:
            yield Finding(kind="solution", name=name, ok=False, got="absent", detail=f"every problem has solutions/{name}.py")
    if not any(name.startswith(WRONG) for name in names):
        detail = f"every problem has a solutions/{WRONG}<how>.py that its tolerance must reject"
        yield Finding(kind="solution", name=f"{WRONG}*", ok=False, got="absent", detail=detail)


def _nop(problem: Problem, hardware: Hardware, digest: str) -> Finding:
    """An agent that writes nothing."""
    with tempdirs.folder() as empty:
        try:
            collect(empty)
        except NoSubmission as none:
            result = judge.missing(none.reason, problem, hardware, digest)
        else:
            return Finding(
                kind="solution", name="nop", ok=False, got="taken", detail="a submission was taken from an empty folder"
            )
    return Finding(kind="solution", name="nop", ok=result.verdict == "missing", got=result.verdict, detail=result.message)


def _order(oracle: Passed, naive: Passed) -> Finding:
    speedup = oracle.peak_fraction / naive.peak_fraction
    return Finding(
        kind="order", name="oracle over naive", ok=speedup > LEAST_SPEEDUP, got=f"{speedup:.2f}", detail="ratio of peak_fraction"
    )


def _repeat(first: Passed, again: Callable[[], Score], profile: Profile) -> Finding:
    """Scores of the oracle, one after the other until two in a row agree, or there are `MOST_SCORES`."""
    scores, limit, spreads, disturbed = [first], MOST_SPREAD[profile], list[float](), list[str]()
    while len(scores) < MOST_SCORES[profile] and not (spreads and spreads[-1] <= limit):
        result = again()
        if not isinstance(result, Passed):
            return Finding(kind="repeat", name="oracle twice", ok=False, got=result.verdict, detail=result.message)
        disturbed += _measured(result)["disturbed"]
        spreads.append(abs(result.peak_fraction / scores[-1].peak_fraction - 1))
        scores.append(result)
    earlier = f"; before that {', '.join(f'{spread:.2%}' for spread in spreads[:-1])}" if spreads[:-1] else ""
    return Finding(
        kind="repeat",
        name="oracle twice",
        ok=spreads[-1] <= limit,
        got=f"{spreads[-1]:.2%}",
        detail=f"apart; at most {limit:.0%}{earlier}",
        disturbed=tuple(disturbed),
    )
