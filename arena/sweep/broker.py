"""Who may work, score or compute now: a pure function of what is given out and what happens.

Three things are given out. A session's turn is a place for one agent, with a GPU of its own where access is exclusive. A judge's
turn is a GPU on which nothing else runs. A lease is a GPU for one command of a session, and where there is no GPU the turn
alone. A party is one process of the sweep: when it is gone, all that it held or waited for falls in the same step.

Waves: where no GPU is the judge's alone, no session begins while a judge works or waits, and no judge begins while a session
lives. Sessions and judges alternate, and no new judge job arises while judges work, so both get their turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

Party = Hashable
KILL_S = 60.0
"""A lease that is cut has this long to end. After it its GPU is left out, until the command has ended after all."""


@dataclass(frozen=True)
class Places:
    """What there is to give out."""

    sessions: int
    """Agents at once."""
    agents: tuple[int, ...] = (0,)
    """GPUs of the agents by CUDA index. On `cpu` one place, which all sessions share."""
    judges: tuple[int, ...] = ()
    """GPUs that no agent ever opens. Empty: waves, on the GPUs of the agents."""
    owned: bool = True
    """Whether a session has a GPU to itself. False with leases, and on `cpu`."""
    lease_s: float = 120.0
    """A lease lasts this long at most."""
    leased: bool = False
    """Whether sessions take leases."""


@dataclass(frozen=True)
class Lease:
    """A GPU for one command."""

    party: Party
    until_s: float
    cut: bool = False
    """Whether its time was over and its end has been asked for."""


@dataclass(frozen=True)
class State:
    """What is given out, and who waits for what, first come first."""

    places: Places
    sessions: Mapping[Party, int] = field(default_factory=dict)
    judges: Mapping[Party, int] = field(default_factory=dict)
    judges_waiting: tuple[Party, ...] = ()
    leases: Mapping[int, Lease] = field(default_factory=dict)
    leases_waiting: tuple[Party, ...] = ()
    left_out: Mapping[int, Party] = field(default_factory=dict)
    """GPUs whose last command was cut and has not ended: GPU -> the party whose command it is."""


@dataclass(frozen=True)
class Granted:
    """The party has it now. `until_s` only of a lease."""

    party: Party
    what: str
    """session, judge or lease."""
    gpu: int
    until_s: float = 0.0


@dataclass(frozen=True)
class Cut:
    """The party's lease is over: its command must be killed now."""

    party: Party
    gpu: int


@dataclass(frozen=True)
class LeftOut:
    """A command that was cut did not end: its GPU is left out until it does."""

    party: Party
    gpu: int


Act = Granted | Cut | LeftOut


def try_session(state: State, party: Party) -> tuple[State, Granted | None]:
    """A place for this session, if there is one now. It does not wait: what may start next depends on more than places."""
    places = state.places
    if party in state.sessions or len(state.sessions) >= places.sessions:
        return state, None
    if not places.judges and (state.judges or state.judges_waiting):
        return state, None
    if set(places.agents) & set(state.judges.values()):
        return state, None  # a score is taken on a GPU of the agents, with their processors
    gpu = places.agents[0]
    if places.owned:
        taken = {*state.sessions.values(), *state.judges.values()}
        free = [each for each in places.agents if each not in taken]
        if not free:
            return state, None
        gpu = free[0]
    return replace(state, sessions={**state.sessions, party: gpu}), Granted(party, "session", gpu)


def ask_judge(state: State, party: Party) -> State:
    """Wait for a turn of the judge; asking twice changes nothing."""
    if party in state.judges or party in state.judges_waiting:
        return state
    return replace(state, judges_waiting=(*state.judges_waiting, party))


def ask_lease(state: State, party: Party) -> State:
    """Wait for a lease. One at a time for each session at work; what a party without one asks is refused."""
    holds = party in (lease.party for lease in state.leases.values()) or party in state.left_out.values()
    if state.places.owned or party not in state.sessions or holds or party in state.leases_waiting:
        return state
    return replace(state, leases_waiting=(*state.leases_waiting, party))


