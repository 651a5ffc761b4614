"""Work through a sweep until every trial counts: sessions, then their scores with nothing of ours beside them on the same GPU.

What may start is decided by the routes and the cost (limits.py) and by the places (broker.py). All that is known lies in the run
folders: a sweep may be killed at any moment and started again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from arena import paths
from arena.errors import UsageError
from arena.results import run_folder
from arena.results.board import Naive
from arena.schema import Sweep, SweepPlace
from arena.sweep import broker
from arena.sweep.broker import Cut, Granted, LeftOut, Places
from arena.sweep.grid import PlannedCell, Trial
from arena.sweep.limits import Limits, reserved_usd, spent_usd, until_s
from arena.sweep.node import FULL, Machines, Said
from arena.sweep.progress import Attempt, Problem, Step, attempts, by_trial, next_step, sure

POLL_S = 0.5
QUEUE_S = 5.0
"""Between two words to a session on how many are before it in the queue for a GPU."""
NO_MACHINE_S = 120.0
"""A sweep ends after this long without any machine for it."""
Phase = Literal["play", "judge"]


@dataclass
class Child:
    """A process at work for one trial."""

    trial: Trial
    kind: Phase
    gpu: int
    begun_s: float
    machine: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    """The last line it wrote on its progress or its end."""
    told_s: float = 0.0
    ask: int = 0
    """The number of its last question for a turn on a GPU."""


@dataclass(frozen=True)
class TrialState:
    """A trial as people are shown it."""

    trial: Trial
    attempts: tuple[Attempt, ...]
    step: Step
    doing: Child | None = None


@dataclass(frozen=True)
class View:
    """All that a board shows."""

    trials: tuple[TrialState, ...]
    limits: Limits
    spent_usd: float
    machines: Mapping[str, broker.State]
    """What each machine has, and what of it is given out."""
    at_work: bool = False
    """Whether this is the view of the process that works on the sweep."""
    stopping: bool = False

    @property
    def sessions(self) -> int:
        """At once, on all machines."""
        return sum(state.places.sessions for state in self.machines.values())

    @property
    def reserved_usd(self) -> float:
        """What sessions at work may still use."""
        return reserved_usd([state.trial for state in self.trials if state.doing and state.doing.kind == "play"])


Say = Callable[[str, View], None]
"""Called with a line for people, or an empty one when only times have changed."""


@dataclass(frozen=True)
class Shard:
    """The part of a sweep's trials that one command works on, of `count` commands that share the results' folder."""

    number: int
    count: int

    def of(self, planned: Sequence[Trial]) -> tuple[Trial, ...]:
        """Its trials: every `count`-th, so that each part has all cells as evenly as can be."""
        return tuple(planned[self.number - 1 :: self.count])

    @property
    def lock(self) -> str:
        """The file that this command locks in the sweep's folder."""
        return "lock" if self.count == 1 else f"lock-{self.number}-of-{self.count}"


WHOLE = Shard(1, 1)


def survey(sweep: Sweep, planned: Sequence[Trial], known: dict[str, Attempt]) -> dict[Trial, list[Attempt]]:
    """Every trial's attempts, from the run folders. `known` keeps what cannot change any more. UsageError, DataError."""
    found = by_trial(sweep.name, run_folder.list_runs(paths.workspaces()), planned)
    made: dict[Trial, list[Attempt]] = {}
    for trial, states in found.items():
        made[trial] = []
        for state in states:
            attempt = known.get(state.run.run_id) or attempts(state)
            if attempt.outcome in ("counted", "provider_error"):
                known[attempt.run_id] = attempt
            made[trial].append(attempt)
    return made


def is_held(folder: Path) -> bool:
    """Whether some process works on the sweep now."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


@contextmanager
def held(folder: Path, shard: Shard = WHOLE) -> Iterator[None]:
    """The sweep's folder, for this process alone. UsageError when another works on it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / shard.lock).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"sweep {folder.name} is at work already: `arena sweep {folder.name} --status` shows it") from None
        yield


