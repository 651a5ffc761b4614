"""What a program in the sandbox reports of a task, and what an import leaves beside its problems. A report is hostile data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from arena.schema import DType, Metric, Name, Positive, Record, Tolerance

Number = Annotated[int, Field(ge=0, le=2**48)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=48)]
Path_ = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=160)]
Sizes = Annotated[tuple[Number, ...], Field(max_length=8)]
Arithmetic = Literal["fp32", "tf32", "bf16"]


class Trace(Record):
    """One call at one shape."""

    shape: Mapping[Word, Number]
    inputs: Annotated[tuple[tuple[DType, Sizes], ...], Field(min_length=1, max_length=64)]
    outputs: Annotated[tuple[tuple[DType, Sizes], ...], Field(min_length=1, max_length=1)]
    flops: Number
    bytes: Annotated[int, Field(gt=0, le=2**48)]


class Probed(Record):
    """A task's tensors and sizes."""

    sizes: Mapping[Word, tuple[Number, Number]]
    """Where each size stands: input, dimension."""
    gpu: Trace
    cpu: Trace
    original: Trace
    parameters: tuple[Path_, ...]
    forward: Annotated[int, Field(ge=1, le=64)]
    scalars: Annotated[
        tuple[tuple[Number, bool | int | float | Annotated[str, Field(max_length=200)] | None], ...], Field(max_length=16)
    ]


class Measured(Record):
    """A task's gate."""

    tolerance: Tolerance
    gap: Mapping[Metric, float]
    """How many times as far off as the allowed arithmetic the next coarser one is."""
    low: Mapping[Metric, float]
    classes: tuple[Literal["scaled", "signed", "weights"], ...]
    dropped: Mapping[Literal["scaled", "signed", "weights"], Annotated[str, Field(max_length=200)]]
    weights_vary: bool


class Imported(Record):
    """One task and what became of it."""

    source: str
    """The file, relative to the folder of the import."""
    sha256: str
    problem: Name | None = None
    """None where the task is unfit."""
    unfit: str = ""
    arithmetic: Arithmetic
    original_bytes: Positive | None = None
    """Of one call at the benchmark's own sizes."""
    bytes: Positive | None = None
    original: Mapping[str, int] = {}
    shape: Mapping[str, int] = {}
    """The sizes on a GPU."""
    tolerance: Mapping[Metric, float] = {}
    gap: Mapping[Metric, float] = {}
    classes: tuple[str, ...] = ()


class Import(Record):
    """`import.yaml`: where problems came from."""

    schema_version: Literal[1] = 1
    benchmark: Literal["kernelbench", "definition"]
    commit: str
    """Of the source's git repository; empty where it is none."""
    licence: tuple[str, ...]
    arena_version: str
    torch_version: str = ""
    tasks: tuple[Imported, ...]
