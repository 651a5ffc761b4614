"""One machine of a sweep that spans several: the same `Node`, and what is said to it and by it, each exactly once.

A sweep's head calls `exchange` all the time. A call may be repeated when its answer is lost: orders and answers have numbers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import arena
from arena import catalog, paths
from arena.errors import ArenaError, Faults, UsageError
from arena.files import documents
from arena.plan import ready
from arena.results import run_folder
from arena.schema import Annotation, Hardware, Sweep
from arena.sweep import grid, transfer
from arena.sweep.broker import Places
from arena.sweep.grid import PlannedCell
from arena.sweep.node import Ended, Node, Said
from arena.system import gpu_locks, process

LOOK_S = 0.5
PREFLIGHT_S = 120.0
# In a process of its own: what this one held on a GPU would refuse every session and score there.
PREFLIGHT = """import sys
from arena import catalog, judge
from arena.errors import ArenaError
try:
    for gpu in sys.argv[2:]:
        judge.preflight(catalog.hardware(sys.argv[1]), int(gpu))
except ArenaError as error:
    print(error)
    sys.exit(1)
"""


class Opened(NamedTuple):
    """What a machine answers at first."""

    refused: str
    """Why it cannot be used; empty when it can."""
    places: Places | None = None


class Order(NamedTuple):
    """What the head says: start a process, or write a line to one."""

    number: int
    start: bool
    line: dict[str, Any]
    run: bytes = b""
    """To start a score: the packed run."""


class Answer(NamedTuple):
    """What a process did."""

    happened: Said | Ended
    run: bytes = b""
    """With the end of a session or a score: the packed run."""


class RemoteMachine:
    """Lives on the machine: with Ray as an actor, which is one thread."""

    def open(self, sweep: Sweep, planned: Sequence[PlannedCell], mark: str, version: str, silence_s: float) -> Opened:
        """Look whether the machine can do the sweep's work, before any session is given to it.

        Args:
            sweep: what is to be done.
            planned: its cells, as the head resolves them.
            mark: the name of a file that the head has made in its own results folder.
            version: of the head's arena.
            silence_s: end all processes after this long without a word from the head, which gives their trials to another one.
        """
        # Ray sets it to 1 for each of its workers, and everything below would inherit that.
        os.environ.pop("OMP_NUM_THREADS", None)
        try:
            if (niceness := os.nice(0)) > 0:
                return Opened(
                    f"what Ray starts here has niceness {niceness}, and so would every session and score: start Ray here with "
                    "RAY_worker_niceness=0 in its environment"
                )
            if version != arena.__version__:
                return Opened(f"arena {arena.__version__} is installed here, and {version} at the head: install the same")
            ready()
            folder = paths.sweeps() / sweep.name
            if (folder / mark).exists():
                return Opened(f"{paths.home()} is the head's results folder: start Ray here with another ARENA_HOME")
            found = catalog.hardware(planned[0].session.hardware)
            if found.profile == "gpu":
                _preflight(found, sweep.place.gpus)
            places = grid.places_on(sweep, found)
            faults = Faults()
            for each in planned:
                faults.collect(partial(_same, each))
            faults.raise_all()
            folder.mkdir(parents=True, exist_ok=True)
            self._locks = ExitStack()  # held until this process ends
            self._locks.enter_context(gpu_locks.held_for(sweep, found))
        except ArenaError as error:
            return Opened(str(error))
        self._node = Node(folder, places)
        self._scores: set[int] = set()
        """Which processes are scores: their answer has no workspace, which the head got with the session."""
        self._done = 0
        self._answers: dict[int, Answer] = {}
        self._answered = 0
        self._heard_s = time.monotonic()
        threading.Thread(target=self._end_in_silence, args=(silence_s,), name="silence", daemon=True).start()
        return Opened("", places)

    def exchange(self, had: int, first: int, orders: Sequence[Order], limit_s: float) -> list[tuple[int, Answer]]:
        """Carry out orders, and give the answers that the head has not had.

        Args:
            had: the number of the last answer that reached the head.
            first: the number of the first of `orders`; those that were carried out already are left out.
            orders: what to do.
            limit_s: wait so long for something to happen.
        """
        self._heard_s = time.monotonic()
        self._answers = {number: answer for number, answer in self._answers.items() if number > had}
        for number, order in enumerate(orders, first):
            if number > self._done:
                self._done = number
                self._carry_out(order)
        for happened in self._node.poll(0.0 if self._answers else limit_s):
            self._answer(self._packed(happened))
            self._heard_s = time.monotonic()  # packing may have taken long
        return sorted(self._answers.items())

    def _answer(self, answer: Answer) -> None:
        self._answered += 1
        self._answers[self._answered] = answer

    def _packed(self, happened: Said | Ended) -> Answer:
        """What is said to the head of this, in any case: it has happened, and no process says it again."""
        run_id = happened.line.get("run") if isinstance(happened, Said) else None
        if not run_id:
            return Answer(happened)
        try:
            return Answer(happened, transfer.pack(paths.workspaces() / run_id, work=happened.number not in self._scores))
        except OSError as error:
            return Answer(Said(happened.number, {"error": f"run {run_id} cannot be sent to the head: {error}"}))

    def _carry_out(self, order: Order) -> None:
        if not order.start:
            self._node.tell(order.number, order.line)
            return
        try:
            if order.run:
                self._scores.add(order.number)
                run_id = order.line["judge"]
                if _is_scored(run_id, order.run):
                    self._answer(self._packed(Said(order.number, {"run": run_id})))
                    self._answer(Answer(Ended(order.number, 0)))
                    return
                transfer.unpack(order.run, run_id, paths.workspaces())
            self._node.start(order.number, order.line)
        except (ArenaError, OSError) as error:
            self._answer(Answer(Said(order.number, {"error": f"cannot be started: {error}"})))
            self._answer(Answer(Ended(order.number, 2)))

    def _end_in_silence(self, silence_s: float) -> None:
        while time.monotonic() - self._heard_s < silence_s:
            time.sleep(min(LOOK_S, silence_s))
        os._exit(1)  # the kernel ends the processes with this one


def _preflight(hardware: Hardware, gpus: frozenset[int]) -> None:
    """ArenaError when this machine cannot score on one of these GPUs."""
    command = [sys.executable, "-P", "-c", PREFLIGHT, hardware.name, *map(str, sorted(gpus))]
    done = process.run(command, limit_s=PREFLIGHT_S)
    if done.timed_out:
        raise ArenaError(f"the GPUs do not answer within {PREFLIGHT_S:.0f} s")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise ArenaError(done.stdout.decode(errors="replace").strip() or f"the look at the GPUs: {last[0]}")


def _is_scored(run_id: str, packed: bytes) -> bool:
    """Whether that very session has its score here, and the head has not heard: none is drawn again. ArenaError, OSError."""
    run = run_folder.RunFolder(paths.workspaces() / run_id)
    if not run.result.exists() or run.session.read_bytes() != transfer.member(packed, "session.json"):
        return False
    return documents.read_yaml(run.result, Annotation).score.verdict != "judge_failed"


def _same(planned: PlannedCell) -> None:
    """ArenaError when this machine cannot play the cell, or plays another one."""
    if planned.session.spec().cell() != planned.cell:
        cell = planned.cell
        raise UsageError(f"problem {cell.problem} or harness {cell.harness} is not what it is at the head")


def packed_run(run_id: str) -> bytes:
    """A run of the head that is to be scored elsewhere, without the agent's workspace."""
    return transfer.pack(run_folder.RunFolder(paths.workspaces() / run_id).folder, work=False)