class Scheduler:
    """One sweep at work."""

    def __init__(
        self,
        sweep: Sweep,
        planned: Sequence[Trial],
        machines: Machines,
        folder: Path,
        say: Say,
        naive: Mapping[Problem, Naive],
        shard: Shard = WHOLE,
    ) -> None:
        self._sweep, self._all, self._planned, self._say = sweep, planned, shard.of(planned), say
        self._folder = folder
        self._naive = naive
        """For `stop.when`: as it was when the command began."""
        self._limits = Limits(sweep)
        if sweep.stop.at:
            self._limits.stop_at_s = time.monotonic() + until_s(sweep.stop.at, datetime.now().astimezone())
        self._machines = machines
        self._brokers = {machine: broker.State(places) for machine, places in machines.places().items()}
        self._none_since_s: float | None = None
        """Since when there has been no machine."""
        self._at_work: dict[int, Child] = {}
        self._started = 0
        self._known: dict[str, Attempt] = {}
        self._errors: Counter[Trial] = Counter()
        """Processes of a trial that ended without a run or a score to show for it."""
        self._losses: Counter[Trial] = Counter()
        """Processes of a trial that were lost with their machine: an agent may be what takes it down."""
        self._made: dict[Trial, list[Attempt]] = {}
        self._sure: set[PlannedCell] = set()
        self._to_judge: dict[str, Trial] = {}
        """Trials that wait for the judge, by their party at the broker."""
        self._played_on: dict[Trial, str] = {}
        self._last_attempt: Counter[Trial] = Counter()
        """The number of the last attempt that was given out: one that is lost with its machine may leave nothing on this disk."""
        self._interrupts = 0
        self._told = False
        """Whether people know that the sweep is being stopped."""
        self._full = ""
        """Why nothing more can be kept on the disk."""

    def work(self) -> int:
        """Work until nothing is left to do; the exit code."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            while True:
                if not self._at_work:
                    self._survey()
                if not self._look_for_machines() and not self._at_work:
                    return 3
                self._start()
                if self._interrupts and self._at_work and not self._told:
                    self._told = True
                    self._say(
                        f"stopping: {len(self._at_work)} at work come to their end; Ctrl-C again ends them now", self.view()
                    )
                if self._at_work:
                    self._wait(POLL_S)
                elif self._interrupts:
                    return 130
                elif self._full:
                    return 1
                elif (code := self._finished()) is not None:
                    return code
                else:
                    self._sleep()
        finally:
            signal.signal(signal.SIGINT, before)
            self._machines.kill()

    def _look_for_machines(self) -> bool:
        """Take machines that came and went into account. False when there has been none for long."""
        found = self._machines.places()
        self._brokers = {machine: self._brokers.get(machine, broker.State(places)) for machine, places in found.items()}
        if found:
            self._none_since_s = None
            return True
        if self._none_since_s is None:
            self._none_since_s = time.monotonic()
            self._say(f"no machine with {self._planned[0].planned.cell.hardware} is there: waiting for one", self.view())
        return time.monotonic() - self._none_since_s < NO_MACHINE_S

    def _survey(self) -> None:
        self._made = survey(self._sweep, self._all, self._known)
        self._sure = sure(self._made, self._sweep, self._naive)

    def view(self) -> View:
        """What people are shown."""
        doing = {child.trial: child for child in self._at_work.values()}
        states = [
            TrialState(trial, tuple(self._made.get(trial, ())), self._step(trial), doing.get(trial)) for trial in self._planned
        ]
        spent = spent_usd(self._made)
        return View(tuple(states), self._limits, spent, dict(self._brokers), at_work=True, stopping=bool(self._interrupts))

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt

    def _step(self, trial: Trial) -> Step:
        step = next_step(self._made.get(trial, ()), self._sweep.retry)
        if step == "play" and trial.planned in self._sure:
            return "spared"
        # One that cannot even begin leaves no run folder.
        allowed = self._sweep.retry.judge_failed if step == "judge" else self._sweep.retry.interrupted
        too_many = self._errors[trial] > allowed or self._losses[trial] > self._sweep.retry.interrupted
        return "failed" if step in ("play", "judge") and too_many else step

    def _waiting(self, step: Step) -> list[Trial]:
        busy = {child.trial for child in self._at_work.values()}
        return [trial for trial in self._planned if trial not in busy and self._step(trial) == step]

    def _start(self) -> None:
        """Start what may start now."""
        if self._interrupts or self._full or self._waiting("wait"):
            return  # a killed sweep's processes end by themselves; nothing is to be scored beside them
        self._to_judge = {_judge_of(trial): trial for trial in self._waiting("judge")}
        queued = {party for state in self._brokers.values() for party in state.judges_waiting}
        for party, trial in self._to_judge.items():
            if party not in queued and (machine := self._judging_machine(trial)) is not None:
                self._brokers[machine] = broker.ask_judge(self._brokers[machine], party)
        self._give()
        for trial in self._waiting("play"):
            sessions = [child.trial for child in self._at_work.values() if child.kind == "play"]
            if self._full or len(sessions) >= sum(state.places.sessions for state in self._brokers.values()):
                return
            if self._limits.blocks(trial, sessions, spent_usd(self._made), time.monotonic()):
                continue
            if not self._play(trial):
                return

    def _judging_machine(self, trial: Trial) -> str | None:
        """Where to score a trial: where it was played, else where the fewest wait. None when there is no machine."""
        played = self._played_on.get(trial)
        if played in self._brokers:
            return played
        return min(self._brokers, key=lambda machine: len(self._brokers[machine].judges_waiting), default=None)

    def _play(self, trial: Trial) -> bool:
        """Play a session where the fewest are at work; whether there was a place for it."""
        for machine in sorted(self._brokers, key=lambda each: len(self._brokers[each].sessions)):
            self._brokers[machine], granted = broker.try_session(self._brokers[machine], self._started + 1)
            if granted is None:
                continue
            cell = trial.planned
            self._last_attempt[trial] = max(self._last_attempt[trial], len(self._made[trial])) + 1
            place = SweepPlace(name=self._sweep.name, trial=trial.number, attempt=self._last_attempt[trial])
            order = {
                "play": cell.session.model_dump(mode="json"),
                "cell": cell.cell.model_dump(mode="json"),
                "place": place.model_dump(),
            }
            self._played_on[trial] = machine
            self._begin(machine, trial, "play", granted.gpu, order)
            return True
        return False

    def _give(self) -> None:
        """Let the brokers give out what is free, and do what they say."""
        for machine in list(self._brokers):
            state = self._brokers[machine]
            for party in state.judges_waiting:
                if self._interrupts or self._full or party not in self._to_judge:
                    state = broker.gone(state, party)
            self._brokers[machine], acts = broker.give(state, time.monotonic())
            for act in acts:
                self._do(machine, act)

    def _do(self, machine: str, act: broker.Act) -> None:
        match act:
            case Granted(party, "judge", gpu):
                trial = self._to_judge.pop(str(party))
                run_id = next(one.run_id for one in self._made[trial] if one.outcome in ("unjudged", "judge_failed"))
                # The process that scores is a party of its own, whose end gives the turn back.
                self._brokers[machine] = _renamed(self._brokers[machine], party, self._started + 1)
                self._begin(machine, trial, "judge", gpu, {"judge": run_id})
            case Granted(party, "lease", gpu):
                lease_s = self._brokers[machine].places.lease_s
                self._tell(_number(party), lease={"gpu": gpu, "lease_s": lease_s})
            case Cut(party, _):
                self._tell(_number(party), cut=True)
            case LeftOut(party, gpu):
                trial = self._at_work[_number(party)].trial
                self._say(f"GPU {gpu} is left out: a command of {name_of(trial)} was killed and has not ended", self.view())

    def _begin(self, machine: str, trial: Trial, kind: Phase, gpu: int, order: Mapping[str, object]) -> None:
        self._started += 1
        number = self._started
        try:
            self._machines.start(machine, number, {**order, "gpu": gpu})
        except OSError as error:  # no memory, no processes or no disk left: those at work go on
            self._brokers[machine] = broker.gone(self._brokers[machine], number)
            self._errors[trial] += 1
            self._failed_to_keep(error)
            self._say(f"{name_of(trial)}: cannot be started: {error.strerror}", self.view())
            return
        self._at_work[number] = Child(trial, kind, gpu, time.monotonic(), machine)
        where = f" on {machine}" if machine else ""
        self._say(f"{name_of(trial)}: {'agent at work' if kind == 'play' else 'scoring'}{where}", self.view())

    def _failed_to_keep(self, error: OSError) -> None:
        """Start nothing more when the disk of the results is full or can only be read."""
        if error.errno in FULL and not self._full:
            self._full = f"{paths.home()}: {error.strerror}"
            self._say(f"{self._full}: nothing more is started. Make room, then the same command goes on", self.view())

    def _wait(self, limit_s: float) -> None:
        """Take what the processes say, and the ends of those that ended."""
        for next_s in map(broker.next_s, self._brokers.values()):
            if next_s is not None:
                limit_s = min(limit_s, max(0.0, next_s - time.monotonic()))
        try:
            came = self._machines.poll(limit_s)
        except OSError as error:
            self._failed_to_keep(error)
            came = []
        self._look_for_machines()  # nothing is to be given out on one that was just lost
        for happened in came:
            number = happened.number
            if not isinstance(happened, Said):
                self._ended(number, happened.code, happened.lost)
            elif "lease" in happened.line:
                self._at_work[number].ask = happened.line.get("ask", self._at_work[number].ask)
                self._lease(number, happened.line["lease"])
            else:
                self._at_work[number].last = happened.line
        self._give()
        self._tell_the_queue()
        self._say("", self.view())

    def _tell(self, number: int, **line: object) -> None:
        """Tell a session something about its last question for a turn."""
        self._machines.tell(number, {**line, "ask": self._at_work[number].ask})

    def _lease(self, number: int, asked: str) -> None:
        """A session asks for a turn on a GPU, leaves the queue, or gives its turn back."""
        machine = self._at_work[number].machine
        if (state := self._brokers.get(machine)) is None:  # given up, and its sessions with it
            return
        if asked == "ask":
            self._brokers[machine] = broker.ask_lease(state, number)
        else:
            self._brokers[machine] = broker.leave_queue(broker.end_lease(state, number), number)
        self._give()

    def _tell_the_queue(self) -> None:
        now_s = time.monotonic()
        for state in self._brokers.values():
            for party in state.leases_waiting:
                child = self._at_work[_number(party)]
                if now_s - child.told_s > QUEUE_S:
                    child.told_s = now_s
                    self._tell(_number(party), ahead=broker.ahead(state, party))

    def _ended(self, number: int, code: int, lost: str) -> None:
        child = self._at_work.pop(number)
        if child.machine in self._brokers:
            self._brokers[child.machine] = broker.gone(self._brokers[child.machine], number)
        trial, before = child.trial, self._made[child.trial]
        self._survey()
        made = self._made[trial]
        if lost:
            self._losses[trial] += 1
            then = "and so were too many before it" if self._step(trial) == "failed" else "it is given out again"
            self._say(f"{name_of(trial)}: {lost}; {then}", self.view())
            return
        if code or "run" not in child.last:
            why = child.last.get("error") or f"its process ended with exit code {code}; see {self._folder / 'children.log'}"
            if child.kind == "judge" or not any(one.failed for one in made[len(before) :]):
                self._errors[trial] += 1  # nothing on the disk tells of it
            self._say(f"{name_of(trial)}: {why}", self.view())
            self._look_at_the_disk()
            return
        last = made[-1]
        if child.kind == "play":
            self._say(f"{name_of(trial)}: session over", self.view())
            return
        failed_before = sum(one.outcome == "provider_error" for one in made[:-1])
        change = self._limits.ended(trial, last, failed_before, time.monotonic())
        if last.outcome == "counted":
            done = sum(next_step(each, self._sweep.retry) == "done" for each in self._made.values())
            self._say(f"{name_of(trial)}: {last.verdict}   ({done} of {len(self._planned)} trials)", self.view())
        else:
            self._say(f"{name_of(trial)}: {last.outcome.replace('_', ' ')}, does not count", self.view())
        if change:
            self._say(change, self.view())

    def _look_at_the_disk(self) -> None:
        """After a process that failed: whether the results can still be kept."""
        try:
            with (paths.workspaces() / ".room").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, run_folder.ROOM_BYTES)
            (paths.workspaces() / ".room").unlink()
        except OSError as error:
            self._failed_to_keep(error)

    def _finished(self) -> int | None:
        """The exit code when nothing is left that may start at any time; None while some trial waits."""
        steps = Counter(self._step(trial) for trial in self._planned)
        if steps["wait"] or steps["judge"]:
            return None
        reasons = Counter(
            self._limits.blocks(trial, (), spent_usd(self._made), time.monotonic()) for trial in self._waiting("play")
        )
        if reasons["wait"] or reasons[""]:
            return None
        if steps["failed"] or reasons["closed"]:
            return 1
        return 3 if reasons["cost"] or reasons["at"] else 0

    def _sleep(self) -> None:
        """Nothing is at work: some trial waits for a time, or for another process that holds its run."""
        next_s = self._limits.next_s(self._waiting("play"))
        self._machines.poll(min(max((next_s or 0.0) - time.monotonic(), 0.1), POLL_S))
        self._say("", self.view())


def _judge_of(trial: Trial) -> str:
    """The party that waits for the judge's turn before there is a process."""
    return name_of(trial) + trial.planned.cell.model_dump_json()


def _renamed(state: broker.State, party: broker.Party, number: int) -> broker.State:
    return replace(state, judges={(number if each == party else each): gpu for each, gpu in state.judges.items()})


def _number(party: broker.Party) -> int:
    assert isinstance(party, int)
    return party


def name_of(trial: Trial) -> str:
    """A trial in a line for people."""
    return f"{trial.planned.label} on {trial.planned.cell.problem}, trial {trial.number}"


def status(sweep: Sweep, planned: Sequence[Trial], naive: Mapping[Problem, Naive], places: Places) -> View:
    """The sweep as its run folders tell it, without working on it."""
    made = survey(sweep, planned, {})
    enough = sure(made, sweep, naive)
    steps = {trial: next_step(made[trial], sweep.retry) for trial in planned}
    spared = {trial for trial in planned if steps[trial] == "play" and trial.planned in enough}
    states = [TrialState(trial, tuple(made[trial]), "spared" if trial in spared else steps[trial]) for trial in planned]
    return View(tuple(states), Limits(sweep), spent_usd(made), {"": broker.State(places)})
