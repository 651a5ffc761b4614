"""How a score looks to a person."""

from __future__ import annotations

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.cli.output import people, safe, tell, verdict
from arena.schema import Passed, Refused, ShapeScore


def show_score(score: Passed | Refused) -> None:
    """A score for a person: the table by shape when it passed, the reason when not."""
    if isinstance(score, Refused):
        tell(f"verdict {verdict(score.verdict)}: {safe(score.message)}")
        if score.shape:
            tell(f"  on {words(score.shape)}, inputs of class {safe(score.mode)}")
    else:
        tell(f"{score.problem} on {safe(score.device.name)}, {score.device.ceilings} ceilings")
        people.print(_shapes(score))
        tell(f"verdict {verdict('passed')}, peak_fraction [bold]{score.peak_fraction:.4f}[/] (geometric mean)")
        if score.review_suggested:
            tell("A shape lies above 0.95 of its ceiling: look at the kernel, and at the ceiling, before you cite it.")
    spent = score.timings
    parts = f"build {spent.build_s:.1f}, check {spent.check_s:.1f}, benchmark {spent.benchmark_s:.1f}"
    tell(f"scored in {spent.total_s:.1f} s: {parts}")


def _shapes(score: Passed) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("shape", overflow="fold")
    for header in ("time", "95 %", "ceiling", "fraction"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    for shape in score.shapes:
        table.add_row(*_row(shape))
    return table


def _row(shape: ShapeScore) -> tuple[str, ...]:
    low_s, high_s = shape.ci95
    return (
        words(shape.shape),
        f"{shape.measured_s * 1e6:.1f} us",
        f"± {(high_s - low_s) / 2 / shape.measured_s:.1%}",
        f"{shape.ceiling_s * 1e6:.1f} us",
        f"{shape.peak_fraction:.4f}",
        shape.bound,
    )


def words(shape: Mapping[str, int]) -> str:
    """A shape on one line."""
    return safe(" ".join(f"{name}={size}" for name, size in shape.items()))
