"""The judge's result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from arena.schema import version_1
from arena.schema.common import Errors, Metric, Name, Positive, Rate, Record

LaunchMode = Literal["graph", "stream", "call"]
"""How the worker runs the calls of a window: replays a CUDA graph, launches on a stream, or calls and waits (on a CPU)."""


class Attainable(Record):
    """What `arena calibrate` measured on one GPU: shown beside the datasheet's peaks, never divided by."""

    method: int
    measured_at: datetime
    torch: str
    driver: str
    copy_gb_s: Positive
    """Device-to-device copy, read and write counted, GB/s (1e9)."""
    read_gb_s: Positive
    """Reading alone, GB/s (1e9)."""
    tflops: Mapping[Rate, Positive]
    """Best library matrix product per arithmetic, TFLOP/s (1e12)."""
    launch_s: Positive
    """From one empty kernel to the next in a CUDA graph."""


class Device(Record):
    """What the score was measured on, and the ceilings it was divided by."""

    name: str
    uuid: str | None = None
    driver: str | None = None
    bandwidth_gb_s: float
    tflops: Mapping[Rate, float]
    ceilings: Literal["datasheet", "measured"]
    attainable: Attainable | None = None
    """Of this very device (by UUID), where `arena calibrate` has been run on it."""


class TimedShape(Record):
    """One shape and its time."""

    shape: Mapping[str, int]
    ceiling_s: Positive
    """The least time that the hardware needs."""
    bound: Literal["memory", "compute"]
    rate: Rate
    """Arithmetic whose peak bounds the operator's computing."""
    measured_s: Positive
    """Seconds per call: the median of the processes' medians."""
    ci95: tuple[Positive, Positive]
    """Bootstrap 95 % interval of `measured_s`."""
    launch_mode: LaunchMode
    vetoed: bool = False
    """True when the device's clock said less than the judge's by more than the margin: then the judge's counts."""
    wall_s: Positive
    """Seconds per call by the judge's clock."""
    calls_per_window: int
    windows: int
    process_medians_s: tuple[Positive, ...]
    samples_s: tuple[tuple[Positive, ...], ...]
    """Every window's seconds per call, one tuple per worker process."""
    disturbed: tuple[str, ...] = ()
    """Why a process had to begin the shape again, once for each time: something ran while inputs were made."""
    error: Errors


class ShapeScore(TimedShape):
    """One scored shape."""

    peak_fraction: float = Field(gt=0, le=1)


class Kernel(Record):
    """One kernel that a call launched."""

    name: str
    launches: int = Field(ge=1)


class Evidence(Record):
    """What one untimed call launched. The submission could have falsified it, so it convicts and never acquits."""

    shape: Mapping[str, int]
    kernels: tuple[Kernel, ...] = ()
    """By name, the most launched first."""
    proof: Literal["counters", "unproven"] = "unproven"
    """Whether the hardware's counters were read."""
    note: str = ""
    """Why something is missing."""
    tensor_ops: Mapping[str, float] = {}
    """Operations of the tensor cores by what they multiply (bf16, fp8, ...); a multiply-add counts two."""
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None


class Timings(Record):
    """Where the scoring time went, in seconds."""

    build_s: float
    """Importing the solution and its first call on each shape, which may compile and tune."""
    check_s: float
    benchmark_s: float
    evidence_s: float = 0.0
    """Reading kernels and counters, after all timing."""
    total_s: float
    """All of it, and the starting of the workers."""


class ScoreHead(Record):
    """What every score says, whatever the verdict."""

    schema_version: Literal[2] = 2
    problem: Name
    problem_digest: str
    hardware: Name
    tolerance: Mapping[Metric, float] = {}
    """The largest error of each metric that the correctness check allowed."""
    message: str = ""
    timings: Timings
    environment: Mapping[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: object) -> object:
        return version_1.score(data)


class Passed(ScoreHead):
    """A correct kernel and its number."""

    verdict: Literal["passed"] = "passed"
    peak_fraction: float = Field(gt=0, le=1)
    """Geometric mean over the shapes."""
    device: Device
    shapes: tuple[ShapeScore, ...] = Field(min_length=1)
    latency: tuple[TimedShape, ...] = ()
    """Shapes of the problem's latency class, which no number but their own time comes from."""
    evidence: tuple[Evidence, ...] = ()
    """By scored shape; empty on a CPU."""
    review_suggested: bool = False
    """True when a shape lies above 0.95 of its ceiling, the device's own speed moved while it was timed, the profiler of a GPU
    saw no kernel, or the counters another arithmetic than the problem's."""


RejectionVerdict = Literal["incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing"]
Verdict = Literal["passed", "incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing", "judge_failed"]


class Rejected(ScoreHead):
    """The submission failed: no number, and why."""

    verdict: RejectionVerdict
    message: str = Field(min_length=1)
    shape: Mapping[str, int] | None = None
    input_class: str | None = None
    """The input class on which it failed."""
    error: Errors | None = None


class JudgeFailed(ScoreHead):
    """The judge or the machine failed: no number, and nothing about the submission."""

    verdict: Literal["judge_failed"] = "judge_failed"
    message: str = Field(min_length=1)


Score = Annotated[Passed | Rejected | JudgeFailed, Field(discriminator="verdict")]
SCORE: TypeAdapter[Passed | Rejected | JudgeFailed] = TypeAdapter(Score)
