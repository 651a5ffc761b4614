"""Make the demonstration: built-in agents on every problem on the CPU, timed in brief, into `$ARENA_HOME`, which must be new.

    ARENA_HOME=.cache/demonstration python scripts/demonstration.py

Sessions, judge and records are those of `arena run`. Only the timing is brief, as `arena check` has it for most solutions:
one process and three windows instead of three and seven or more. The pages say so. Exit code 1 when a built-in agent gets
another verdict than it must.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

from arena import catalog, paths, plan, run_cell
from arena.authoring.check import BRIEF
from arena.results.run_folder import read_state
from arena.schema import Annotation, Passed, Verdict

TRIES = 3
"""Scores of a run whose judge fails, as on a machine that is busy for a moment."""


class DemonstrationCell(NamedTuple):
    """One run."""

    problem: str
    model: str
    verdict: Verdict
    """That it must get."""


SLOW_NAIVE = {"kahan_softmax", "kda_cutlass"}
"""Problems without a run of `naive`, which alone takes as long as three other runs there."""


def cells() -> list[DemonstrationCell]:
    """Honest agents on every problem, one that leaves nothing, three cheats, and last one with two states of its solution."""
    pairs = [(name, model) for name in catalog.problems() for model in ("oracle", "naive")]
    return [
        *(DemonstrationCell(*pair, "passed") for pair in pairs if pair[1] != "naive" or pair[0] not in SLOW_NAIVE),
        DemonstrationCell("paged_attention", "nop", "missing"),
        DemonstrationCell("paged_attention", "cheat/forge_reply", "cheated"),
        DemonstrationCell("topk_bitonic", "cheat/moves_winners", "incorrect"),
        DemonstrationCell("w4a16_gemm", "cheat/weights_by_pointer", "incorrect"),
        DemonstrationCell("paged_attention", "climb", "passed"),
    ]


def run(cell: DemonstrationCell) -> Annotation:
    """Play the session and score its submission, again where the judge fails."""
    run_id = run_cell.play_cell(plan.plan(cell.problem, cell.model, hardware="cpu", budget="10m"))
    for _ in range(TRIES):
        annotation = run_cell.judge_run(read_state(paths.workspaces(), run_id), sampling=BRIEF["cpu"])
        if annotation.score.verdict != "judge_failed":
            break
    return annotation


def main() -> int:
    """Run all cells, one after the other."""
    if "ARENA_HOME" not in os.environ or paths.annotations().exists():
        print("name a new folder for these results with ARENA_HOME: they are timed in brief", file=sys.stderr)
        return 2
    start_s, wrong = time.monotonic(), 0
    for cell in cells():
        score = run(cell).score
        reached = f"{score.peak_fraction:.4f}" if isinstance(score, Passed) else score.message
        if score.verdict != cell.verdict:
            wrong, reached = wrong + 1, f"must be {cell.verdict}: {reached}"
        took = f"{time.monotonic() - start_s:4.0f} s"
        print(f"{took}  {cell.problem:20} {cell.model:25} {score.verdict:10} {reached}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
