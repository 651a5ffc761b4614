"""The cells of a sweep: the product of its lists, each resolved as `arena run` would, or all refused at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arena import catalog
from arena.agents.run_spec import RunSpec
from arena.errors import Faults, UsageError
from arena.gateway.config import Caps
from arena.gateway.network import network
from arena.plan import hardware_on, plan, unscorable
from arena.results.board import asked_words
from arena.sandboxes.limits import machine_bytes
from arena.schema import Cell, Grid, Hardware, ModelChoice, Record, Sweep, SweepPlace

LEAST_BYTES = 4 << 30
"""Memory of a session, where `parallel: auto` decides how many there are."""


class PlannedSession(Record):
    """One session to play, as a process of its own is told."""

    grid: Grid
    choice: ModelChoice
    problem: str
    hardware: str
    parallel: int
    """Sessions at once on this machine."""

    def spec(self, gpu: int = 0, place: SweepPlace | None = None) -> RunSpec:
        """Resolve it. ArenaError."""
        grid, choice = self.grid, self.choice
        return plan(
            self.problem,
            choice.model,
            hardware=self.hardware,
            gpu=gpu,
            effort=choice.effort or grid.effort,
            turns=choice.turns,
            profile=choice.profile,
            budget=grid.budget,
            sandbox=grid.sandbox,
            network=network("allow" if grid.allow else "none", grid.allow),
            caps=Caps(grid.max_requests, grid.max_tokens, grid.max_cost),
            patience=grid.patience,
            providers=choice.provider,
            unpinned=choice.unpinned,
            exclude_backoff=grid.exclude_backoff,
            parallel=self.parallel,
            sweep=place,
        )


@dataclass(frozen=True)
class PlannedCell:
    """A cell of the sweep."""

    session: PlannedSession
    cell: Cell

    @property
    def label(self) -> str:
        """Its model, with what is asked of it."""
        return "@".join((self.cell.model, *asked_words(self.cell)))


@dataclass(frozen=True)
class Trial:
    """One trial of a cell."""

    planned: PlannedCell
    number: int


def hardware_of(sweep: Sweep) -> Hardware:
    """The hardware that the sweep asks for, or that is here. ArenaError."""
    return hardware_on(sweep.hardware, min(sweep.place.gpus))


def parallel_on(sweep: Sweep, hardware: Hardware) -> int:
    """Sessions at once. UsageError where the machine has no room for as many as asked."""
    asked, gpus = sweep.place.parallel, len(sweep.place.gpus)
    if hardware.profile == "gpu":
        if asked != "auto" and asked > gpus:
            raise UsageError(f"place.parallel: {asked} sessions need {asked} GPUs, one each; place.gpus names {gpus}")
        return gpus if asked == "auto" else asked
    room = machine_bytes() // LEAST_BYTES
    if asked == "auto":
        return max(1, min(len(os.sched_getaffinity(0)) // 2, room))
    if asked > max(1, room):
        raise UsageError(
            f"place.parallel: {asked} sessions need {asked * LEAST_BYTES >> 30} GiB of memory; this machine has room for {room}"
        )
    return asked


def cells(sweep: Sweep, hardware: Hardware, parallel: int) -> tuple[PlannedCell, ...]:
    """Every cell in the order of work. ArenaError with the faults of all."""
    faults, found = Faults(), list[PlannedCell]()
    for session in _sessions(sweep, hardware, parallel):
        spec = faults.collect(session.spec)
        if spec is not None:
            found.append(PlannedCell(session, spec.cell()))
    faults.raise_all()
    for at, one in enumerate(found):
        if one.cell in [other.cell for other in found[:at]]:
            raise UsageError(f"cells: {one.label} on {one.cell.problem} is there twice with the same options; leave one out")
    if sweep.stop.cost_usd:
        unbounded = sorted({one.label for one in found if one.cell.route and one.session.grid.max_cost is None})
        if unbounded:
            raise UsageError(
                f"stop.cost_usd: give max_cost to the cells of {', '.join(unbounded)}: what a session costs is not known before"
            )
    return tuple(found)


def trials(planned: Sequence[PlannedCell], count: int) -> tuple[Trial, ...]:
    """Every trial. One of each cell before the second of any: a sweep that is cut short is balanced."""
    return tuple(Trial(one, number) for number in range(1, count + 1) for one in planned)


def _sessions(sweep: Sweep, hardware: Hardware, parallel: int) -> Iterator[PlannedSession]:
    """Models innermost: neighbours ask different providers."""
    for grid in sweep.cells:
        choices = [ModelChoice(model=each) if isinstance(each, str) else each for each in grid.models]
        for problem in _problems(grid, hardware):
            for choice in choices:
                yield PlannedSession(grid=grid, choice=choice, problem=problem, hardware=hardware.name, parallel=parallel)


def _problems(grid: Grid, hardware: Hardware) -> list[str]:
    if grid.problems != "all":
        return list(grid.problems)
    return [name for name, problem in catalog.problems().items() if not unscorable(problem, hardware)]
