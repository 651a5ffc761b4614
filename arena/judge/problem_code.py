"""Load a problem's own Python: the reference and the hidden side. Trusted files of the catalogue, never a workspace's copy."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch

from arena import catalog, paths
from arena.errors import DataError
from arena.schema import Hardware, Problem, Profile, Rate

Shape = Mapping[str, int]
Inputs = tuple[torch.Tensor, ...]
Measured = tuple[str, dict[str, float], Callable[[], str]]
"""(outputs compared, worst error of each metric, function that describes where the worst error is)."""
MakeInputs = Callable[[Shape, int, str, str], Inputs]
_loading = threading.Lock()
"""Each score loads a problem's modules again, and two scores may be taken at once."""


@dataclass(frozen=True)
class ProblemCode:
    """What the judge runs of a problem, and the correctness check that the kit defines."""

    make_public: MakeInputs
    make_hidden: MakeInputs
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    input_classes: tuple[str, ...]
    """Names of the hidden input classes."""
    extra_shapes: tuple[Shape, ...]
    """Shapes that are checked and never timed."""
    rate: Rate
    """The arithmetic whose peak bounds the operator."""
    own_check: bool
    """Whether the problem measures errors in its own way (`correctness` in problem.yaml)."""
    measure: Callable[[Inputs, Inputs, Inputs], list[Measured]]
    """Errors of (outputs, reference's outputs, inputs), as `measure` of the kit's check.py returns them."""
    finite: Callable[[torch.Tensor], bool]
    """The kit's: True where all numbers are finite, in one pass. False where one is not, or where their sum overflows."""

    def make_inputs(self, shape: Shape, seed: int, input_class: str, device: str) -> Inputs:
        """One input set of the public distribution or of a hidden class."""
        make = self.make_public if input_class == "public" else self.make_hidden
        return make(shape, seed, input_class, device)

    def outputs(self, inputs: Inputs) -> tuple[torch.Tensor, ...]:
        """The reference's outputs in high precision, always as a tuple."""
        result = self.reference(*inputs)
        return result if isinstance(result, tuple) else (result,)


def load(problem: Problem, profile: Profile, folder: Path | None = None) -> ProblemCode:
    """The code of `problem`, from `folder` where it is not in problems/; DataError when a file breaks the contract."""
    folder = folder or catalog.problem_folder(problem.name)
    package = f"arena_problem_{problem.name}"
    with _loading:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(folder)]
        reference = _module(folder / "reference.py", f"{package}.reference")
        hidden = _module(folder / "hidden.py", f"{package}.hidden")
        check = kit("check")
        measure = _measure(problem, reference, check)
    rate = _attribute(hidden, "CEILING_DTYPE")
    if rate not in get_args(Rate):
        raise DataError(f"{hidden.__file__}: CEILING_DTYPE is {rate!r}; it must be one of {', '.join(get_args(Rate))}")
    return ProblemCode(
        make_public=_attribute(reference, "make_inputs"),
        make_hidden=_attribute(hidden, "make_inputs"),
        reference=_attribute(reference, "reference"),
        input_classes=tuple(_attribute(hidden, "INPUT_CLASSES")),
        extra_shapes=tuple(_attribute(hidden, "EXTRA_SHAPES").get(profile, ())),
        rate=rate,
        own_check=bool(problem.correctness),
        measure=measure,
        finite=_attribute(check, "finite"),
    )


def lacking(problem: Problem, rate: Rate, hardware: Hardware, known: Iterable[Rate]) -> str:
    """Why the problem has no ceiling on that hardware, whose arithmetics are `known`; empty where it has one."""
    known = tuple(known)
    if rate in known:
        return ""
    text = f"{hardware.title} has no {rate} arithmetic, whose peak bounds {problem.name} (it has {', '.join(known)})"
    return f"{text}: choose another problem or other hardware"


def _measure(problem: Problem, reference: ModuleType, check: ModuleType) -> Callable[[Inputs, Inputs, Inputs], list[Measured]]:
    """The kit's `measure` for this problem; DataError when problem.yaml and reference.py define different correctness checks."""
    defined = [name for name in ("errors", "worst") if hasattr(reference, name)]
    if len(defined) != (2 if problem.correctness else 0):
        raise DataError(
            f"{reference.__file__}: defines {' and '.join(defined) or 'neither errors nor worst'}: "
            "define both where problem.yaml has `correctness`, and neither where it has not"
        )
    measure = _attribute(check, "measure")
    names = [tensor.name for tensor in problem.outputs]

    def measured(outs: Inputs, refs: Inputs, inputs: Inputs) -> list[Measured]:
        found: list[Measured] = measure(reference, problem.tolerance, names, outs, refs, inputs)
        for _, errors, _ in found:
            if errors.keys() != problem.tolerance.keys():
                names_measured = f"{reference.__file__}: errors() measures {', '.join(errors)}"
                raise DataError(f"{names_measured}; problem.yaml has a tolerance for {', '.join(problem.tolerance)}")
        return found

    return measured


def kit(stem: str) -> ModuleType:
    """A module of `problems/kit/`, whose files every workspace gets a copy of."""
    return _module(paths.problems() / "kit" / f"{stem}.py", f"arena_kit_{stem}")


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DataError(f"{path}: not found")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}") from None
    except ImportError as error:
        raise DataError(f"{path}: {error}") from None
    return module


def _attribute(module: ModuleType, name: str) -> Any:  # noqa: ANN401  a problem's file may hold anything
    try:
        return getattr(module, name)
    except AttributeError:
        text = f"{module.__file__}: does not define {name}, which every problem must define (see CONTRIBUTING.md)"
        raise DataError(text) from None
