"""The two streams: `people` for those who read along, `data` for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from arena.schema import Passed, Refused, ShapeScore

people = Console(stderr=True, highlight=False)
if not people.is_terminal:
    people = Console(stderr=True, highlight=False, width=100)  # a log has no width of its own

COLOURS = {"passed": "green", "incorrect": "red", "forbidden": "red", "cheated": "bold red", "crashed": "red", "timed_out": "red"}


def data(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document to stdout."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    print(json.dumps(plain, indent=2, ensure_ascii=False))


def verdict(word: str) -> str:
    """A verdict in its colour."""
    return f"[{COLOURS.get(word, 'yellow')}]{word}[/]"


def show_score(score: Passed | Refused) -> None:
    """A score for a person: the table by shape when it passed, the reason when not."""
    if isinstance(score, Refused):
        people.print(f"verdict {verdict(score.verdict)}: {escape(score.message)}", soft_wrap=True)
        if score.shape:
            people.print(f"  on {words(score.shape)}, inputs of class {score.mode!r}", soft_wrap=True)
    else:
        where = f"{score.problem} on {escape(score.device.name)}, {score.device.ceilings} ceilings"
        people.print(where, _shapes(score), soft_wrap=True)
        people.print(f"verdict {verdict('passed')}, peak_fraction [bold]{score.peak_fraction:.4f}[/] (geometric mean)")
        if score.review_suggested:
            people.print("A shape lies above 0.95 of its ceiling: look at the kernel, and at the ceiling, before you cite it.")
    spent = score.timings
    parts = f"build {spent.build_s:.1f}, check {spent.check_s:.1f}, benchmark {spent.benchmark_s:.1f}"
    people.print(f"scored in {spent.total_s:.1f} s: {parts}")


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
    return " ".join(f"{name}={size}" for name, size in shape.items())
