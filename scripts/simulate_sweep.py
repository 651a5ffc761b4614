"""Simulate sweeps on 1 to 64 GPUs: hours, use of the GPUs, and how long agents wait for a turn.

A session thinks, takes short turns on a GPU, and ends; then its submission is scored alone on a GPU. The turns' seconds are drawn
lognormal: 40 s a session in the median, 349 s for one problem in seven, in turns of 12 s on average. A score takes 52 to 150 s.
Nothing here is measured: the model's numbers are those of docs/measurements/sweeps.md. `python scripts/simulate_sweep.py [SEEDS]`
prints a table in Markdown.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

BUDGET_S = 2700.0
SCORES_S = (52, 60, 75, 90, 110, 150)
LEASE_S = 120.0
AGENTS_PER_GPU = 6
GPUS_PER_JUDGE = 5
PROBLEMS, LONG_PROBLEM = 7, 5
TURN_S = 12.0


@dataclass
class Gpu:
    """A GPU, its queue, and the seconds for which it was in use."""

    waiting: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    taken: bool = False
    used_s: float = 0.0


class Clock:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, wait_s: float, then: Callable[[], None]) -> None:
        """Call `then` so much later."""
        heapq.heappush(self._events, (self.now_s + wait_s, next(self._numbers), then))

    def run(self) -> None:
        """Until nothing is left."""
        while self._events:
            self.now_s, _, then = heapq.heappop(self._events)
            then()


@dataclass
class Result:
    """What one simulated sweep took."""

    hours: float
    use: float
    waits_s: list[float]
    agents: int

    def wait(self, part: float) -> float:
        """A quantile of the waits for a turn, in seconds."""
        return sorted(self.waits_s)[min(len(self.waits_s) - 1, int(part * len(self.waits_s)))] if self.waits_s else 0.0


class Simulation:
    """One sweep."""

    def __init__(self, gpus: int, way: str, trials: int, most_agents: int, seed: int) -> None:
        self.clock, self.chance, self.way = Clock(), random.Random(seed), way
        self.gpus = [Gpu() for _ in range(gpus)]
        judges = max(1, round(gpus / GPUS_PER_JUDGE)) if way == "leased" and gpus > 1 else 0
        self.judges, self.agents = self.gpus[:judges], self.gpus[judges:]
        per_gpu = 1 if way in ("exclusive", "one by one") else AGENTS_PER_GPU
        self.slots = min(trials, most_agents, per_gpu * len(self.agents))
        self.left, self.waits_s = list(range(trials)), list[float]()
        self.at_work, self.to_judge, self.judging = 0, 0, 0
        self.end_s = 0.0

    def run(self) -> Result:
        """Work until every trial has its score."""
        for slot in range(self.slots):
            self.begin(self.agents[slot % len(self.agents)])
        self.clock.run()
        use = sum(gpu.used_s for gpu in self.gpus) / (len(self.gpus) * self.end_s)
        return Result(self.end_s / 3600, use, self.waits_s, self.slots)

    def begin(self, gpu: Gpu) -> None:
        """A session starts, if a trial is left."""
        if not self.left:
            return
        problem = self.left.pop() % PROBLEMS
        self.at_work += 1
        total_s = self.chance.lognormvariate(0, 0.7) * (349 if problem == LONG_PROBLEM else 40)
        count = max(2, int(total_s / TURN_S))
        moments = [0.0, *sorted(self.chance.uniform(0, BUDGET_S) for _ in range(count)), BUDGET_S]
        thinks = [later - earlier for earlier, later in itertools.pairwise(moments)]
        if self.way in ("exclusive", "one by one"):
            gpu.used_s += min(total_s, BUDGET_S)
            self.clock.after(BUDGET_S, lambda: self.over(gpu))
        else:
            self.think(gpu, thinks, 0)

    def think(self, gpu: Gpu, thinks: list[float], at: int) -> None:
        """Until the next turn, or the end of the session."""
        last = at == len(thinks) - 1

        def turn() -> None:
            asked_s = self.clock.now_s

            def begun() -> None:
                self.waits_s.append(self.clock.now_s - asked_s)
                length_s = min(LEASE_S, self.chance.expovariate(1 / TURN_S))
                self.hold(gpu, length_s, lambda: self.think(gpu, thinks, at + 1))

            self.take(gpu, begun)

        self.clock.after(thinks[at], (lambda: self.over(gpu)) if last else turn)

    def over(self, gpu: Gpu) -> None:
        """A session ends; its score waits for a GPU of the judge, or for the end of the wave."""
        self.at_work -= 1
        if self.way == "leased":
            self.begin(gpu)
            # At the end the agents' GPUs are idle, and the judge has them too.
            pool = self.gpus if not self.at_work else self.judges
            self.score(min(pool, key=lambda each: len(each.waiting) + each.taken), lambda: None)
        elif self.way == "waves":
            self.to_judge += 1
            if not self.at_work:
                self.judge_wave()
        else:
            self.score(gpu, lambda: self.begin(gpu))

    def judge_wave(self) -> None:
        """All sessions are over: score all, on every GPU, and start the next wave."""
        for number in range(self.to_judge):
            self.judging += 1
            self.score(self.gpus[number % len(self.gpus)], self.judged)
        self.to_judge = 0

    def judged(self) -> None:
        """A score of the wave is taken."""
        self.judging -= 1
        if not self.judging:
            for slot in range(self.slots):
                self.begin(self.agents[slot % len(self.agents)])

    def score(self, gpu: Gpu, then: Callable[[], None]) -> None:
        """Wait for the GPU, and use it."""

        def scored() -> None:
            self.end_s = self.clock.now_s
            then()

        self.take(gpu, lambda: self.hold(gpu, self.chance.choice(SCORES_S), scored))

    def take(self, gpu: Gpu, then: Callable[[], None]) -> None:
        """First come, first served."""
        gpu.waiting.append((self.clock.now_s, then))
        self.serve(gpu)

    def hold(self, gpu: Gpu, length_s: float, then: Callable[[], None]) -> None:
        """Use the GPU, give it back, and go on."""

        def ended() -> None:
            gpu.taken = False
            then()
            self.serve(gpu)

        gpu.used_s += length_s
        self.clock.after(length_s, ended)

    def serve(self, gpu: Gpu) -> None:
        """The first that waits has it."""
        if not gpu.taken and gpu.waiting:
            gpu.taken = True
            gpu.waiting.popleft()[1]()


def row(gpus: int, way: str, trials: int, seeds: int, most_agents: int = 10**9, words: str = "") -> str:
    """A line of the table: medians over the seeds, with the least and the most hours."""
    found = [Simulation(gpus, way, trials, most_agents, seed).run() for seed in range(seeds)]
    hours = sorted(result.hours for result in found)
    span = f"{median(hours):.1f} ({hours[0]:.1f} to {hours[-1]:.1f})"
    use = f"{100 * median(result.use for result in found):.0f} %"
    waits = [median(result.wait(part) for result in found) for part in (0.99, 1.0)]
    waited = f"{waits[0]:.0f} / {waits[1]:.0f} s" if way in ("waves", "leased") else "-"
    return f"| {gpus} | {words or way} | {found[0].agents} | {trials} | {span} | {use} | {waited} |"


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| GPUs | way | agents at once | trials | hours | GPU in use | wait for a turn, 99 % / longest |")
    print("|---|---|---|---|---|---|---|")
    for trials in (84, 252):
        print(row(1, "one by one", trials, seeds))
        print(row(1, "waves", trials, seeds))
        for gpus in (2, 4, 8, 16, 32, 64):
            print(row(gpus, "exclusive", trials, seeds))
            print(row(gpus, "leased", trials, seeds))
    print(row(64, "leased", 252, seeds, 48, "leased, the provider serves 48"))


if __name__ == "__main__":
    main()
