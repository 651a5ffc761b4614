"""Made boards: what the leaderboard says of agents whose true gains are known. `python -m tests.made_board` prints the rates."""

from __future__ import annotations

import argparse
import functools
import math
import platform
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from records import trial  # noqa: E402

from arena.results import leaderboard  # noqa: E402
from arena.results.board import Board  # noqa: E402
from arena.results.ranks import ranks  # noqa: E402
from arena.schema import Annotation  # noqa: E402

PROBLEMS = ("fp8_gemm", "kahan_softmax", "kda_cutlass", "paged_attention", "sonic_moe_swiglu", "topk_bitonic", "w4a16_gemm")
NAIVE = 0.002
SPREAD = 0.7
"""Of log2 of a passed trial's gain."""


class Agent(NamedTuple):
    """Chances to pass from 0.5 to 0.95 and mean gains given pass from 2 to 4.5 in log2, over the problems, changed by these."""

    passes: float = 0.0
    speed: float = 0.0
    spread: float = SPREAD
    coin: bool = False
    """Passes half of the time at the first problem and always at the others, with the same mean gain."""

    def cells(self) -> list[tuple[float, float]]:
        """The chance to pass and the mean of log2 of the gain given pass, of each problem."""
        last = len(PROBLEMS) - 1
        if self.coin:
            return [(1.0 if at else 0.5, 3.5) for at in range(len(PROBLEMS))]
        return [
            (min(1.0, max(0.0, 0.5 + 0.45 * at / last + self.passes)), 2 + 2.5 * at / last + self.speed)
            for at in range(len(PROBLEMS))
        ]

    def gain(self) -> float:
        """The true mean of log2 of the gain; no gain given pass is near 0."""
        return sum(chance * speed for chance, speed in self.cells()) / len(PROBLEMS)

    def draw(self, draws: random.Random, count: int) -> list[list[float]]:
        """log2 of the gain of trials, 0 where one failed."""
        return [self.draw_at(draws, at, count) for at in range(len(PROBLEMS))]

    def draw_at(self, draws: random.Random, at: int, count: int) -> list[float]:
        """The same at one problem."""
        chance, speed = self.cells()[at]
        return [max(0.0, draws.gauss(speed, self.spread)) if draws.random() < chance else 0.0 for _ in range(count)]


def times(ratio: float, of: Agent, passes: float) -> Agent:
    """The agent with that many times the gain of another, which passes so much more often, and is faster for the rest."""
    chances = [chance for chance, _ in of._replace(passes=of.passes + passes).cells()]
    level = sum(chance * speed for chance, (_, speed) in zip(chances, of.cells(), strict=True)) / len(PROBLEMS)
    speed = of.speed + (of.gain() + math.log2(ratio) - level) / (sum(chances) / len(PROBLEMS))
    return Agent(of.passes + passes, speed)


