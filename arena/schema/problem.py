"""`problems/<name>/problem.yaml`: the public facts of a problem, and the formulas of its work."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from string import Formatter
from typing import Literal

from pydantic import Field, model_validator

from arena.schema import version_1
from arena.schema.common import KIT_METRICS, DType, Name, Positive, Profile, Rate, Record, Shape, Tolerance

VendorLibrary = Literal["cuBLAS", "cuDNN", "cuSPARSE", "cuTENSOR", "TensorRT"]
"""Libraries of ready-made kernels. cuBLAS stands for cuBLASLt, cuBLASXt and cuBLASMp too, cuSPARSE for cuSPARSELt."""
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class Tensor(Record):
    """One argument or result of the operator, as the prompt states it."""

    name: str
    shape: tuple[str | int, ...]
    """Sizes: names from the problem's shape, or names that the note explains."""
    dtype: DType
    note: str = ""


class CountedWork(Record):
    """The work of one call at one shape, as a number."""

    flops: float = Field(ge=0, allow_inf_nan=False)
    """`0` where memory bounds the shape, whatever is computed."""
    bytes: Positive


class Work(Record):
    """The operator's algorithmic work: formulas over the shape's names (`+ - * / // **`), or one pair of numbers a shape."""

    flops: Literal[0] | str | None = None
    """`0` declares that memory bounds every shape, whatever is computed."""
    bytes: str | None = None
    counted: Mapping[Profile, tuple[CountedWork, ...]] = {}
    """In place of the formulas, for the shapes of `shapes` and then of `latency`, in their order."""

    @model_validator(mode="after")
    def _formulas_or_numbers(self) -> Work:
        if self.counted and (self.flops is not None or self.bytes is not None):
            raise ValueError("counted: leave out `flops` and `bytes`, whose place it takes")
        if not self.counted and (self.flops is None or self.bytes is None):
            raise ValueError("write the formulas `flops` and `bytes`, or `counted` numbers")
        return self


class RuleSets(Record):
    """`problems/kit/rules.yaml`: sets of forbidden names, which a problem names as `@<set>`."""

    schema_version: Literal[1]
    sets: Mapping[Name, tuple[str, ...]]


