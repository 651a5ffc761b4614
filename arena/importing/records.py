"""What a program in the sandbox reports of a task, and what an import leaves beside its problems. A report is hostile data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from arena.schema import KIT_METRICS, DType, Metric, Name, Record, Tolerance

Number = Annotated[int, Field(ge=0, le=2**48)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=48)]
Path_ = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=160)]
Sizes = Annotated[tuple[Number, ...], Field(max_length=8)]
Arithmetic = Literal["fp32", "tf32", "bf16"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Given = Mapping[str, Mapping[str, int]]
"""Sizes that a user chose: profile, name."""
Bytes = Annotated[int, Field(gt=0, le=2**48)]
WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of an element; 1 of any other type."""
LEAST_GAP = 16.0
"""The next coarser arithmetic must be so many times as far off as the allowed one, by one metric at least."""
MOST_TOLERANCE = 0.5


class Trace(Record):
    """One call at one shape."""

    shape: Annotated[Mapping[Word, Number], Field(max_length=64)]
    inputs: Annotated[tuple[tuple[DType, Sizes], ...], Field(min_length=1, max_length=256)]
    outputs: Annotated[tuple[tuple[DType, Sizes], ...], Field(min_length=1, max_length=1)]
    flops: Number
    bytes: Bytes

    @model_validator(mode="after")
    def _adds_up(self) -> Trace:
        found = sum(WIDTHS.get(dtype, 1) * math.prod(sizes) for dtype, sizes in (*self.inputs, *self.outputs))
        if found != self.bytes:
            raise ValueError(f"says {self.bytes} bytes, and its tensors have {found}")
        return self

    def ranks(self) -> list[tuple[str, int]]:
        """Type and number of dimensions of each tensor."""
        return [(dtype, len(sizes)) for dtype, sizes in (*self.inputs, *self.outputs)]


class Probed(Record):
    """A task's tensors and sizes, and nothing that contradicts itself: the host's code relies on it."""

    sizes: Annotated[Mapping[Word, tuple[Number, Number]], Field(min_length=1, max_length=64)]
    """Where each size stands: input, dimension."""
    gpu: Trace
    cpu: Trace
    original: Trace
    parameters: Annotated[tuple[Path_, ...], Field(max_length=256)]
    forward: Annotated[int, Field(ge=1, le=64)]
    scalars: Annotated[
        tuple[tuple[Number, bool | int | Finite | Annotated[str, Field(max_length=200)] | None], ...], Field(max_length=16)
    ]

    @model_validator(mode="after")
    def _agrees(self) -> Probed:
        traces = (self.gpu, self.cpu, self.original)
        if any(trace.ranks() != self.gpu.ranks() for trace in traces):
            raise ValueError("the tensors of one profile have other types or dimensions than those of another")
        if self.forward + len(self.parameters) != len(self.gpu.inputs):
            raise ValueError(f"{len(self.gpu.inputs)} inputs are not {self.forward} and {len(self.parameters)} parameters")
        if len(set(self.parameters)) != len(self.parameters):
            raise ValueError("two parameters have one name")
        places = [place for place, _ in self.scalars]
        if places != sorted(set(places)) or any(place >= self.forward + len(places) for place in places):
            raise ValueError(f"the places {places} are no places of arguments")
        for name, (number, place) in self.sizes.items():
            for trace in traces:
                sizes = trace.inputs[number][1] if number < len(trace.inputs) else ()
                if place >= len(sizes) or sizes[place] != trace.shape.get(name):
                    raise ValueError(f"the size {name} does not stand where it says")
        return self


class Measured(Record):
    """A task's gate."""

    tolerance: Tolerance
    gap: Annotated[Mapping[Metric, Ratio], Field(min_length=1)]
    """How many times as far off as the allowed arithmetic the next coarser one is."""
    low: Mapping[Metric, Ratio]
    classes: tuple[Literal["scaled", "signed", "weights"], ...]
    dropped: Mapping[Literal["scaled", "signed", "weights"], Annotated[str, Field(max_length=200)]]
    weights_vary: bool

    @model_validator(mode="after")
    def _is_a_gate(self) -> Measured:
        if set(self.tolerance) != set(KIT_METRICS) or set(self.gap) != set(KIT_METRICS):
            raise ValueError(f"the metrics are {', '.join(KIT_METRICS)}")
        if max(self.gap.values()) < LEAST_GAP:
            raise ValueError(f"a gap below {LEAST_GAP:g} by every metric")
        if not all(0 < value <= MOST_TOLERANCE for value in self.tolerance.values()):
            raise ValueError(f"a tolerance beyond {MOST_TOLERANCE:g}, or of zero")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class twice")
        return self


class Imported(Record):
    """One task and what became of it."""

    source: str
    """The file and the folder around it, such as `level1/23_Softmax.py`; of a definition also its name."""
    sha256: str
    problem: Name | None = None
    """None where the task is unfit."""
    unfit: str = ""
    arithmetic: Arithmetic
    rules: bool = False
    """Whether torch's own computing is forbidden."""
    given: Mapping[str, Mapping[str, int]] = {}
    """Sizes that the user chose."""
    commit: str = ""
    """Of the source's git repository; empty where it is none."""
    licence: tuple[str, ...] = ()
    arena_version: str = ""
    original_bytes: Bytes | None = None
    """Of one call at the benchmark's own sizes."""
    bytes: Bytes | None = None
    original: Mapping[str, int] = {}
    shape: Mapping[str, int] = {}
    """The sizes on a GPU."""
    tolerance: Mapping[Metric, float] = {}
    gap: Mapping[Metric, float] = {}
    classes: tuple[str, ...] = ()
    dropped: Mapping[str, str] = {}
    """Classes that cannot be judged, with the reason; and `workloads`, those of a definition that are no shapes."""
    theirs: Mapping[str, float] = {}
    """The tolerance of the benchmark itself, where a workload names one. It is not used."""

    def same(self, other: Imported) -> bool:
        """Whether both are of one file, with the same choices, and by the same arena."""
        fields = ("source", "sha256", "arithmetic", "rules", "given", "arena_version")
        return all(getattr(self, field) == getattr(other, field) for field in fields)


class Import(Record):
    """`import.yaml`: where problems came from."""

    schema_version: Literal[1] = 1
    benchmark: Literal["kernelbench", "definition"]
    arena_version: str
    torch_version: str = ""
    tasks: tuple[Imported, ...]