LADDER = [Agent(speed=-0.3 * step) for step in (0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9)]
"""Eleven agents, each a little worse than the one before; the fifth and the sixth are equal."""
BEST, TWINS = 0, (5, 6)
MADE = (times(4, LADDER[0], passes=0.2), *LADDER)
"""Twelve: one four times better than the next, who passes more often and is faster, and eleven that lie close together."""
BOARDS: dict[str, tuple[Agent, ...]] = {
    "the board that the test makes": MADE,
    "the same, but the best always passes": (times(4, LADDER[0], passes=0.5), *LADDER),
    "the same, but the best is only faster": (times(4, LADDER[0], passes=0.0), *LADDER),
    "one four times better than eleven equal": (times(4, Agent(), passes=0.2), *[Agent()] * 11),
    "twelve equal": (Agent(),) * 12,
    "six pairs, each four times the next": tuple(Agent(speed=2.8 * (5 - at // 2)) for at in range(12)),
    "six pairs that always pass": tuple(Agent(passes=0.5, speed=2.0 * (5 - at // 2)) for at in range(12)),
    "six pairs, by passing": tuple(Agent(passes=0.05 - 0.1 * (at // 2)) for at in range(12)),
    "two equal": (Agent(),) * 2,
    "twelve equal, a coin at one problem, spread 0.2": (Agent(spread=0.2, coin=True),) * 12,
    "twelve equal, a coin at one problem, spread 0.4": (Agent(spread=0.4, coin=True),) * 12,
    "twelve equal, a coin at one problem, spread 0.7": (Agent(coin=True),) * 12,
    "three equal, a coin at one problem, spread 0.4": (Agent(spread=0.4, coin=True),) * 3,
    "two equal, a coin at one problem, spread 0.2": (Agent(spread=0.2, coin=True),) * 2,
}


@functools.cache
def _made(outcome: str | float) -> Annotation:
    return trial(outcome, harness="made")


def annotation(agent: str, problem: str, number: int, fraction: float | None) -> Annotation:
    """A run of that agent; `fraction` None: it failed."""
    found = _made("incorrect" if fraction is None else 0.5)
    score = found.score.model_copy(update={"problem": problem} | ({"peak_fraction": fraction} if fraction else {}))
    cell = found.cell.model_copy(update={"problem": problem, "model": agent})
    run_id = f"20260102T030405Z_made_{agent}_{problem}_{number:04x}"
    return found.model_copy(update={"run_id": run_id, "cell": cell, "score": score})


def records(seed: int, agents: Sequence[Agent] = MADE, count: int = 3) -> list[Annotation]:
    """The annotations of a board, with a run of the naive kernel at each problem."""
    draws = random.Random(seed)
    found = [trial(NAIVE, model="naive", problem=problem) for problem in PROBLEMS]
    for at, agent in enumerate(agents):
        for problem, cell in zip(PROBLEMS, agent.draw(draws, count), strict=True):
            fractions = [min(1.0, NAIVE * 2**gain) if gain else None for gain in cell]
            found += [annotation(f"agent-{at:02}", problem, number, each) for number, each in enumerate(fractions)]
    return found


def groups(board: Board) -> list[int]:
    """The group of each agent of a made board, in the order in which they were made."""
    [table] = board.tables
    found = {row.model: row.rank.group for row in table.rows if row.rank}
    return [found[name] for name in sorted(found)]


class Rates(NamedTuple):
    """Shares of boards."""

    best_alone: float
    any_alone: float
    twins_together: float
    false_line: float
    """A row in a better group than one that is as good or better in truth."""
    false_rank: float
    """A row whose rank interval says that more rows are better, or more are worse, than in truth."""


def rates(agents: Sequence[Agent], boards: int, count: int = 3) -> Rates:
    """By the ranks of drawn trials, without records."""
    true = [round(agent.gain(), 9) for agent in agents]
    wrong = [(a, b) for a in range(len(agents)) for b in range(len(agents)) if a != b and true[a] <= true[b]]
    tally = Counter[str]()
    for seed in range(boards):
        draws = random.Random(seed)
        found = ranks([agent.draw(draws, count) for agent in agents])
        sizes = Counter(rank.group for rank in found)
        tally["best"] += sizes[found[BEST].group] == 1
        tally["any"] += 1 in sizes.values()
        tally["twins"] += len(agents) <= TWINS[1] or found[TWINS[0]].group == found[TWINS[1]].group
        tally["line"] += any(found[a].group < found[b].group for a, b in wrong)
        tally["rank"] += any(
            rank.best > 1 + sum(other > mine for other in true) or rank.worst < len(true) - sum(other < mine for other in true)
            for mine, rank in zip(true, found, strict=True)
        )
    return Rates(*(tally[key] / boards for key in ("best", "any", "twins", "line", "rank")))


def acceptance(boards: int) -> tuple[float, float]:
    """Of boards rendered from annotations: how often the two equal agents share a group, and the best stands alone."""
    together = alone = 0
    for seed in range(boards):
        found = groups(leaderboard.build(records(seed)))
        together += found[TWINS[0]] == found[TWINS[1]]
        alone += found.count(found[BEST]) == 1
    return together / boards, alone / boards


def main() -> None:
    """Print the rates."""
    import scipy

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=400)
    parser.add_argument("--all", action="store_true", help="also the other boards of docs/statistics.md")
    chosen = parser.parse_args()
    together, alone = acceptance(chosen.boards)
    print(f"{chosen.boards} boards of {len(MADE)} agents, {len(PROBLEMS)} problems, 3 trials of each")
    print(f"two equal agents are in one group: {together:.1%}")
    print(f"one four times better is alone:    {alone:.1%}")
    if chosen.all:
        print(f"Python {platform.python_version()}, scipy {scipy.__version__}; best alone, any alone, false line, false rank")
        for name, agents in BOARDS.items():
            found = rates(agents, chosen.boards)
            print(f"{name:48} {found.best_alone:6.1%} {found.any_alone:6.1%} {found.false_line:6.1%} {found.false_rank:6.1%}")


if __name__ == "__main__":
    main()
