"""`arena check`: find what keeps a problem from being published: a broken contract, a wrong verdict, a score that varies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, get_args

from arena import catalog, judge
from arena.authoring import contract
from arena.authoring.contract import Finding
from arena.errors import DataError
from arena.files.documents import unknown
from arena.judge.sampling import CPU, GPU, Sampling
from arena.sandboxes import Sandbox
from arena.schema import Hardware, JudgeFailed, Passed, Problem, Profile, Record, Rejected, Score, Verdict
from arena.submission import NoSubmission, collect
from arena.system import tempdirs

FIRST_LINE = "# verdict: "
HONEST = ("oracle", "naive")
"""Solutions that every problem has, scored first."""
WRONG = "wrong_"
"""Every problem has solutions whose name starts so: a tolerance that rejects nothing has shown nothing."""
CHEAT = "cheat_"
PARALLEL = {"gpu": 4, "cpu": 2}
"""Wrong solutions that are scored side by side. The judge rejects them for their answers, before it reads a clock: one may
import torch while the judge computes another's reference. Four of any problem fit into the memory of an H200."""
BRIEF = {"gpu": replace(GPU, processes=1), "cpu": replace(CPU, processes=1, min_calls=4, min_windows=3, max_windows=3)}
"""For all but the oracle and the cheats. The oracle's speed counts, and cheats must fail against the published sampling. Of naive
only a factor is needed, and with the published sampling it took up to 90 s on a processor."""
REPEATED = {"gpu": replace(GPU, counters=False), "cpu": CPU}
"""For the oracle's further scores: the published sampling, without the evidence that is read after the timing."""
LEAST_SPEEDUP = 3.0
"""The oracle must be faster than naive by more than this factor."""
MOST_SCORES = {"gpu": 2, "cpu": 4}
"""Scores of the oracle at most, until two in a row agree. Other work on a processor passes; a GPU has no such excuse."""
MOST_SPREAD = {"gpu": 0.01, "cpu": 0.25}
"""Largest relative difference between two scores of the oracle. On a processor shared with other machines, five scores
in a row lay 12 % apart (docs/measurements/judge.md)."""

Scorer = Callable[..., Score]
"""Scores the solution at a path, with the published sampling or another, on a GPU of its own or a shared one."""


class Report(Record):
    """All findings of one problem."""

    problem: str
    hardware: str
    findings: tuple[Finding, ...]


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
    judge.preflight(hardware, gpu)
    digest = catalog.problem_digest(problem.name)

    def score(path: Path, own: Sampling | None = None, shared: bool = False) -> Score:
        try:
            submission = collect(path.parent, path.name)
        except NoSubmission as absent:
            return judge.missing(absent.reason, problem, hardware, digest)
        used = sampling or own
        return judge.score(submission, problem, hardware, digest=digest, sandbox=sandbox, sampling=used, gpu=gpu, shared=shared)

    findings = []
    for finding in _findings(problem, hardware, score):
        findings.append(finding)
        report(finding)
    return Report(problem=problem.name, hardware=hardware.name, findings=tuple(findings))


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
    for name, result in _scored(solutions, wanted, score, hardware.profile):
        detail = f"peak_fraction {result.peak_fraction:.4f}" if isinstance(result, Passed) else result.message
        if result.verdict != wanted[name]:
            detail = f"expected {wanted[name]}: {detail}"
        yield Finding(
            kind="solution", name=name, ok=result.verdict == wanted[name], got=result.verdict, detail=detail, **_measured(result)
        )
        if isinstance(result, Passed):
            passed[name] = result
    if problem.imported:
        why = "not asked of an imported problem: its oracle is not written by hand"
        yield Finding(kind="order", name="oracle over naive", ok=True, got="skipped", detail=why)
    elif passed.keys() >= set(HONEST):
        yield _order(passed["oracle"], passed["naive"])
        yield _repeat(passed["oracle"], lambda: score(solutions["oracle"], REPEATED[hardware.profile]), hardware.profile)


def _scored(
    solutions: Mapping[str, Path], wanted: Mapping[str, str], score: Scorer, profile: Profile
) -> Iterator[tuple[str, Score]]:
    """Every solution's score: the honest ones first, and those whose time does not matter last."""
    names = sorted(solutions, key=lambda name: (name not in HONEST, name))
    untimed = [name for name in names if name.startswith(WRONG) and wanted[name] != "passed"]

    def one(name: str) -> Score:
        published = name == "oracle" or name.startswith(CHEAT)
        brief = replace(BRIEF[profile], counters=name != "naive")  # naive has many kernels, and their counters show nothing
        return score(solutions[name], None if published else brief, name in untimed)

    for name in names:
        if name not in untimed:
            yield name, one(name)
    for first in range(0, len(untimed), PARALLEL[profile]):
        some = untimed[first : first + PARALLEL[profile]]
        yield from zip(some, _in_parallel(one, some), strict=True)


def _in_parallel(score: Callable[[str], Score], names: list[str]) -> Iterator[Score]:
    """Scores taken side by side. After Ctrl-C arena does not wait for the threads, and their sandboxes end with it."""
    if len(names) == 1:
        yield score(names[0])
        return
    results = [Future[Score]() for _ in names]

    def work(name: str, result: Future[Score]) -> None:
        try:
            result.set_result(score(name))
        except BaseException as error:
            result.set_exception(error)

    for pair in zip(names, results, strict=True):
        Thread(target=work, args=pair, daemon=True).start()
    for result in results:
        yield result.result()


def _measured(result: Score) -> dict[str, Any]:
    """The numbers of a score, for tables."""
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
