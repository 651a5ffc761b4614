"""A shipped problem as its tests use it: its facts, its code, and its solutions as functions that give their outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from arena import catalog, paths
from arena.judge import problem_code, verify

KIT = problem_code.kit("benchmark")
SEEDS = (1, 2**40 + 3, 2**62 + 5)
Tensors = tuple[torch.Tensor, ...]


def words(shape: Mapping[str, int]) -> str:
    """A shape as the name of a test."""
    return "-".join(f"{name}{size}" for name, size in shape.items())


class Shipped:
    """One problem of problems/, on its CPU shapes."""

    def __init__(self, name: str) -> None:
        self.facts = catalog.problem(name)
        self.code = problem_code.load(self.facts, "cpu")
        self.reference, self.hidden = (sys.modules[f"arena_problem_{name}.{part}"] for part in ("reference", "hidden"))
        self.folder = paths.problems() / name / "solutions"
        self.paths = sorted(self.folder.glob("*.py"))
        self.public = [dict(shape) for shape in self.facts.shapes["cpu"]]
        self.shapes = self.public + [dict(shape) for shape in self.code.extra_shapes]
        self.input_classes = ("public", *self.code.input_classes)
        self.wrong = [path.stem for path in self.paths if path.stem.startswith("wrong_") and not path.stem.endswith("_gpu")]

    def make(self, shape: Mapping[str, int], seed: int, input_class: str = "public") -> Tensors:
        """One input set."""
        return self.code.make_inputs(shape, seed, input_class, "cpu")

    def errors(self, outs: Tensors, inputs: Tensors, refs: Tensors | None = None) -> dict[str, float]:
        """The worst errors of an answer, over all outputs."""
        found = [each for _, each, _ in self.code.measure(outs, self.code.outputs(inputs) if refs is None else refs, inputs)]
        return {metric: max(each[metric] for each in found) for metric in self.facts.tolerance}

    def within(self, errors: Mapping[str, float], share: float = 1) -> bool:
        """Whether every error is at most this share of the tolerance."""
        return verify.within_tolerance(errors, {metric: most * share for metric, most in self.facts.tolerance.items()})

    def accepts(self, outs: Tensors, inputs: Tensors, refs: Tensors | None = None) -> bool:
        """Whether an answer is within the tolerance."""
        return self.within(self.errors(outs, inputs, refs))

    def written(self, stem: str) -> Callable[..., object]:
        """The solution as the judge calls it."""
        return KIT.load_solution(self.folder / f"{stem}.py")

    def solution(self, stem: str) -> Callable[..., Tensors]:
        """The solution as a function that returns the outputs that it was given."""
        call = self.written(stem)

        def answer(*inputs: torch.Tensor) -> Tensors:
            outputs = self.buffers(self._sizes(inputs))
            KIT.fill(call, inputs, outputs)
            return outputs

        return answer

    def buffers(self, shape: Mapping[Any, int]) -> Tensors:
        """Outputs that hold no answer yet."""
        return KIT.output_buffers(self.facts.model_dump(), shape, "cpu")

    def _sizes(self, inputs: Tensors) -> dict[str | int, int]:
        """The sizes that the inputs show."""
        pairs = zip(self.facts.inputs, inputs, strict=True)
        found = {name: size for declared, t in pairs for name, size in zip(declared.shape, t.shape, strict=True)}
        return found | ({"I": found["2I"] // 2} if "2I" in found else {})

    @cached_property
    def honest(self) -> dict[str, Callable[..., Tensors]]:
        """Both honest solutions; the oracle is compiled once."""
        return {stem: self.solution(stem) for stem in ("oracle", "naive")}


def usual(rows: int, classes: Mapping[str, slice]) -> torch.Tensor:
    """(rows) bool: True for the rows of a public set that are of no stress class."""
    found = torch.ones(rows, dtype=torch.bool)
    for hard in classes.values():
        found[hard] = False
    return found


def verdict_of(path: Path) -> str:
    """The verdict on a solution's first line."""
    return path.read_text().partition("\n")[0].removeprefix("# verdict: ")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread, as a score on a processor does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
