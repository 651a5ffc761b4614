"""A sweep whose sessions share the GPUs by turns, on this CPU: all is real but the device."""

import contextlib
import signal
from pathlib import Path

import psutil
import pytest
import yaml

pytest.importorskip("torch")

from command import Arena, copy, killed, needs_sandbox, until
from sweeping import planned, written

from arena import catalog
from arena.cli import board
from arena.errors import UsageError
from arena.schema import Sweep
from arena.sweep import broker, grid, scheduler
from arena.sweep.broker import Places
from arena.sweep.grid import Trial
from arena.sweep.limits import Limits

AGENT = """import subprocess, time, json
for turn in range(3):
    subprocess.run(["gpu", "sh", "-c", "echo + $(cut -d. -f1 /proc/uptime) >>turns; sleep 0.5; echo - >>turns"], check=True)
print(json.dumps({"type": "end"}))
"""


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.mark.slow
@needs_sandbox
def test_sessions_take_turns_and_the_record_says_so(arena: Arena) -> None:
    model = arena.harness("turns", "python", "-c", AGENT)
    place = {"parallel": 2, "access": "leased", "lease": "5s"}
    done = arena("sweep", written(arena, trials=2, cell={"models": [model]}, place=place))
    assert done.code == 0, done.err
    found = [yaml.safe_load(path.read_text()) for path in arena.annotations if path.suffix == ".yaml"]
    assert [one["cell"]["gpu_access"] for one in found] == ["leased"] * 2
    sessions = [one["session"] for one in found]
    assert [session["leases"] for session in sessions] == [3, 3]
    assert max(session["waited_s"] for session in sessions) > 0.2, "one waited for the other"
    assert all(session["leased_s"] >= 1.5 for session in sessions)
    prompt = (arena.runs[0] / "work" / "PROMPT.md").read_text()
    assert "a turn lasts 5 s at most" in prompt and "import gpu_turn" in (arena.runs[0] / "work" / "check.py").read_text()
    assert b"GPU by turns" in arena.board()["LEADERBOARD.md"]


@pytest.mark.slow
@needs_sandbox
def test_a_killed_session_gives_its_turn_to_the_next(arena: Arena) -> None:
    hold = 'import subprocess; subprocess.run(["gpu", "sleep", "654"])'
    model = arena.harness("holds", "python", "-c", hold)
    place = {"parallel": 2, "access": "leased", "lease": "300s"}
    file = written(arena, trials=2, cell={"models": [model], "budget": "5m"}, place=place)
    with killed(arena.start("sweep", file)) as process:
        until(lambda: len(arena.runs) == 2 and holders(process.pid), "two sessions, of which one has its turn")
        [first] = holders(process.pid)
        first.kill()
        until(lambda: holders(process.pid) - {first}, "the other session's turn")
        process.send_signal(signal.SIGKILL)
    assert not arena.json("sweep", "made", "--status")["at_work"]


def holders(sweep: int) -> set[psutil.Process]:
    """The processes of a sweep that play a session whose command runs on the GPU just now."""
    found = set()
    for child in psutil.Process(sweep).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(each.cmdline() == ["sleep", "654"] for each in child.children(recursive=True)):
                found.add(child)
    return found


def made(**given) -> Sweep:
    return Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}]} | given)


@pytest.mark.parametrize(
    ("place", "agents", "judges"),
    [
        ({"gpus": [0]}, (0,), ()),
        ({"gpus": [0, 1]}, (1,), (0,)),
        ({"gpus": [0, 1], "judge": []}, (0, 1), ()),
        ({"gpus": [0, 1, 2, 3], "judge": [3]}, (0, 1, 2), (3,)),
        ({"gpus": list(range(8))}, tuple(range(2, 8)), (0, 1)),
    ],
)
def test_two_gpus_or_more_keep_one_for_the_judge(place: dict, agents: tuple, judges: tuple) -> None:
    places = grid.places_on(made(place=place), catalog.hardware("h200"))
    assert (places.agents, places.judges, places.sessions, places.owned) == (agents, judges, len(agents), True)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"gpus": [0, 1], "judge": [2]}, "GPU 2 is none of place.gpus"),
        ({"gpus": [0], "judge": [0]}, "leave the agents a GPU"),
        ({"gpus": [0, 1], "parallel": 2}, "name"),
    ],
)
def test_impossible_places_are_refused(place: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        grid.places_on(made(place=place), catalog.hardware("h200"))


def test_scores_side_by_side_have_their_own_cores() -> None:
    """Where agents' GPUs help at the end, and where the judge has several GPUs."""
    places = Places(sessions=6, agents=tuple(range(2, 8)), judges=(0, 1))
    agents, judges = grid.cores(places, range(32))
    assert agents is not None and judges is not None and len(judges) == 4
    parts = [grid.judge_cores(places, gpu, range(32)) for gpu in range(8)]
    assert [len(part or ()) for part in parts] == [2, 2, 4, 4, 4, 4, 4, 4]
    assert sum(len(part or ()) for part in parts) == len(frozenset().union(*(part or () for part in parts))), "none has another's"
    assert not (agents & judges) and parts[0] is not None and parts[0] <= judges and parts[7] is not None and parts[7] <= agents
    assert grid.judge_cores(places, 7, range(2)) is None and grid.judge_cores(Places(2), 0, range(32)) is None


def test_no_session_starts_beside_a_score_on_agents_cores() -> None:
    state = broker.State(Places(sessions=2, agents=(1, 2), judges=(0,)))
    for party in (7, 8):
        state = broker.ask_judge(state, party)
    state, _ = broker.give(state, 0.0)
    assert state.judges == {7: 0, 8: 1}
    assert broker.try_session(state, 1)[1] is None
    assert broker.try_session(broker.gone(state, 8), 1)[1] is not None, "a score on the judge's own GPU is no reason to wait"


def test_the_board_shows_gpus_by_role_and_what_is_reserved() -> None:
    trial = Trial(planned(max_cost=2.0), 1)
    object.__setattr__(trial.planned.cell, "hardware", "h200")
    state = broker.State(Places(sessions=2, agents=(1, 2), judges=(0,), owned=False, leased=True))
    for party in (1, 2):
        state = broker.ask_lease(broker.try_session(state, party)[0], party)
    state, _ = broker.give(broker.ask_judge(state, 9), 0.0)
    doing = scheduler.Child(trial, "play", 1, 0.0, last={"phase": "agent"})
    view = scheduler.View(
        (scheduler.TrialState(trial, (), "play", doing),), Limits(made(stop={"cost_usd": 5.0})), 1.0, {"": state}, at_work=True
    )
    said = board.summary(view)
    assert "GPUs: judge, in use 0; agents, in use 1,2" in said and "spent 1.00 USD and 2.00 reserved of 5.00" in said
    record = board.record(view)
    assert record["gpus"] == {"0": "judge, in use", "1": "agents, in use", "2": "agents, in use"}
    assert (record["trials"][0]["doing"], record["reserved_usd"], record["cap_usd"]) == ("agent", 2.0, 5.0)
