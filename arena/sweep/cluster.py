"""The machines of a sweep that Ray knows: one actor on each that offers the sweep's hardware, and no retries of Ray's own.

A machine that does not answer for two minutes is given up, and its trials are given out again. What it still does is never taken:
answers count only for numbers that were given to it last. Before that, a machine without a word from here ends its processes.
"""

from __future__ import annotations

import math
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arena
from arena import paths
from arena.errors import ArenaError, UsageError
from arena.results import annotations as records
from arena.schema import Sweep
from arena.sweep import remote, transfer
from arena.sweep.broker import Places
from arena.sweep.grid import PlannedCell
from arena.sweep.node import FULL, Ended, Said
from arena.sweep.remote import Answer, Opened, Order

EXCHANGE_S = 0.2
LOOK_S = 3.0
"""Between two looks at the nodes that Ray knows."""
OPEN_S = 180.0
"""An actor's process starts, imports arena and looks at the sandbox and the GPUs in this time."""
AGAIN_S = 1.0
REFUSED_S = 60.0
"""Then a machine that could not be used is looked at again: the GPU of a session that was just killed is free by then."""
REACHED_S = 10.0


def _look_for_head(address: str) -> None:
    """OSError when nothing listens at HOST:PORT: Ray itself tries for minutes."""
    match = re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d+)", address)
    if match:
        socket.create_connection((match[1], int(match[2])), timeout=REACHED_S).close()


@dataclass
class Machine:
    """A node of Ray, with our actor on it."""

    name: str
    node: str
    """Ray's own id of it."""
    actor: Any
    asked: Any = None
    """The call that is under way."""
    places: Places | None = None
    """None until it has answered that it can be used."""
    heard_s: float = field(default_factory=time.monotonic)
    not_before_s: float = 0.0
    had: int = 0
    orders: list[Order] = field(default_factory=list)
    first: int = 1
    """The number of the first of `orders`."""
    sent: int = 0
    """Of them, how many the call under way has with it."""
    trouble: str = ""


