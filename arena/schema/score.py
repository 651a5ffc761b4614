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
    """The speed of one GPU, measured by `arena calibrate`. Shown beside the datasheet's peaks, never used as a ceiling."""

    method: int
    measured_at: datetime
    torch: str
    driver: str
    copy_gb_s: Positive
    """Device-to-device copy, counting reads and writes, GB/s (1e9)."""
    read_gb_s: Positive
    """Reads only, GB/s (1e9)."""
    tflops: Mapping[Rate, Positive]
    """Best library matrix product per arithmetic, TFLOP/s (1e12)."""
    launch_s: Positive
    """Seconds from one empty kernel to the next in a CUDA graph."""


class Device(Record):
    """The measured device, and the peaks behind the ceilings."""

    name: str
    uuid: str | None = None
    driver: str | None = None
    bandwidth_gb_s: float
    tflops: Mapping[Rate, float]
    ceilings: Literal["datasheet", "measured"]
    attainable: Attainable | None = None
    """Of this device (by UUID), if `arena calibrate` ran on it."""


class TimedShape(Record):
    """The time of one shape."""

    shape: Mapping[str, int]
    ceiling_s: Positive
    """The least time that the hardware needs, in seconds."""
    bound: Literal["memory", "compute"]
    rate: Rate
    """Arithmetic whose peak bounds the compute time."""
    measured_s: Positive
    """Seconds per call: the median of the processes' medians."""
    ci95: tuple[Positive, Positive]
    """Bootstrap 95 % interval of `measured_s`."""
    launch_mode: LaunchMode
    vetoed: bool = False
    """True when the device's clock showed less time than the judge's by more than the margin. Then the judge's clock counts."""
    wall_s: Positive
    """Seconds per call by the judge's clock."""
    calls_per_window: int
    windows: int
    process_medians_s: tuple[Positive, ...]
    samples_s: tuple[tuple[Positive, ...], ...]
    """Seconds per call of every window, one tuple per worker process."""
    disturbed: tuple[str, ...] = ()
    """Reasons why the shape was retimed, one per retry: a process ran while the judge made inputs."""
    error: Errors


class ShapeScore(TimedShape):
    """One scored shape."""

    peak_fraction: float = Field(gt=0, le=1)


class Kernel(Record):
    """One kernel that a call launched."""

    name: str
    launches: int = Field(ge=1)


class Evidence(Record):
    """What one untimed call launched. A submission can falsify it, so it can justify a `forbidden` verdict but clear nothing."""

    shape: Mapping[str, int]
    kernels: tuple[Kernel, ...] = ()
    """Sorted by launches, most first."""
    proof: Literal["counters", "unproven"] = "unproven"
    """counters: read from the hardware's counters."""
    note: str = ""
    """Why a part is missing."""
    tensor_ops: Mapping[str, float] = {}
    """Operations of the tensor cores by input type (bf16, fp8, ...); a multiply-add counts two."""
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None


class Timings(Record):
    """The parts of the scoring time, in seconds."""

    build_s: float
    """Importing the solution and its first call on each shape, which may compile and tune."""
    check_s: float
    benchmark_s: float
    evidence_s: float = 0.0
    """Reading kernels and counters, after all timing."""
    total_s: float
    """The sum of the parts and the start of the workers."""


class ScoreHead(Record):
    """Fields of every score, whatever the verdict."""

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
    """A correct kernel and its score."""

    verdict: Literal["passed"] = "passed"
    peak_fraction: float = Field(gt=0, le=1)
    """Geometric mean over the shapes."""
    device: Device
    shapes: tuple[ShapeScore, ...] = Field(min_length=1)
    latency: tuple[TimedShape, ...] = ()
    """Shapes of the problem's latency class. Their times do not affect the score."""
    evidence: tuple[Evidence, ...] = ()
    """One entry per scored shape; empty on a CPU."""
    review_suggested: bool = False
    """True when a shape is above 0.95 of its ceiling or was retimed more than once, the device's speed changed during timing, the
    profiler saw no kernel on a GPU, or the counters show other arithmetic than the problem's."""


RejectionVerdict = Literal["incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing"]
Verdict = Literal["passed", "incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing", "judge_failed"]


class Rejected(ScoreHead):
    """A submission that failed: no score, and the reason."""

    verdict: RejectionVerdict
    message: str = Field(min_length=1)
    shape: Mapping[str, int] | None = None
    input_class: str | None = None
    """The input class on which it failed."""
    error: Errors | None = None


class JudgeFailed(ScoreHead):
    """A failure of the judge or the machine: no score, and no statement about the submission."""

    verdict: Literal["judge_failed"] = "judge_failed"
    message: str = Field(min_length=1)


Score = Annotated[Passed | Rejected | JudgeFailed, Field(discriminator="verdict")]
SCORE: TypeAdapter[Passed | Rejected | JudgeFailed] = TypeAdapter(Score)
