"""Write docs/tables/margins.md: of every solution that should pass, the worst error as a part of its limit, on the CPU's shapes.

`scripts/honest_margins.py [--seeds N] [PROBLEM ...]` measures in this process, without a sandbox or a clock. Lines of problems
that are not named stay.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "problems"))
PAGE = ROOT / "docs" / "tables" / "margins.md"
HEAD = """\
# What room honest solutions have

Written by `scripts/honest_margins.py`. Of each solution that should pass, on the timed shapes for the CPU and on the hidden
ones: the worst error of all outputs as a part of its limit, over {seeds} seeds each. `stress` is the worst of the stress
classes. 0.50 is half of what is allowed. {machine}, torch {torch}.

| problem, version | solution | public | stress | worst metric, in class |
|---|---|---|---|---|
"""


def rows(name: str, seeds: int) -> Iterator[str]:
    """One line for each solution of a problem."""
    from shipped import Shipped, verdict_of

    problem = Shipped(name)
    stems = [path.stem for path in problem.paths if verdict_of(path) == "passed" and not path.stem.endswith("_gpu")]
    honest = {stem: problem.solution(stem) for stem in stems}
    worst: dict[tuple[str, str, str], float] = {}
    for input_class in problem.input_classes:
        for shape in problem.shapes:
            for seed in range(seeds):
                inputs = problem.make(shape, seed, input_class)
                refs = problem.code.outputs(inputs)
                for stem, solution in honest.items():
                    found = problem.errors(solution(*inputs), inputs, refs)
                    for metric, most in problem.facts.tolerance.items():
                        part = found[metric] / most if most else found[metric]
                        worst[stem, input_class, metric] = max(part, worst.get((stem, input_class, metric), 0.0))
    for stem in stems:
        of = {key[1:]: part for key, part in worst.items() if key[0] == stem}
        public = max(part for (input_class, _), part in of.items() if input_class == "public")
        stress = max(part for (input_class, _), part in of.items() if input_class != "public")
        (input_class, metric), _ = max(of.items(), key=lambda item: item[1])
        yield f"| {name} {problem.facts.version} | {stem} | {public:.2f} | {stress:.2f} | {metric}, {input_class} |"


def main() -> None:
    """Measure the named problems, or all, and write the page after each."""
    from arena import catalog
    from arena.system.provenance import processor

    parser = argparse.ArgumentParser(description="Measure the room of honest solutions.")
    parser.add_argument("problems", nargs="*", default=list(catalog.problems()))
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    kept = PAGE.read_text().splitlines() if PAGE.exists() else []
    found = [line for line in kept if line.startswith("| ") and line.split()[1] in catalog.problems()]
    machine = f"{processor()}, Python {platform.python_version()}"
    head = HEAD.format(seeds=options.seeds, machine=machine, torch=torch.__version__)
    for name in options.problems:
        found = sorted([*(line for line in found if line.split()[1] != name), *rows(name, options.seeds)])
        PAGE.write_text(head + "\n".join(found) + "\n")


if __name__ == "__main__":
    main()