class Cluster:
    """Machines (node.py) of a cluster of Ray's that runs already."""

    def __init__(
        self,
        sweep: Sweep,
        planned: Sequence[PlannedCell],
        folder: Path,
        say: Callable[[str], None],
        address: str = "auto",
        *,
        silence_s: float,
        lost_s: float,
    ) -> None:
        """Connect, and wait for the machines that are there. UsageError when none offers the hardware.

        A machine that does not answer for `lost_s` is given up; one without a word from here for `silence_s`, which must be
        less, ends its processes.
        """
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("a sweep on Ray needs it: pip install 'arena[ray]'") from None
        self._ray, self._sweep, self._cells, self._say = ray, sweep, planned, say
        self._hardware = hardware = planned[0].session.hardware
        self._silence_s, self._lost_s = silence_s, lost_s
        self._machines: dict[str, Machine] = {}
        """By Ray's id of the node."""
        self._left_out: dict[str, float] = {}
        """Until when each node that cannot be used is not looked at."""
        self._why_not: dict[str, str] = {}
        """What was said last of such a node."""
        self._on: dict[int, Machine] = {}
        """Where each process was given to."""
        self._happened: list[Said | Ended] = []
        self._looked_s = 0.0
        self._mark = f"head-{secrets.token_hex(8)}"
        self._folder = folder
        try:
            _look_for_head(address)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except OSError as error:  # among them ConnectionError, of both
            raise UsageError(f"no cluster of Ray at {address}: start one with `ray start --head` ({error})") from None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self._mark).touch()
        self._look()
        while any(machine.places is None for machine in self._machines.values()):
            self._listen(1.0)
        if not self._machines:
            self.kill()
            raise UsageError(f"no node of Ray can be used for {hardware}: start one with --resources '{{\"{hardware}\": 1}}'")

    def places(self) -> Mapping[str, Places]:
        """Of the machines that answer."""
        if time.monotonic() - self._looked_s > LOOK_S:
            self._look()
        return {machine.name: machine.places for machine in self._machines.values() if machine.places is not None}

    def start(self, machine: str, number: int, order: Mapping[str, Any]) -> None:
        """Start a process there; a run that is to be scored goes with it."""
        to = next(each for each in self._machines.values() if each.name == machine)
        run = remote.packed_run(order["judge"]) if "judge" in order else b""
        to.orders.append(Order(number, True, dict(order), run))
        self._on[number] = to

    def tell(self, number: int, line: Mapping[str, object]) -> None:
        """Write a line to a process, with the next call."""
        if machine := self._on.get(number):
            machine.orders.append(Order(number, False, dict(line)))

    def poll(self, limit_s: float) -> list[Said | Ended]:
        """What happens within that time."""
        self._listen(limit_s)
        happened, self._happened = self._happened, []
        return happened

    def kill(self) -> None:
        """End the actors, and with them their processes."""
        for machine in self._machines.values():
            self._ray.kill(machine.actor, no_restart=True)
        self._machines.clear()
        (self._folder / self._mark).unlink(missing_ok=True)
        self._ray.shutdown()

    def _look(self) -> None:
        """Take new nodes, and name those that do not offer the hardware."""
        self._looked_s = time.monotonic()
        for node in self._ray.nodes():
            number, resources = node["NodeID"], node["Resources"]
            if not node["Alive"] or number in self._machines or time.monotonic() < self._left_out.get(number, 0.0):
                continue
            name = node.get("NodeName") or node["NodeManagerHostname"]
            if name in [machine.name for machine in self._machines.values()]:
                name = f"{name}-{number[:6]}"
            if not resources.get(self._hardware):
                self._left_out[number] = math.inf
                if not any(key.startswith("node:__internal_head") for key in resources):
                    self._say(f"{name} is not used: it does not offer {self._hardware} (`ray start --resources`)")
                continue
            self._take(number, name, resources.get("GPU", 0))

    def _take(self, number: str, name: str, gpus: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # All GPUs, so that Ray starts nothing of others there, and hides none from us.
        actor = (
            self._ray.remote(remote.RemoteMachine)
            .options(
                num_cpus=0,
                num_gpus=gpus,
                resources={self._hardware: 1},
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(number, soft=False),
            )
            .remote()
        )
        opening = actor.open.remote(self._sweep, self._cells, self._mark, arena.__version__, self._silence_s)
        self._machines[number] = Machine(name, number, actor, opening)

    def _listen(self, limit_s: float) -> None:
        """One turn: send what is to be sent, and take what has come."""
        now_s = time.monotonic()
        for machine in self._machines.values():
            if machine.asked is None and machine.places is not None and now_s >= machine.not_before_s:
                machine.sent = len(machine.orders)
                machine.asked = machine.actor.exchange.remote(
                    machine.had, machine.first, list(machine.orders), min(limit_s, EXCHANGE_S)
                )
        by_call = {machine.asked: machine for machine in self._machines.values() if machine.asked is not None}
        if by_call:
            came, _ = self._ray.wait(list(by_call), timeout=limit_s)
        else:
            came = []
            time.sleep(min(limit_s, EXCHANGE_S))
        for call in came:
            self._take_answer(by_call[call])
        for machine in list(self._machines.values()):
            limit = OPEN_S if machine.places is None else self._lost_s
            if time.monotonic() - machine.heard_s > limit:
                self._give_up(machine)

    def _take_answer(self, machine: Machine) -> None:
        call, machine.asked = machine.asked, None
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            if machine.places is None:
                self._leave_out(machine, (str(error).strip().splitlines() or [type(error).__name__])[-1].strip())
                return
            # No proof of its death: it may still be at work on the other side of a broken network.
            machine.trouble = type(error).__name__
            machine.not_before_s = time.monotonic() + AGAIN_S
            return
        machine.heard_s = time.monotonic()
        if isinstance(answer, Opened):
            if answer.refused:
                self._leave_out(machine, answer.refused)
            machine.places = answer.places
            return
        del machine.orders[: machine.sent]
        machine.first += machine.sent
        for number, each in answer:
            if number > machine.had:
                try:
                    self._happen(machine, each)
                except OSError:  # it comes again
                    machine.not_before_s = time.monotonic() + AGAIN_S
                    raise
                machine.had = number

    def _happen(self, machine: Machine, answer: Answer) -> None:
        """Take an answer, if it is of a process that this machine was given and that was not given up.

        OSError when the disk has no room for its run.
        """
        happened = answer.happened
        if self._on.get(happened.number) is not machine:
            return
        if answer.run and isinstance(happened, Said):
            try:
                transfer.unpack(answer.run, happened.line["run"], paths.workspaces())
            except (ArenaError, OSError) as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise
                happened = Said(happened.number, {"error": f"the run from {machine.name} cannot be kept: {error}"})
            try:
                records.settle(paths.workspaces(), paths.annotations())
            except ArenaError as error:  # of another run: this one is kept
                self._say(str(error))
        if isinstance(happened, Ended):
            del self._on[happened.number]
        self._happened.append(happened)

    def _leave_out(self, machine: Machine, why: str) -> None:
        """Do without a machine that cannot be used, for a while."""
        if self._why_not.get(machine.node) != why:
            self._say(f"{machine.name} is not used: {why}")
        self._why_not[machine.node] = why
        self._left_out[machine.node] = time.monotonic() + REFUSED_S
        self._drop(machine)

    def _give_up(self, machine: Machine) -> None:
        if machine.places is None:
            self._leave_out(machine, f"no answer for {OPEN_S:.0f} s")
            return
        why = f"{machine.name} is lost: no answer for {time.monotonic() - machine.heard_s:.0f} s"
        why += f" ({machine.trouble})" * bool(machine.trouble)
        self._say(why)
        for number in [number for number, on in self._on.items() if on is machine]:
            del self._on[number]
            self._happened.append(Ended(number, 1, why))
        self._drop(machine)

    def _drop(self, machine: Machine) -> None:
        del self._machines[machine.node]
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(machine.actor, no_restart=True)
