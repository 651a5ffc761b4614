"""The board for people: the tables of LEADERBOARD.md, and an SVG plot per hardware. The same board gives the same bytes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from arena.files import text
from arena.results.board import Board, Interval, Row, Table, asked_words
from arena.results.rows import alike

TEMPLATES = Path(__file__).parent


MOST = 1000.0
"""Times anything: larger ends of intervals are printed as above it."""
WIDEST = 4096.0
"""Times the naive kernel: where the plot of gains cuts an interval off."""


class Mark(NamedTuple):
    """One number in a plot."""

    name: str
    fraction: float
    interval: Interval | None = None
    """Of an agent's median."""
    within_tolerance: bool = True
    """False for a baseline that fails the problem's correctness check."""


class Strip(NamedTuple):
    """One problem in a plot: what agents and baselines reach, on a scale from zero to the ceiling."""

    name: str
    agents: Sequence[Mark]
    baselines: Sequence[Mark]
    tried: bool = True
    """Whether an agent's trial counted."""


def page(board: Board) -> str:
    """The text of LEADERBOARD.md."""
    filters: dict[str, Callable[..., object]] = {"md": _markdown, "figure": figure, "span": span, "asked": asked_words}
    return text.render(TEMPLATES / "leaderboard.md.j2", filters=filters, board=board)


def plot(title: str, strips: Sequence[Strip]) -> str:
    """An SVG document."""
    return text.render(
        TEMPLATES / "plot.svg.j2",
        autoescape=True,
        filters={"xml": _xml, "figure": figure, "span": span},
        title=title,
        strips=strips,
    )


class Bar(NamedTuple):
    """One row in the plot of gains."""

    name: str
    value: float
    text: str
    """The value, rounded."""
    these: tuple[float, float] | None
    others: tuple[float, float] | None
    rank: str
    cut: bool
    """Whether an interval goes on beyond the right edge."""
    below: bool
    """Whether every row below is certainly worse than every row above. Not drawn where ranked rows measure different things."""


def gain_plot(table: Table) -> str | None:
    """An SVG document of gains with both intervals, on a logarithmic scale: of the rows over most problems. None without any.

    Unsealed rows are not drawn.
    """
    sealed = [row for row in table.rows if row.network != "unsealed"]
    most_problems = max((len(row.over) for row in sealed), default=0)
    shown = [(row, row.gain) for row in sealed if row.gain and len(row.over) == most_problems]
    if not shown:
        return None
    tops = [min(gain.on_these.high if gain.on_these else gain.value, WIDEST) for _, gain in shown]
    most = max(1, *(math.ceil(math.log2(max(top, gain.value))) for top, (_, gain) in zip(tops, shown, strict=True)))

    def ends(interval: Interval | None) -> tuple[float, float] | None:
        return (interval.low, min(interval.high, 2.0**most)) if interval else None

    same = len({alike(row) for row, _ in shown if row.rank}) == 1
    bars = [
        Bar(
            name=_name(row) + _differs(row, [other for other, _ in shown]),
            value=gain.value,
            text=figure(gain.value, gain.on_these),
            these=ends(gain.on_these),
            others=ends(gain.on_others),
            rank=_places(row),
            cut=any(each and each.high > 2.0**most for each in (gain.on_these, gain.on_others)),
            below=_line(row, [other for other, _ in shown[at + 1 :]]) and same,
        )
        for at, (row, gain) in enumerate(shown)
    ]
    title = f"Times faster than the naive kernel on {table.hardware}, and rank (a failure counts ×1)"
    ticks = [2.0**power for power in range(0, most + 1, max(1, most // 8))]
    filters: dict[str, Callable[..., object]] = {"xml": _xml, "log2": math.log2}
    return text.render(
        TEMPLATES / "gain.svg.j2", autoescape=True, filters=filters, title=title, bars=bars, ticks=ticks, most=most
    )


def _name(row: Row) -> str:
    return " ".join((row.harness, row.model, *asked_words(row)))


def _differs(row: Row, rows: Sequence[Row]) -> str:
    """The budget, the allowed hosts and the provider, where rows of the plot differ in them."""
    words = {
        "budget_s": f"{row.budget_s / 60:g} min",
        "without_backoff": "+ back-off" if row.without_backoff else "",
        "allowed": f"allowed {', '.join(row.allowed)}" if row.allowed else "",
        "provider": f"via {', '.join(row.provider)}" if row.provider else "",
        "unpinned": "unpinned" if row.unpinned else "",
    }
    differ = [text for field, text in words.items() if text and len({getattr(each, field) for each in rows}) > 1]
    return "".join(f" · {text}" for text in differ)


def _places(row: Row) -> str:
    if not row.rank:
        return ""
    places = str(row.rank.best) + (f" to {row.rank.worst}" if row.rank.worst > row.rank.best else "")
    return f"rank {places} of {row.rank.of}"


def _line(row: Row, later: Sequence[Row]) -> bool:
    """Whether a group ends with this row."""
    following = next((other.rank for other in later if other.rank), None)
    return bool(row.rank and following and following.group > row.rank.group)


def strips(table: Table) -> list[Strip]:
    """One strip per problem: the medians of the sealed rows, and the baselines that have a number."""
    names = dict.fromkeys([*(column.key for column in table.columns), *(reached.column for reached in table.reached)])
    agents: dict[str, list[Mark]] = defaultdict(list)
    tried = set[str]()
    for row in table.rows:
        for key, entry in row.entries.items():
            if entry.counted:
                tried.add(key)
            if entry.median is not None and row.network != "unsealed":
                agents[key].append(Mark(_name(row), entry.median, entry.interval))
    baselines: dict[str, list[Mark]] = defaultdict(list)
    for reached in table.reached:
        for line in reached.baselines.lines:
            if line.fraction is not None:
                baselines[reached.column].append(Mark(line.name, line.fraction, within_tolerance=line.verdict == "passed"))
    return [Strip(name, agents[name], baselines[name], name in tried) for name in names]


def figure(value: float, interval: Interval | None = None) -> str:
    """A number with no more digits than half of its interval's width supports; with two where there is none."""
    half = (interval.high - interval.low) / 2 if interval else 0.0
    return _rounded(value, _place(half) if half > 0 else _place(value) + 1)


def span(interval: Interval) -> str:
    """Both ends, with two digits each. Above 1000 a few trials say no more than that."""
    return "–".join(">1000" if end > MOST else _rounded(end, _place(end) + 1) for end in (interval.low, interval.high))


def _place(value: float) -> int:
    """The decimal place of the first digit: 1 for 0.3, 0 for 3, -1 for 30."""
    return -math.floor(math.log10(value)) if value > 0 else 0


def _rounded(value: float, place: int) -> str:
    """To that decimal place, but to one digit at least and three at most."""
    place = min(max(place, _place(value)), _place(value) + 2)
    return f"{round(value, place):.{max(place, 0)}f}"


def _markdown(value: object) -> str:
    """Text on one line that Markdown shows unchanged, also inside a table. Underscores within words need no escape."""
    line = re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", str(value))
    return re.sub(r"[\\`*\[\]|<>~#&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", line)


def _xml(value: str) -> str:
    """Text on one line, without the characters that XML forbids."""
    return re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", value)
