"""The broker under random asks, ends, deaths and times. `python tests/sweep/test_broker.py 20000` tries so many more."""

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parents[2])] * (__name__ == "__main__")

from arena.sweep import broker  # noqa: E402
from arena.sweep.broker import KILL_S, Cut, Granted, LeftOut, Places, State  # noqa: E402

PARTIES = tuple("abcde")
tried = 0
"""Cases of the property test in this process."""

layouts = st.one_of(
    st.builds(Places, sessions=st.integers(1, 6), agents=st.just((0,)), owned=st.just(False)),  # cpu, or one leased GPU
    st.builds(Places, sessions=st.integers(1, 3), agents=st.just((0, 1, 2))),  # waves on three GPUs
    st.builds(Places, sessions=st.integers(1, 2), agents=st.just((1, 2)), judges=st.just((0,))),
    st.builds(Places, sessions=st.integers(1, 7), agents=st.just((1, 2)), judges=st.just((0,)), owned=st.just(False)),
)
KINDS = (*["session"] * 4, "judge", *["lease"] * 6, *["end_lease"] * 2, "leave", "gone", *["wait"] * 3)
events = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(PARTIES), st.sampled_from((0.0, 1.0, 59.0, 61.0, 121.0))),
    min_size=20,
    max_size=60,
)


class World:
    """A broker, and what its parties have seen of it."""

    def __init__(self, places: Places) -> None:
        self.state, self.now_s = State(places), 0.0
        self.asked: dict[Any, float] = {}
        """Parties that wait for a lease -> since when."""
        self.order: list[Any] = []
        self.cut: set[Any] = set()
        self.commands: dict[int, Any] = {}
        """GPUs with a command that has not ended, whatever the broker knows of it."""

    def act(self, kind: str, party: Hashable, after_s: float) -> None:
        """Let something happen, and give out what is free then."""
        state = self.state
        if kind == "session" and party not in state.judges and party not in state.judges_waiting:
            self.state, _ = broker.try_session(state, party)
        elif kind == "judge" and party not in state.sessions:
            self.state = broker.ask_judge(state, party)
        elif kind == "lease":
            self.state = broker.ask_lease(state, party)
            if party in self.state.leases_waiting and party not in self.asked:
                self.asked[party] = self.now_s
                self.order.append(party)
        elif kind == "end_lease":
            self.end(party)
        elif kind == "leave":
            self.forget(party)
            self.state = broker.leave_queue(state, party)
        elif kind == "gone":
            self.forget(party)
            self.commands = {gpu: by for gpu, by in self.commands.items() if by != party}
            self.state = broker.gone(state, party)
            everything = (self.state.sessions, self.state.judges, self.state.judges_waiting, self.state.leases_waiting)
            assert not any(party in each for each in everything), "nothing is held by the dead"
            assert party not in [lease.party for lease in self.state.leases.values()] + list(self.state.left_out.values())
        self.now_s += after_s * (kind == "wait")
        self.give()
        self.check()

    def end(self, party: Hashable) -> None:
        self.commands = {gpu: by for gpu, by in self.commands.items() if by != party}
        self.state = broker.end_lease(self.state, party)

    def forget(self, party: Hashable) -> None:
        if party in self.asked:
            del self.asked[party]
            self.order.remove(party)

    def give(self) -> None:
        self.state, acts = broker.give(self.state, self.now_s)
        for act in acts:
            if isinstance(act, Granted) and act.what == "lease":
                assert act.until_s == self.now_s + self.state.places.lease_s
                assert act.gpu not in self.commands, "never two commands on a GPU"
                self.commands[act.gpu] = act.party
                assert self.order[0] == act.party, "first come, first served"
                self.order.pop(0)
                del self.asked[act.party]
                self.cut.discard(act.party)
            elif isinstance(act, Cut):
                assert act.party not in self.cut, "cut once"
                self.cut.add(act.party)
            elif isinstance(act, LeftOut):
                assert act.party in self.cut, "no GPU is left out before its command was cut"

    def check(self) -> None:
        state, places = self.state, self.state.places
        holders = [*state.leases, *state.left_out, *state.judges.values(), *(state.sessions.values() if places.owned else ())]
        assert len(holders) == len(set(holders)), "never two holders of a GPU"
        if places.judges:
            assert not set(places.judges) & {*state.leases, *(state.sessions.values() if places.owned else ())}
        else:
            assert not (state.sessions and state.judges), "a wave is of sessions or of judges"
        assert len(state.sessions) <= places.sessions
        assert all(lease.party in state.sessions for lease in state.leases.values())
        assert all(lease.until_s + KILL_S > self.now_s for lease in state.leases.values()), "no lease outlasts its kill"
        # No request is lost: who waits is in the queue, in order, and waits only while nothing is free.
        assert list(state.leases_waiting) == self.order
        if state.leases_waiting:
            assert not set(places.agents) - {*state.leases, *state.left_out, *state.judges.values()}
        if state.judges_waiting and (places.judges or not state.sessions):
            usable = {*places.judges, *(() if state.sessions else places.agents)}
            assert not usable - {*state.judges.values(), *state.leases, *state.left_out}

    def run_out(self) -> None:
        """All commands end at their cut, or never: each wait for a lease is over after so many leases as were before it."""
        places = self.state.places
        bound_s = (len(PARTIES) - 1) * (places.lease_s + KILL_S) + 1
        began_s = self.now_s
        while self.state.leases_waiting:
            usable = [gpu for gpu in places.agents if gpu not in self.state.left_out]
            if not usable or set(usable) <= set(self.state.judges.values()):
                break
            next_s = broker.next_s(self.state)
            if next_s is None:
                break
            self.now_s = max(self.now_s, next_s)
            self.give()
            for party in list(self.cut):  # the kill works
                self.end(party)
                self.cut.discard(party)
            self.give()
            self.check()
            assert self.now_s - began_s <= bound_s, "a wait is bounded"
        # And all sessions end, then all judges: whoever waits for the judge has a turn.
        waiting = self.state.judges_waiting
        for party in list(self.state.sessions):
            self.act("gone", party, 0)
        for _ in range(len(waiting) + len(PARTIES)):
            for party in list(self.state.judges):
                self.act("gone", party, 0)
        assert not self.state.judges_waiting
        self.state, granted = broker.try_session(self.state, "new")
        assert granted or self.state.left_out, "sessions have their turn after the judges"