class Problem(Record):
    """`problems/<name>/problem.yaml`: the public facts. The agent's prompt is built from them alone."""

    schema_version: Literal[2]
    name: Name
    """The folder's name; not written in the file."""
    version: int = Field(ge=1)
    title: str
    operator: str
    """The computation, in the words and symbols of the prompt."""
    inputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    """`solution(*inputs, *outputs)` writes into these in place and returns None."""
    shapes: Mapping[Profile, tuple[Shape, ...]]
    latency: Mapping[Profile, tuple[Shape, ...]] = {}
    """Shapes too small for a meaningful ceiling. They are checked and timed like the others, and reported in microseconds without
    a score."""
    tolerance: Tolerance
    correctness: str = ""
    """The problem's own correctness check in the words of the prompt, with `{metric}` in place of each tolerance. Empty when the
    kit's metrics apply. `errors` and `worst` in reference.py measure it."""
    work: Work
    imported: bool = False
    """True for a problem that a program converted from another benchmark. It has no oracle written by hand: the problem check
    does not ask that its oracle is faster than naive."""
    distribution: str
    """The distribution of the public inputs, in words."""
    stress: tuple[str, ...] = ()
    """Further input classes that a solution must handle, in words; never their seeds."""
    forbidden: tuple[str, ...] = ()
    """Dotted names that a solution may not import or call, resolved through aliases. A trailing `.*` covers a module, a bare `*`
    every name with that start. `torch.Tensor.x` covers `.x` of every possible tensor, `operator.matmul` the operator `@`.
    `@torch-compute` stands for a set of problems/kit/rules.yaml."""
    arithmetic: Rate | None = None
    """The arithmetic of the tensor cores when compute is the bound. A score whose counters show less of it says so."""
    excluded_arithmetic: tuple[Rate, ...] = ()
    """What the tensor cores may not multiply. A submission whose counters show more than traces of it is `forbidden`."""
    forbidden_kernels: tuple[str, ...] = ()
    """Names of GPU kernels that no call may launch (`*` and `?` as in file names): kernels of forbidden libraries."""

    absent_libraries: tuple[VendorLibrary, ...] = ()
    """Libraries that are not there when a submission runs on a GPU, static or shared. A call to one ends the submission, with the
    verdict `forbidden`."""

    _read_version_1 = model_validator(mode="before")(version_1.problem)

    @model_validator(mode="after")
    def _every_shape_is_listed_once(self) -> Problem:
        for key, profiles in (("latency", self.latency), ("shapes", self.shapes)):
            for profile, shapes in profiles.items():
                if profile not in self.shapes:
                    raise ValueError(f"{key}.{profile}: `shapes` has none for this profile, and a score needs some")
                if not shapes:
                    raise ValueError(f"{key}.{profile}: a profile needs at least one shape")
                for shape in shapes:
                    if self.timed(profile).count(shape) > 1:
                        raise ValueError(f"{key}.{profile}: {dict(shape)} is listed twice (`shapes` and `latency` share none)")
        return self

    @model_validator(mode="after")
    def _every_shape_has_the_output_sizes(self) -> Problem:
        for tensor, shape in product(self.outputs, (shape for profile in self.shapes for shape in self.timed(profile))):
            for size in tensor.shape:
                if isinstance(size, str) and size not in shape:
                    raise ValueError(
                        f"outputs.{tensor.name}: {size!r} is no size of shape {dict(shape)}: "
                        f"write a name that every shape has, or an integer"
                    )
        return self

    @model_validator(mode="after")
    def _counted_work_fits_the_shapes(self) -> Problem:
        if extra := self.work.counted.keys() - self.shapes.keys():
            raise ValueError(f"work.counted.{min(extra)}: shapes has no such profile")
        for profile in self.shapes if self.work.counted else ():
            numbers, shapes = len(self.work.counted.get(profile, ())), len(self.timed(profile))
            if numbers != shapes:
                raise ValueError(f"work.counted.{profile}: has {numbers} entries, and the profile has {shapes} shapes")
        return self

    @model_validator(mode="after")
    def _formulas_fit_the_shapes(self) -> Problem:
        if self.work.counted:
            return self
        formulas = {"bytes": str(self.work.bytes)} | ({"flops": str(self.work.flops)} if self.work.flops != 0 else {})
        for shape in (shape for profile in self.shapes for shape in self.timed(profile)):
            for key, formula in formulas.items():
                try:
                    value = evaluate(formula, shape)
                except ValueError as error:
                    raise ValueError(f"work.{key}: {formula!r}: {error}") from None
                if not (math.isfinite(value) and value > 0):
                    hint = "; `flops: 0` declares a problem that memory bounds" if key == "flops" else ""
                    raise ValueError(f"work.{key}: {formula!r} is {value} for shape {dict(shape)}; it must be positive{hint}")
        return self

    @model_validator(mode="after")
    def _correctness_names_the_tolerances(self) -> Problem:
        if not self.correctness and set(self.tolerance) != set(KIT_METRICS):
            raise ValueError(
                f"tolerance: without `correctness` it names {', '.join(KIT_METRICS)}, not {', '.join(self.tolerance)}"
            )
        try:
            named = {name for _, name, _, _ in Formatter().parse(self.correctness) if name is not None}
        except ValueError as error:
            raise ValueError(f"correctness: {error}") from None
        due = {metric for metric, most in self.tolerance.items() if most > 0}  # an error that must be 0 needs no number
        if self.correctness and not due <= named <= set(self.tolerance):
            raise ValueError(f"correctness: must hold {', '.join(f'{{{metric}}}' for metric in self.tolerance)}, the tolerances")
        return self

    def timed(self, profile: Profile) -> tuple[Shape, ...]:
        """The scored shapes and then those of the latency class."""
        return (*self.shapes[profile], *self.latency.get(profile, ()))

    def correctness_text(self) -> str:
        """The text of the problem's own correctness check, with its numbers."""
        return self.correctness.strip().format(**{metric: f"{most:g}" for metric, most in self.tolerance.items()})

    def flops(self, shape: Mapping[str, int]) -> float:
        """Floating-point operations of one call (a multiply-add counts two); 0 where memory bounds the problem by declaration."""
        return self._counted(shape).flops if self.work.counted else evaluate(str(self.work.flops), shape)

    def bytes(self, shape: Mapping[str, int]) -> float:
        """Compulsory DRAM traffic of one call in bytes."""
        return self._counted(shape).bytes if self.work.counted else evaluate(str(self.work.bytes), shape)

    def _counted(self, shape: Mapping[str, int]) -> CountedWork:
        """The counted work of a timed shape; ValueError for any other."""
        for profile, numbers in self.work.counted.items():
            # Not strict: a copy of the problem may lack its latency shapes, which are last.
            for timed, number in zip(self.timed(profile), numbers, strict=False):
                if dict(timed) == dict(shape):
                    return number
        raise ValueError(f"{self.name}: work.counted has no numbers for the shape {dict(shape)}")


def evaluate(formula: str, names: Mapping[str, int]) -> float:
    """The value of a formula of names, numbers and `+ - * / // **`; ValueError when it holds anything else, or has no value."""
    try:
        return float(_value(_parsed(formula), names))
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from None


@cache  # a score asks for the same few formulas again and again
def _parsed(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a formula ({error.msg})") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> float:
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Name(name):
            raise ValueError(f"unknown name {name!r} (the shape has {', '.join(names)})")
    raise ValueError(f"{ast.unparse(node)!r} is not allowed: use names, numbers and + - * / // **")
