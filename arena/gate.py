"""`arena check`: is a problem fit to be published? It accepts the honest, refuses the wrong, and repeats itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from arena import catalog, judge, paths
from arena.collect import collect
from arena.errors import DataError
from arena.judge import selftest
from arena.sandboxes import Sandbox
from arena.schema import Hardware, Passed, Problem, Record, Refused

FIRST_LINE = "# verdict: "
HONEST = ("oracle", "naive")
"""Solutions that every problem has, scored first."""
HONEST_GAP = 1.0
"""The oracle must be faster than naive by more than this factor."""
SPREAD = {"gpu": 0.01, "cpu": 0.10}
"""Largest relative difference between two scores of the oracle: a processor shared with other machines is no GPU."""


class Finding(Record):
    """One thing that was checked."""

    kind: Literal["solution", "gate", "repeat", "order"]
    name: str
    ok: bool
    got: str
    detail: str = ""


class Report(Record):
    """All findings of one problem."""

    problem: str
    hardware: str
    findings: tuple[Finding, ...]


def check(problem: Problem, hardware: Hardware, sandbox: Sandbox, report: Callable[[Finding], None] = lambda _: None) -> Report:
    """Check one problem, telling `report` each finding as it comes."""
    findings = []
    for finding in _findings(problem, hardware, sandbox):
        findings.append(finding)
        report(finding)
    return Report(problem=problem.name, hardware=hardware.name, findings=tuple(findings))


def expected(path: Path) -> str:
    """The verdict that a solution's first line names."""
    first = path.read_text().partition("\n")[0]
    if not first.startswith(FIRST_LINE):
        raise DataError(f"{path}:1: must read `{FIRST_LINE}<verdict>`, the verdict that the judge is to give")
    return first.removeprefix(FIRST_LINE).strip()


def _findings(problem: Problem, hardware: Hardware, sandbox: Sandbox) -> Iterator[Finding]:
    yield from (
        Finding(kind="gate", name=name, ok=ok, got="held" if ok else "open", detail=detail)
        for name, ok, detail in selftest.gate(problem, hardware.profile)
    )
    digest = catalog.problem_digest(problem.name)
    yield _nop(problem, hardware, digest)

    def score(path: Path) -> Passed | Refused:
        return judge.score(collect(path.parent, path.name), problem, hardware, digest=digest, sandbox=sandbox)

    solutions = catalog.solutions(paths.problems() / problem.name, hardware.profile)
    passed = {}
    for name in sorted(solutions, key=lambda name: (name not in HONEST, name)):
        path = solutions[name]
        result = score(path)
        detail = f"peak_fraction {result.peak_fraction:.4f}" if isinstance(result, Passed) else result.message
        wanted = expected(path)
        if result.verdict != wanted:
            detail = f"expected {wanted}: {detail}"
        yield Finding(kind="solution", name=name, ok=result.verdict == wanted, got=result.verdict, detail=detail)
        if isinstance(result, Passed):
            passed[name] = result
    if passed.keys() >= set(HONEST):
        yield _order(passed["oracle"], passed["naive"])
        yield _repeat(passed["oracle"], score(solutions["oracle"]), SPREAD[hardware.profile])


def _nop(problem: Problem, hardware: Hardware, digest: str) -> Finding:
    result = judge.missing("no solution.py", problem, hardware, digest)
    return Finding(kind="solution", name="nop", ok=result.verdict == "missing", got=result.verdict, detail=result.message)


def _order(oracle: Passed, naive: Passed) -> Finding:
    gap = oracle.peak_fraction / naive.peak_fraction
    return Finding(kind="order", name="oracle over naive", ok=gap > HONEST_GAP, got=f"{gap:.2f}", detail="ratio of peak_fraction")


def _repeat(first: Passed, second: Passed | Refused, limit: float) -> Finding:
    if not isinstance(second, Passed):
        return Finding(kind="repeat", name="oracle twice", ok=False, got=second.verdict, detail=second.message)
    spread = abs(second.peak_fraction / first.peak_fraction - 1)
    return Finding(
        kind="repeat", name="oracle twice", ok=spread <= limit, got=f"{spread:.2%}", detail=f"apart; at most {limit:.0%}"
    )