def leave_queue(state: State, party: Party) -> State:
    """The session no longer waits for a lease."""
    return replace(state, leases_waiting=tuple(each for each in state.leases_waiting if each != party))


def end_lease(state: State, party: Party) -> State:
    """The command of the party's lease has ended, and nothing of it runs on the GPU any more."""
    leases = {gpu: lease for gpu, lease in state.leases.items() if lease.party != party}
    return replace(state, leases=leases, left_out={gpu: by for gpu, by in state.left_out.items() if by != party})


def gone(state: State, party: Party) -> State:
    """The party has ended, however: nothing is held by the dead, and none of them waits."""
    state = leave_queue(end_lease(state, party), party)
    return replace(
        state,
        sessions={each: gpu for each, gpu in state.sessions.items() if each != party},
        judges={each: gpu for each, gpu in state.judges.items() if each != party},
        judges_waiting=tuple(each for each in state.judges_waiting if each != party),
    )


def give(state: State, now_s: float) -> tuple[State, tuple[Act, ...]]:
    """Give out what is free, and end leases whose time is over."""
    state, ended = _expire(state, now_s)
    state, judges = _give_judges(state)
    state, leases = _give_leases(state, now_s)
    return state, (*ended, *judges, *leases)


def ahead(state: State, party: Party) -> int:
    """How many sessions get a lease before this one that waits: those before it, less the GPUs that are free."""
    return state.leases_waiting.index(party) + 1 - max(0, len(_free_for_leases(state)))


def next_s(state: State) -> float | None:
    """When `give` has something to do though nothing happens: the end of the first lease."""
    ends = (lease.until_s + KILL_S * lease.cut for lease in state.leases.values())
    return min(ends, default=None)


def _expire(state: State, now_s: float) -> tuple[State, list[Act]]:
    acts: list[Act] = []
    leases, left_out = dict(state.leases), dict(state.left_out)
    for gpu, lease in state.leases.items():
        if not lease.cut and now_s >= lease.until_s:
            leases[gpu] = replace(lease, cut=True)
            acts.append(Cut(lease.party, gpu))
        if now_s >= lease.until_s + KILL_S:
            del leases[gpu]
            left_out[gpu] = lease.party
            acts.append(LeftOut(lease.party, gpu))
    return replace(state, leases=leases, left_out=left_out), acts


def _give_judges(state: State) -> tuple[State, list[Act]]:
    # While no agent is at work their GPUs are idle, and the judge may use them: the only ones in waves.
    usable = (*state.places.judges, *(() if state.sessions else state.places.agents))
    free = [gpu for gpu in usable if gpu not in state.judges.values()]
    acts: list[Act] = [Granted(party, "judge", gpu) for party, gpu in zip(state.judges_waiting, free, strict=False)]
    granted = {act.party: act.gpu for act in acts if isinstance(act, Granted)}
    waiting = tuple(party for party in state.judges_waiting if party not in granted)
    return replace(state, judges={**state.judges, **granted}, judges_waiting=waiting), acts


def _give_leases(state: State, now_s: float) -> tuple[State, list[Act]]:
    until_s = now_s + state.places.lease_s
    given = list(zip(state.leases_waiting, _free_for_leases(state), strict=False))
    leases = {**state.leases, **{gpu: Lease(party, until_s) for party, gpu in given}}
    waiting = state.leases_waiting[len(given) :]
    acts: list[Act] = [Granted(party, "lease", gpu, until_s) for party, gpu in given]
    return replace(state, leases=leases, leases_waiting=waiting), acts


def _free_for_leases(state: State) -> list[int]:
    taken = {*state.leases, *state.left_out, *state.judges.values()}
    return [gpu for gpu in state.places.agents if gpu not in taken]
