"""Machines that are lost, that cannot be used, or that fill the head's disk, by fakes of what Ray and its actors answer."""

import errno
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sweeping import planned

from arena import catalog, paths
from arena.cli.sweep import _hardware_on_ray
from arena.errors import DataError, UsageError
from arena.results import annotations as records
from arena.schema import Grid, Place, Sweep
from arena.sweep import grid, transfer
from arena.sweep.broker import Places
from arena.sweep.cluster import OPEN_S, REFUSED_S, Cluster, Machine
from arena.sweep.grid import Trial
from arena.sweep.node import Ended, Node, Said
from arena.sweep.progress import Attempt
from arena.sweep.remote import Answer, Opened
from arena.sweep.scheduler import Scheduler

SWEEP = Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}], "retry": {"interrupted": 2}})
ONE, TWO = Trial(planned(route=None), 1), Trial(planned(route=None), 2)


class Fake:
    """Machines (node.py) that do what a test says."""

    def __init__(self, **there: Places) -> None:
        self.there: dict[str, Places] = there
        self.started: list[tuple[str, int, Mapping[str, Any]]] = []
        self.next: list[Callable[[], list[Said | Ended]]] = []

    def places(self) -> Mapping[str, Places]:
        return dict(self.there)

    def start(self, machine: str, number: int, order: Mapping[str, Any]) -> None:
        assert machine in self.there, f"{machine} is lost"
        self.started.append((machine, number, order))

    def tell(self, number: int, line: Mapping[str, object]) -> None:
        pass

    def poll(self, limit_s: float) -> list[Said | Ended]:
        return self.next.pop(0)() if self.next else []

    def kill(self) -> None:
        pass


def at_work(machines: Fake, folder: Path, said: list[str], *trials: Trial) -> Scheduler:
    work = Scheduler(SWEEP, trials, machines, folder, lambda text, _: said.append(text) if text else None, {})
    work._survey = lambda: None  # type: ignore[method-assign]
    work._made = {trial: [] for trial in trials}
    return work


def lose(machines: Fake, name: str, number: int) -> Callable[[], list[Said | Ended]]:
    def act() -> list[Said | Ended]:
        del machines.there[name]
        return [Ended(number, 1, f"{name} is lost")]

    return act


def test_a_lost_machine_gets_no_score(tmp_path: Path) -> None:
    """In waves a score waits for the session beside it: the loss of both ends the session, and would give the score its turn."""
    machines, said = Fake(one=Places(2, owned=False)), list[str]()
    work = at_work(machines, tmp_path, said, ONE, TWO)
    work._start()
    assert [number for _, number, _ in machines.started] == [1, 2]
    work._made[TWO] = [Attempt("run_b", "unjudged")]
    machines.next = [lambda: [Said(2, {"run": "run_b"}), Ended(2, 0)]]
    work._wait(0.1)
    work._start()
    assert work._brokers["one"].judges_waiting
    machines.next = [lose(machines, "one", 1)]
    work._wait(0.1)
    assert len(machines.started) == 2 and not work._at_work
    machines.there["other"] = Places(2, owned=False)
    work._look_for_machines()
    work._start()
    assert [(machine, order["judge"]) for machine, _, order in machines.started[2:]] == [("other", "run_b")]


def test_a_trial_that_loses_its_machines_fails(tmp_path: Path) -> None:
    """The attack: a session that takes its machine down each time. It leaves no folder and no cost here."""
    machines, said = Fake(), list[str]()
    work = at_work(machines, tmp_path, said, ONE)
    for number in range(1, SWEEP.retry.interrupted + 2):
        machines.there["one"] = Places(1)
        work._look_for_machines()
        assert work.view().trials[0].step == "play"
        work._start()
        machines.next = [lose(machines, "one", number)]
        work._wait(0.1)
    assert work.view().trials[0].step == "failed"
    assert [text.rpartition("; ")[2] for text in said if "is lost" in text] == ["it is given out again"] * 2 + [
        "and so were too many before it"
    ]


def test_a_full_disk_of_the_head_is_said_once(tmp_path: Path) -> None:
    machines, said = Fake(one=Places(2, owned=False)), list[str]()
    work = at_work(machines, tmp_path, said, ONE)
    work._start()

    def full() -> list[Said | Ended]:
        raise OSError(errno.ENOSPC, "No space left on device")

    machines.next = [full, full]
    work._wait(0.1)
    work._wait(0.1)
    assert sum("nothing more is started" in text for text in said) == 1 and len(work._at_work) == 1


def test_a_process_that_has_ended_is_told_nothing(tmp_path: Path) -> None:
    Node(tmp_path, Places(1)).tell(1, {"cut": True})


