"""Write docs/tables/margins.md: the room of solutions that should pass, and how far off the nearest wrong one is, on a CPU.

`scripts/honest_margins.py [--seeds N] [--wrong-seeds N] [PROBLEM ...]` measures in this process, without a sandbox or a clock.
Lines of problems that are not named stay.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from shipped import Shipped, Tensors

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "problems"))
PAGE = ROOT / "docs" / "tables" / "margins.md"
HEAD = """\
# What room honest solutions have

Written by `scripts/honest_margins.py`. Of each solution that should pass, on the timed shapes for the CPU and on the hidden
ones: the worst error of all outputs as a part of its limit, over {seeds} seeds each. `stress` is the worst of the stress
classes. 0.50 is half of what is allowed. `exact, rounded` is the reference in the outputs' types, below which no kernel is.
A solution named `beyond_` rounds more than the prompt allows. It passes, and no room is promised. {machine}, torch {torch}.

| problem, version | solution | public | stress | worst metric, in class |
|---|---|---|---|---|
"""
NEAREST = """
## The nearest wrong solution

Of each solution that must be `incorrect`: its error over the limit in the class of inputs where it is largest, with the luckiest
of {wrong_seeds} seeds there. The least of them, and the next. Above 1.00 a check of one input set of each shape rejects it.
`topk_bitonic` allows no error, so nothing is near.

| problem, version | nearest | error / limit | metric, in class | next | error / limit |
|---|---|---|---|---|---|
"""
EXACT = "exact, rounded"


class Found(NamedTuple):
    """The largest error of one answer over its limit, and which it is."""

    part: float
    metric: str


def measured(name: str, seeds: int, wrong_seeds: int) -> dict[str, dict[tuple[str, int], Found]]:
    """By solution, then by input class and seed: its worst error over the limit, on any shape."""
    from shipped import Shipped, verdict_of

    problem = Shipped(name)
    stems = [path.stem for path in problem.paths if not path.stem.startswith("cheat_") and not path.stem.endswith("_gpu")]
    stems = [stem for stem in stems if verdict_of(problem.folder / f"{stem}.py") in ("passed", "incorrect")]
    if not any(problem.facts.tolerance.values()):  # what is not exact is wrong, and nothing is near
        stems = [stem for stem in stems if not stem.startswith("wrong_")]
    answers = {stem: problem.solution(stem) for stem in stems}
    found: dict[str, dict[tuple[str, int], Found]] = {stem: {} for stem in (EXACT, *stems)}
    for input_class in problem.input_classes:
        for shape in problem.shapes:
            for seed in range(seeds):
                inputs = problem.make(shape, seed, input_class)
                refs = problem.code.outputs(inputs)
                exact = tuple(ref.to(out.dtype) for ref, out in zip(refs, problem.buffers(shape), strict=True))
                for stem, kept in found.items():
                    if stem.startswith("wrong_") and seed >= wrong_seeds:
                        continue
                    # Some wrong solutions change their inputs.
                    own = inputs if stem == EXACT else tuple(each.clone() for each in inputs)
                    worst = worst_of(problem, exact if stem == EXACT else answers[stem](*own), inputs, refs)
                    kept[input_class, seed] = max(worst, kept.get((input_class, seed), worst))
    return found


def worst_of(problem: Shipped, outs: Tensors, inputs: Tensors, refs: Tensors) -> Found:
    """The worst error of one answer over its limit; infinite for what is not a number."""
    errors = problem.errors(outs, inputs, refs)
    parts = [(errors[metric] / most if most else errors[metric], metric) for metric, most in problem.facts.tolerance.items()]
    return max(Found(math.inf if math.isnan(part) else part, metric) for part, metric in parts)


def honest_lines(title: str, found: Mapping[str, Mapping[tuple[str, int], Found]]) -> Iterator[str]:
    """One line for each solution that should pass."""
    for stem, kept in found.items():
        if stem.startswith("wrong_"):
            continue
        public, stress = (max(each.part for key, each in kept.items() if (key[0] == "public") == of) for of in (True, False))
        (input_class, _), worst = max(kept.items(), key=lambda item: item[1])
        yield f"| {title} | {stem} | {public:.2f} | {stress:.2f} | {worst.metric}, {input_class} |"


def nearest_lines(title: str, found: Mapping[str, Mapping[tuple[str, int], Found]]) -> Iterator[str]:
    """One line on the wrong solutions that are least wrong, where any were measured."""
    least = []
    for stem, kept in found.items():
        if stem.startswith("wrong_") and kept:
            luckiest = {name: min(each for key, each in kept.items() if key[0] == name) for name, _ in kept}
            input_class, worst = max(luckiest.items(), key=lambda item: item[1])
            least.append((worst, input_class, stem))
    if least:
        (worst, input_class, stem), (following, _, after) = sorted(least)[:2]
        yield f"| {title} | {stem} | {worst.part:.2f} | {worst.metric}, {input_class} | {after} | {following.part:.2f} |"


def main() -> None:
    """Measure the named problems, or all, and write the page after each."""
    from arena import catalog
    from arena.system.provenance import processor

    parser = argparse.ArgumentParser(description="Measure the room of honest solutions.")
    parser.add_argument("problems", nargs="*", default=list(catalog.problems()))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--wrong-seeds", type=int, default=2, help="of those, for solutions that must be incorrect")
    options = parser.parse_args()
    kept = PAGE.read_text().splitlines() if PAGE.exists() else []
    lines = [line for line in kept if line.startswith("| ") and line.split()[1] in catalog.problems()]
    machine = f"{processor()}, Python {platform.python_version()}"
    head = HEAD.format(seeds=options.seeds, machine=machine, torch=torch.__version__)
    for name in options.problems:
        title, found = f"{name} {catalog.problem(name).version}", measured(name, options.seeds, options.wrong_seeds)
        lines = [line for line in lines if line.split()[1] != name]
        lines = sorted([*lines, *honest_lines(title, found), *nearest_lines(title, found)])
        honest, nearest = ([line for line in lines if line.count("|") == bars] for bars in (6, 7))
        second = NEAREST.format(wrong_seeds=options.wrong_seeds)
        PAGE.write_text("\n".join([head + honest[0], *honest[1:], second + "\n".join(nearest), ""]))


if __name__ == "__main__":
    main()
