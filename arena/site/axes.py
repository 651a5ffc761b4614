"""Axes and plots as plain records in pixels, which the templates draw as SVG. The same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 82, 26, 14, 46


class Tick(NamedTuple):
    """A place on an axis."""

    at: float
    text: str


class Point(NamedTuple):
    """One mark in a plot."""

    x: float
    y: float
    kind: str
    """Its class in the style sheet."""
    title: str
    """What a reader sees at the mark, and a screen reader says."""
    label: str = ""
    """Beside the mark."""
    href: str = ""


class Plot(NamedTuple):
    """A plot with two axes."""

    label: str
    x_title: str
    y_title: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    paths: Sequence[tuple[str, str]]
    """Class and SVG path of each line."""
    points: Sequence[Point]
    width: int = WIDTH
    height: int = HEIGHT


class Axis:
    """Values to pixels between `start` and `end`, on a logarithmic scale of whole decades or a linear one from zero."""

    def __init__(self, values: Iterable[float], start: float, end: float, *, log: bool = False) -> None:
        found = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        self._start, self._end, self._log = start, end, log
        if log:
            self.low, self.high = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
            self.high += self.low == self.high
        else:
            self._step = _round_step(max(found))
            self.low, self.high = 0, max(1, math.ceil(max(found) / self._step - 1e-9))

    def at(self, value: float) -> float:
        """The pixel of a value; one outside the axis lies at its end."""
        place = math.log10(value) if self._log and value > 0 else self.low if self._log else value / self._step
        share = (min(max(place, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[Tick]:
        """The decades, with their halves where there are few; or round steps."""
        if not self._log:
            return [Tick(self.at(n * self._step), f"{n * self._step:g}") for n in range(self.high + 1)]
        every = math.ceil((self.high - self.low) / 8)
        factors = (1, 2, 5) if self.high - self.low <= 2 else (1,)
        values = [factor * 10.0**power for power in range(self.low, self.high + 1, every) for factor in factors]
        return [Tick(self.at(value), _short(value)) for value in values if value <= 10.0**self.high * 1.001]


def axes(
    xs: Iterable[float], ys: Iterable[float], *, log: tuple[bool, bool], width: int = WIDTH, height: int = HEIGHT
) -> tuple[Axis, Axis]:
    """The two axes of a plot."""
    return Axis(xs, LEFT, width - RIGHT, log=log[0]), Axis(ys, height - BOTTOM, TOP, log=log[1])


def line(points: Iterable[tuple[float, float]]) -> str:
    """An SVG path through pixels."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def stairs(points: Sequence[tuple[float, float]], end: float) -> str:
    """An SVG path that keeps each height until the next point, up to the pixel `end`."""
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    return path + "".join(f"H{x:g}V{y:g}" for x, y in points[1:]) + f"H{end:g}"


def _round_step(most: float) -> float:
    """A round number of which four to eight make up `most`."""
    raw = (most or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)


def _short(value: float) -> str:
    return f"{value:g}" if 1e-4 <= value < 1e5 else f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