class NoRay:
    """What Cluster asks of ray: actors whose calls are their answers."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

    def __init__(self) -> None:
        self.killed: list[object] = []

    def kill(self, actor: object, **_: object) -> None:
        self.killed.append(actor)

    def get(self, call: Any) -> Any:
        if isinstance(call, Exception):
            raise call
        return call


def cluster(tmp_path: Path, said: list[str]) -> tuple[Cluster, Machine]:
    found = Cluster.__new__(Cluster)
    machine = Machine("one", "n1", None)
    found._ray, found._say, found._folder = NoRay(), said.append, tmp_path
    found._machines, found._on, found._happened = {"n1": machine}, {}, []
    found._left_out, found._why_not = {}, {}
    return found, machine


@pytest.mark.parametrize(
    "answer",
    [
        Opened("GPU 0: others compute on it"),
        NoRay.exceptions.RayError("ray::RemoteMachine.open()\n  File ...\nModuleNotFoundError: No module named 'arena'\n"),
    ],
)
def test_a_machine_that_cannot_be_used_is_left_for_a_while(tmp_path: Path, answer: object) -> None:
    said: list[str] = []
    for _ in range(2):
        there, machine = cluster(tmp_path, said)
        there._why_not = {} if not said else {"n1": said[0].partition("is not used: ")[2]}
        machine.asked = answer
        there._take_answer(machine)
        assert not there._machines and there._ray.killed
        assert 0 < there._left_out["n1"] - time.monotonic() <= REFUSED_S, "it is looked at again"
    why = answer.refused if isinstance(answer, Opened) else "ModuleNotFoundError: No module named 'arena'"
    assert said == [f"one is not used: {why}"], "said once"


def test_a_machine_that_does_not_open_is_asked_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    there, machine = cluster(tmp_path, said)
    there._listen(0.0)  # it has no actor that could be asked
    assert there._machines and not said
    machine.heard_s -= OPEN_S + 1
    there._listen(0.0)
    assert not there._machines and said == ["one is not used: no answer for 180 s"] and "n1" in there._left_out


def a_packed_run(root: Path) -> tuple[str, bytes]:
    run = root / "20261124T000000Z_h_m_p_ab12"
    run.mkdir(parents=True)
    (run / "session.json").write_text("{}")
    return run.name, transfer.pack(run)


def test_a_run_without_room_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "head"))
    run_id, packed = a_packed_run(tmp_path)
    there, machine = cluster(tmp_path, [])
    there._on[1], machine.places = machine, Places(1)
    answers = [(1, Answer(Said(1, {"run": run_id}), packed))]
    unpack = transfer.unpack

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "unpack", full)
    machine.asked = answers
    with pytest.raises(OSError, match="No space left"):
        there._take_answer(machine)
    assert machine.had == 0 and not there._happened, "it is not acknowledged: the machine keeps it"
    monkeypatch.setattr(transfer, "unpack", unpack)
    machine.asked = answers
    there._take_answer(machine)
    assert machine.had == 1 and there._happened == [Said(1, {"run": run_id})]
    assert (paths.workspaces() / run_id / "session.json").exists()


def test_a_fault_of_another_run_loses_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "head"))
    run_id, packed = a_packed_run(tmp_path)
    said: list[str] = []
    there, machine = cluster(tmp_path, said)
    there._on[1], machine.places = machine, Places(1)

    def fault(*_: object) -> None:
        raise DataError("run other: result.yaml is no YAML")

    monkeypatch.setattr(records, "settle", fault)
    machine.asked = [(1, Answer(Said(1, {"run": run_id}), packed))]
    there._take_answer(machine)
    assert there._happened == [Said(1, {"run": run_id})] and said == ["run other: result.yaml is no YAML"]


@pytest.mark.parametrize("cells", [{"network": "open"}, {"allow": ["mirror.test"], "allow_private": True}])
def test_no_agent_reaches_the_ports_of_ray(cells: dict[str, Any]) -> None:
    sweep = SWEEP.model_copy(update={"hardware": "cpu", "cells": (Grid(models=("m",), problems="all", **cells),)})
    with pytest.raises(UsageError, match="reaches Ray's ports"):
        _hardware_on_ray(sweep, None)
    plain = sweep.model_copy(update={"cells": (Grid(models=("m",), problems="all", allow=("mirror.test",)),)})
    assert _hardware_on_ray(plain, None).name == "cpu"


def test_an_open_network_is_for_one_session_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All would share 127.0.0.1, where the second gateway, or an agent before it, finds the port taken."""
    monkeypatch.setattr(grid, "machine_bytes", lambda: 64 << 30)
    sweep = SWEEP.model_copy(update={"cells": (Grid(models=("m",), problems="all", network="open"),)})
    for parallel in (1, 2):
        asked = sweep.model_copy(update={"place": Place(parallel=parallel)})
        if parallel == 1:
            assert grid.places_on(asked, catalog.hardware("cpu")).sessions == 1
        else:
            with pytest.raises(UsageError, match="write `parallel: 1`"):
                grid.places_on(asked, catalog.hardware("cpu"))