def check_case(places: Places, happened: list[tuple[str, str, float]]) -> None:
    global tried
    tried += 1
    world = World(places)
    for kind, party, after_s in happened:
        world.act(kind, party, after_s)
    world.run_out()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layouts, events)
def test_the_broker_keeps_its_rules(places: Places, happened: list[tuple[str, str, float]]) -> None:
    check_case(places, happened)


def test_a_lease_is_cut_and_its_gpu_left_out_until_it_ends() -> None:
    state = State(Places(sessions=2, owned=False, lease_s=120))
    for party in "ab":
        state, granted = broker.try_session(state, party)
        assert granted
        state = broker.ask_lease(broker.ask_lease(state, party), party)
    state, acts = broker.give(state, 0)
    assert acts == (Granted("a", "lease", 0, 120),) and broker.ahead(state, "b") == 1
    assert broker.ask_lease(state, "a") == state, "one lease a session"
    assert broker.ask_lease(state, "stranger") == state
    assert broker.give(state, 119)[1] == () and broker.next_s(state) == 120
    state, acts = broker.give(state, 120)
    assert acts == (Cut("a", 0),) and broker.next_s(state) == 180
    state, acts = broker.give(state, 180)
    assert acts == (LeftOut("a", 0),) and state.leases_waiting == ("b",)
    state, acts = broker.give(broker.end_lease(state, "a"), 400)
    assert acts == (Granted("b", "lease", 0, 520),)


def test_a_death_frees_all_at_once() -> None:
    state = State(Places(sessions=2, owned=False))
    for party in "ab":
        state = broker.ask_lease(broker.try_session(state, party)[0], party)
    state, _ = broker.give(state, 0)
    state, acts = broker.give(broker.gone(state, "a"), 1)
    assert acts == (Granted("b", "lease", 0, 121),)


def test_waves_alternate_and_judges_apart_do_not_wait() -> None:
    waves, apart = State(Places(sessions=2, agents=(0, 1))), State(Places(sessions=1, agents=(1,), judges=(0,)))
    for state, judged in ((waves, False), (apart, True)):
        state, granted = broker.try_session(state, "a")
        assert granted
        state, acts = broker.give(broker.ask_judge(state, "j"), 0)
        assert bool(acts) == judged
        assert broker.try_session(state, "b")[1] is None
        state, acts = broker.give(broker.gone(state, "a"), 0)
        assert "j" in state.judges and bool(broker.try_session(state, "b")[1]) == judged
        state = broker.gone(state, "j")
        assert broker.try_session(state, "b")[1]


def test_agents_gpus_help_the_judge_when_no_agent_is_left() -> None:
    state = State(Places(sessions=1, agents=(1,), judges=(0,)))
    for party in "jk":
        state = broker.ask_judge(state, party)
    assert sorted(broker.give(state, 0)[0].judges.values()) == [0, 1]
    state, _ = broker.try_session(state, "a")
    assert sorted(broker.give(state, 0)[0].judges.values()) == [0]


if __name__ == "__main__":
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    settings(max_examples=examples, deadline=None, database=None)(given(layouts, events)(check_case))()
    print(f"{tried} cases of up to 60 events: never two holders, no lost request, every wait bounded, nothing held by the dead")
