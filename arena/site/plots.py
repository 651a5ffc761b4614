"""The plots of the pages: roofline, strips by name, best so far, and what a trial cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arena.schema import Curve, Device, Rate
from arena.site.axes import HEIGHT, LEFT, RIGHT, WIDTH, Axis, Plot, Point, Tick, axes, line, stairs

MOST_ROWS = 40
"""Rows of a table that its plots show; the table has all."""


class Timed(NamedTuple):
    """One timed shape with known work."""

    name: str
    label: str
    flops: float
    bytes: float
    measured_s: float
    kind: str
    href: str = ""

    @property
    def gflop_s(self) -> float:
        """Operations per second, in 1e9."""
        return self.flops / self.measured_s / 1e9


def roofline(shapes: Sequence[Timed], device: Device, rate: Rate) -> Plot | None:
    """Operations per second over operations per byte, under the device's roof. None where no operations are declared."""
    shapes = [shape for shape in shapes if shape.flops > 0]
    if not shapes or rate not in device.tflops:
        return None
    peak, bandwidth = device.tflops[rate] * 1e3, device.bandwidth_gb_s
    ridge = peak / bandwidth
    intensities = [shape.flops / shape.bytes for shape in shapes]
    x, y = axes(
        [*intensities, min(intensities) / 1.5, ridge / 2, ridge * 2],
        [*(shape.gflop_s for shape in shapes), peak],
        log=(True, True),
    )
    least = max(10.0**x.low, 10.0**y.low / bandwidth)
    roof = line([(x.at(least), y.at(least * bandwidth)), (x.at(ridge), y.at(peak)), (WIDTH - RIGHT, y.at(peak))])
    lost = [
        ("lost", line([(x.at(at), y.at(shape.gflop_s)), (x.at(at), y.at(min(peak, at * bandwidth)))]))
        for shape, at in zip(shapes, intensities, strict=True)
        if shape.kind == "agent"
    ]
    points = [
        Point(x.at(at), y.at(shape.gflop_s), shape.kind, f"{shape.name}: {shape.gflop_s:.4g} GFLOP/s", shape.label, shape.href)
        for shape, at in zip(shapes, intensities, strict=True)
    ]
    label = f"Roofline: {bandwidth:.4g} GB/s and {peak:.4g} GFLOP/s in {rate}"
    return Plot(label, "operations per byte", "GFLOP/s", x.ticks(), y.ticks(), [*lost, ("roof", roof)], points)


class Strip(NamedTuple):
    """The trials of one row, or one baseline."""

    name: str
    fractions: Sequence[tuple[float, str, str]]
    """Fraction, kind, and title of each mark."""


class Strips(NamedTuple):
    """A strip for each name, on one logarithmic scale that ends at the ceiling. Places are in percent of the width."""

    rows: Sequence[tuple[str, str, Sequence[tuple[float, Point]]]]
    """Name, its fractions in words, and the place of each mark."""
    ticks: Sequence[Tick]
    left_out: int


def strips(rows: Sequence[Strip], libraries: Sequence[Strip]) -> Strips:
    """The strips from top to bottom, as given. Libraries are never left out."""
    found = [*rows[:MOST_ROWS], *libraries]
    axis = Axis([1.0, *(value for strip in found for value, _, _ in strip.fractions)], 0.0, 100.0, log=True)
    drawn = []
    for strip in found:
        marks = [(axis.at(value), Point(0, 0, kind, title)) for value, kind, title in strip.fractions]
        drawn.append((strip.name, ", ".join(f"{value:.4f}" for value, _, _ in strip.fractions), marks))
    return Strips(drawn, axis.ticks(), max(0, len(rows) - MOST_ROWS))


def best_so_far(curves: Sequence[tuple[str, Curve]], *, height: int = HEIGHT) -> Plot | None:
    """The best score reached by each time, a line for each run. None without a scored snapshot that passed."""
    marks = [point for _, curve in curves for point in curve.points]
    passed = [point.peak_fraction for point in marks if point.peak_fraction is not None]
    if not passed:
        return None
    unit_s, unit = _unit(max(point.at_s for point in marks))
    x, y = axes([point.at_s / unit_s for point in marks], passed, log=(False, False), height=height)
    paths, points = [], []
    for number, (name, curve) in enumerate(curves):
        best, steps = 0.0, [(x.at(0), y.at(0))]
        for point in curve.points:
            at, fraction = x.at(point.at_s / unit_s), point.peak_fraction
            best = max(best, fraction or 0.0)
            steps.append((at, y.at(best)))
            value = f"{fraction:.4f}{' ±, unsteady' if point.unsteady else ''}" if fraction is not None else point.verdict
            title = f"{name} after {point.at_s:.0f} s: {value}, {point.sha256[:8]}"
            points.append(
                Point(at, y.at(fraction or 0.0), "failed" if fraction is None else "agent", title, "±" if point.unsteady else "")
            )
        paths.append((f"curve c{number % 6}", stairs(steps, WIDTH - RIGHT)))
    return Plot("Best score so far", unit, "peak_fraction", x.ticks(), y.ticks(), paths, points, height=height)


class Spent(NamedTuple):
    """One passed trial: what it took, and what it reached."""

    amount: float
    fraction: float
    name: str
    label: str
    href: str


def spending(spent: Sequence[Spent], title: str, *, log: bool) -> Plot | None:
    """Score over what a trial took. The line joins trials that no cheaper one beats. None without a trial."""
    if not spent:
        return None
    x, y = axes([one.amount for one in spent], [one.fraction for one in spent], log=(log, False))
    points = [
        Point(x.at(one.amount), y.at(one.fraction), "agent", f"{one.name}: {one.amount:.4g} {title}", one.label, one.href)
        for one in spent
    ]
    front, best = list[tuple[float, float]](), 0.0
    for one in sorted(spent, key=lambda one: (one.amount, -one.fraction)):
        if one.fraction > best:
            best = one.fraction
            front.append((x.at(one.amount), y.at(one.fraction)))
    path = stairs(front, WIDTH - RIGHT)
    return Plot(f"Score over {title}", title, "peak_fraction", x.ticks(), y.ticks(), [("front", path)], points)


def over_time(values: Sequence[tuple[float, float]], title: str) -> Plot | None:
    """A sum that grows with the session. None without a value."""
    if not values:
        return None
    unit_s, unit = _unit(max(at_s for at_s, _ in values))
    x, y = axes([at_s / unit_s for at_s, _ in values], [value for _, value in values], log=(False, False), height=200)
    path = stairs([(LEFT, y.at(0)), *((x.at(at_s / unit_s), y.at(value)) for at_s, value in values)], WIDTH - RIGHT)
    return Plot(f"{title} over time", unit, title, x.ticks(), y.ticks(), [("curve c0", path)], [], height=200)


def _unit(most_s: float) -> tuple[float, str]:
    """The seconds of an axis' unit, and its title."""
    return (60.0, "minutes since the session began") if most_s >= 120 else (1.0, "seconds since the session began")
