"""Work through a sweep: sessions in waves, then their scores with nothing of ours beside them, until every trial counts.

No session starts while a score waits or is taken, and no score is taken while a session is at work: what agents do on this
machine cannot disturb a score. All that is known lies in the run folders: a sweep may be killed at any moment and started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal

from arena import paths
from arena.errors import UsageError
from arena.results import run_folder
from arena.results.board import Naive
from arena.schema import Sweep, SweepPlace
from arena.sweep.grid import PlannedCell, Trial
from arena.sweep.limits import Limits, spent_usd
from arena.sweep.progress import Attempt, Problem, Step, attempts, by_trial, next_step, sure

POLL_S = 0.5
Phase = Literal["play", "judge"]


@dataclass
class Child:
    """A process at work for one trial."""

    trial: Trial
    kind: Phase
    gpu: int
    process: subprocess.Popen[bytes]
    begun_s: float
    lines: bytearray = field(default_factory=bytearray)
    last: dict[str, Any] = field(default_factory=dict)
    """The last line it wrote."""

    @property
    def out(self) -> IO[bytes]:
        """Its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout


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
    stopping: bool = False


Say = Callable[[str, View], None]
"""Called with a line for people, or an empty one when only times have changed."""


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


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The sweep's folder, for this process alone. UsageError when another works on it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
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
        parallel: int,
        gpus: Sequence[int],
        folder: Path,
        say: Say,
        naive: Mapping[Problem, Naive],
    ) -> None:
        self._sweep, self._planned, self._parallel, self._gpus, self._say = sweep, planned, parallel, gpus, say
        self._folder = folder
        self._naive = naive
        """For `stop.when`: as it was when the command began."""
        self._limits = Limits(sweep)
        self._at_work: dict[int, Child] = {}
        self._known: dict[str, Attempt] = {}
        self._errors: Counter[Trial] = Counter()
        """Processes of a trial that ended without a run or a score to show for it."""
        self._made: dict[Trial, list[Attempt]] = {}
        self._sure: set[PlannedCell] = set()
        self._interrupts = 0
        self._told = False
        """Whether people know that the sweep is being stopped."""
        self._selector = selectors.DefaultSelector()

    def work(self) -> int:
        """Work until nothing is left to do; the exit code."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            while True:
                if not self._at_work:
                    self._survey()
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
                elif (code := self._finished()) is not None:
                    return code
                else:
                    self._sleep()
        finally:
            signal.signal(signal.SIGINT, before)
            for child in self._at_work.values():
                child.process.kill()
                child.process.wait()

    def _survey(self) -> None:
        self._made = survey(self._sweep, self._planned, self._known)
        self._sure = sure(self._made, self._sweep, self._naive)

    def view(self) -> View:
        """What people are shown."""
        doing = {child.trial: child for child in self._at_work.values()}
        states = [
            TrialState(trial, tuple(self._made.get(trial, ())), self._step(trial), doing.get(trial)) for trial in self._planned
        ]
        return View(tuple(states), self._limits, spent_usd(self._made), bool(self._interrupts))

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
        return "failed" if step in ("play", "judge") and self._errors[trial] > allowed else step

    def _waiting(self, step: Step) -> list[Trial]:
        busy = {child.trial for child in self._at_work.values()}
        return [trial for trial in self._planned if trial not in busy and self._step(trial) == step]

    def _start(self) -> None:
        """Start what may start now."""
        kinds = {child.kind for child in self._at_work.values()}
        if self._interrupts or self._waiting("wait"):
            return  # a killed sweep's processes end by themselves; nothing is to be scored beside them
        to_judge = self._waiting("judge")
        if "play" not in kinds:
            for trial in to_judge:
                if gpu := self._free():
                    run_id = next(one.run_id for one in self._made[trial] if one.outcome in ("unjudged", "judge_failed"))
                    self._begin(trial, "judge", gpu[0], {"judge": run_id})
        if to_judge or "judge" in kinds:
            return
        for trial in self._waiting("play"):
            if len(self._at_work) >= self._parallel:
                return
            sessions = [child.trial for child in self._at_work.values()]
            if self._limits.blocks(trial, sessions, spent_usd(self._made), time.monotonic()):
                continue
            cell = trial.planned
            # On `cpu` every session has the same place.
            gpu = self._free() if cell.cell.hardware != "cpu" else list(self._gpus)
            if not gpu:
                return
            place = SweepPlace(name=self._sweep.name, trial=trial.number, attempt=len(self._made[trial]) + 1)
            order = {
                "play": cell.session.model_dump(mode="json"),
                "cell": cell.cell.model_dump(mode="json"),
                "place": place.model_dump(),
            }
            self._begin(trial, "play", gpu[0], order)

    def _free(self) -> list[int]:
        busy = {child.gpu for child in self._at_work.values()}
        return [gpu for gpu in self._gpus if gpu not in busy]

    def _begin(self, trial: Trial, kind: Phase, gpu: int, order: Mapping[str, object]) -> None:
        command = [sys.executable, "-m", "arena.sweep.child", str(os.getpid())]
        try:
            with (self._folder / "children.log").open("ab") as log:
                # A session of its own: Ctrl-C is for the sweep alone.
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
                )
        except OSError as error:  # no memory, no processes or no disk left: those at work go on
            self._errors[trial] += 1
            self._say(f"{name_of(trial)}: cannot be started: {error.strerror}", self.view())
            return
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({**order, "gpu": gpu}).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, and is noticed below
        os.set_blocking(process.stdout.fileno(), False)
        self._at_work[process.pid] = Child(trial, kind, gpu, process, time.monotonic())
        self._selector.register(process.stdout, selectors.EVENT_READ, process.pid)
        self._say(f"{name_of(trial)}: {'agent at work' if kind == 'play' else 'scoring'}", self.view())

    def _wait(self, limit_s: float) -> None:
        """Read what the processes say, and take the ends of those that ended."""
        for key, _ in self._selector.select(limit_s):
            child = self._at_work[key.data]
            if chunk := os.read(child.out.fileno(), 1 << 16):
                child.lines += chunk
                *whole, rest = bytes(child.lines).split(b"\n")
                child.lines[:] = rest
                child.last = json.loads(whole[-1]) if whole else child.last
            else:
                self._ended(child)
        self._say("", self.view())

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.out)
        child.out.close()
        child.process.wait()
        del self._at_work[child.process.pid]
        trial, before = child.trial, self._made[child.trial]
        self._survey()
        made = self._made[trial]
        if child.process.returncode or "run" not in child.last:
            why = (
                child.last.get("error")
                or f"its process ended with exit code {child.process.returncode}; see {self._folder / 'children.log'}"
            )
            if child.kind == "judge" or not any(one.failed for one in made[len(before) :]):
                self._errors[trial] += 1  # nothing on the disk tells of it
            self._say(f"{name_of(trial)}: {why}", self.view())
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
        return 3 if reasons["cost"] else 0

    def _sleep(self) -> None:
        """Nothing is at work: some trial waits for a time, or for another process that holds its run."""
        next_s = self._limits.next_s(self._waiting("play"))
        time.sleep(min(max((next_s or 0.0) - time.monotonic(), 0.1), POLL_S))
        self._say("", self.view())


def name_of(trial: Trial) -> str:
    """A trial in a line for people."""
    return f"{trial.planned.label} on {trial.planned.cell.problem}, trial {trial.number}"


def status(sweep: Sweep, planned: Sequence[Trial], naive: Mapping[Problem, Naive]) -> View:
    """The sweep as its run folders tell it, without working on it."""
    made = survey(sweep, planned, {})
    enough = sure(made, sweep, naive)
    steps = {trial: next_step(made[trial], sweep.retry) for trial in planned}
    spared = {trial for trial in planned if steps[trial] == "play" and trial.planned in enough}
    states = [TrialState(trial, tuple(made[trial]), "spared" if trial in spared else steps[trial]) for trial in planned]
    return View(tuple(states), Limits(sweep), spent_usd(made))
