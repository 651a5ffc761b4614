"""The cells of a sweep: the product of its lists, each resolved as `arena run` would, or all refused at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from arena import catalog
from arena.agents.run_spec import RunSpec
from arena.errors import Faults, UsageError
from arena.gateway.config import Caps
from arena.gateway.network import network
from arena.plan import hardware_on, plan, seconds, unscorable
from arena.results.board import asked_words
from arena.sandboxes.limits import machine_bytes
from arena.schema import Cell, GpuAccess, Grid, Hardware, ModelChoice, Place, Record, Sweep, SweepPlace
from arena.sweep.broker import Places

LEAST_BYTES = 4 << 30
"""Memory of a session, where `parallel: auto` decides how many there are."""
AGENTS_PER_GPU = 6
"""With leases. With 6 the simulated wait for a turn is 36 s (99 %), with 8 75 s (docs/measurements/sweeps.md)."""
GPUS_PER_JUDGE = 5
JUDGE_CORES = 2
"""Of each judge's own, at most a quarter of all."""


class PlannedSession(Record):
    """One session to play, as a process of its own is told."""

    grid: Grid
    choice: ModelChoice
    problem: str
    hardware: str
    parallel: int
    """Sandboxes at once that share this machine's memory."""
    access: GpuAccess = "exclusive"
    lease: str = "120s"

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
            network=network(grid.network or ("allow" if grid.allow else "none"), grid.allow, grid.allow_private),
            caps=Caps(grid.max_requests, grid.max_tokens, grid.max_cost),
            patience=grid.patience,
            providers=choice.provider,
            unpinned=choice.unpinned,
            exclude_backoff=grid.exclude_backoff,
            login=grid.login,
            parallel=self.parallel,
            gpu_access=self.access,
            lease=self.lease,
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


def places_on(sweep: Sweep, hardware: Hardware) -> Places:
    """What of this machine is given out. UsageError where it has no room for as many sessions as asked."""
    place, on_gpu = sweep.place, hardware.profile == "gpu"
    judges = _judges(place, on_gpu)
    agents = tuple(sorted(place.gpus - judges)) if on_gpu else (0,)
    owned = on_gpu and place.access == "exclusive"
    cores, room = len(os.sched_getaffinity(0)), machine_bytes() // LEAST_BYTES
    if place.parallel == "auto":
        most = len(agents) if owned else AGENTS_PER_GPU * len(agents) if on_gpu else cores
        asked = max(1, most if owned else min(most, cores // 2, room))
    else:
        asked = place.parallel
    if owned and asked > len(agents):
        kept = f", {len(judges)} of them for the judge" if judges else ""
        raise UsageError(
            f"place.parallel: {asked} sessions need {asked} GPUs, one each; place.gpus names {len(place.gpus)}{kept}"
        )
    if not owned and asked > max(1, room):
        raise UsageError(
            f"place.parallel: {asked} sessions need {asked * LEAST_BYTES >> 30} GiB of memory; this machine has room for {room}"
        )
    if asked > 1 and any(cells.network == "open" for cells in sweep.cells):
        raise UsageError(
            f"place.parallel: {asked} sessions with `network: open` share this machine's network, where only one can have the "
            "gateway's port: write `parallel: 1`"
        )
    return Places(asked, agents, tuple(sorted(judges)), owned, seconds(place.lease, "place.lease"), place.access == "leased")


def _judges(place: Place, on_gpu: bool) -> frozenset[int]:
    """The GPUs that only the judge uses. UsageError."""
    if not on_gpu:
        return frozenset()
    if place.judge == "auto":
        count = max(1, round(len(place.gpus) / GPUS_PER_JUDGE)) if len(place.gpus) > 1 else 0
        return frozenset(sorted(place.gpus)[:count])
    if unknown := place.judge - place.gpus:
        raise UsageError(f"place.judge: GPU {min(unknown)} is none of place.gpus ({', '.join(map(str, sorted(place.gpus)))})")
    if place.judge == place.gpus:
        raise UsageError("place.judge: leave the agents a GPU of place.gpus")
    return place.judge


def shares(places: Places) -> int:
    """Sandboxes that may be at work at once: they share the memory."""
    return places.sessions + len(places.judges) + places.leased * len(places.agents)


def cores(places: Places, here: Iterable[int] | None = None) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """The processors of the agents, and those of the judge; None where one does not work beside the other."""
    if not places.judges:
        return None, None
    every = sorted(os.sched_getaffinity(0) if here is None else here)
    kept = min(JUDGE_CORES * len(places.judges), len(every) // 4)
    return (frozenset(every[:-kept]), frozenset(every[-kept:])) if kept else (None, None)


def judge_cores(places: Places, gpu: int, here: Iterable[int] | None = None) -> frozenset[int] | None:
    """The processors of a score on that GPU, which no other score has; None where it may use all.

    A judge's own GPU has a part of the judge's. On a GPU of the agents none of them is at work, and it has a part of theirs.
    """
    agents, judges = cores(places, here)
    if agents is None or judges is None:
        return None
    of, every = (places.judges, judges) if gpu in places.judges else (places.agents, agents)
    each, at = max(1, len(every) // len(of)), of.index(gpu)
    return frozenset(sorted(every)[at * each : (at + 1) * each]) or every


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
                yield PlannedSession(
                    grid=grid,
                    choice=choice,
                    problem=problem,
                    hardware=hardware.name,
                    parallel=parallel,
                    access=sweep.place.access,
                    lease=sweep.place.lease,
                )


def _problems(grid: Grid, hardware: Hardware) -> list[str]:
    if grid.problems != "all":
        return list(grid.problems)
    return [name for name, problem in catalog.problems().items() if not unscorable(problem, hardware)]
