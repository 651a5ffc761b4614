"""The two streams: `people` for those who read along, `data` for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from arena.schema import Errors, Passed, Refused, ShapeScore

people = Console(stderr=True, highlight=False)

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
        people.print(_shapes(score))
        people.print(
            f"verdict {verdict('passed')}   peak_fraction [bold]{score.peak_fraction:.4f}[/] (geometric mean, {score.device.ceilings} ceilings)"
        )
        if score.review_suggested:
            people.print("A shape lies above 0.95 of its ceiling: look at the kernel, and at the ceiling, before you cite it.")
    spent = score.timings
    people.print(
        f"scored in {spent.total_s:.1f} s: build {spent.build_s:.1f}, check {spent.check_s:.1f}, benchmark {spent.benchmark_s:.1f}"
    )


def _shapes(score: Passed) -> Table:
    table = Table(title=f"{score.problem} on {escape(score.device.name)}", title_justify="left")
    for header, justify in (
        ("shape", "left"),
        ("time", "right"),
        ("95 % interval", "right"),
        ("ceiling", "right"),
        ("bound", "left"),
        ("fraction", "right"),
        ("error / gate", "left"),
    ):
        table.add_column(header, justify=justify)  # type: ignore[arg-type]
    for shape in score.shapes:
        table.add_row(*_row(shape))
    return table


def _row(shape: ShapeScore) -> tuple[str, ...]:
    low_s, high_s = shape.ci95
    return (
        words(shape.shape),
        f"{shape.measured_s * 1e6:.1f} us",
        f"{low_s * 1e6:.1f} to {high_s * 1e6:.1f}",
        f"{shape.ceiling_s * 1e6:.1f} us",
        shape.bound,
        f"{shape.peak_fraction:.4f}",
        errors(shape.error),
    )


def errors(error: Errors) -> str:
    """The three errors of the gate, short."""
    return f"{error.rel_fro:.1e} / {error.row:.1e} / {error.el:.1e}"


def words(shape: Mapping[str, int]) -> str:
    """A shape on one line."""
    return " ".join(f"{name}={size}" for name, size in shape.items())
