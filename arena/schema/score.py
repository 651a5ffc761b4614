"""The judge's results: scores, and the speed of libraries (baselines), measured by the same method and never scored."""

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


OVERLAPPED, COLD_S = 0.9, 20e-6
"""A call may overlap others if it takes less among them than this part of its time alone, and what a cold cache costs less."""


class TimedShape(Record):
    """The time of one shape."""

    shape: Mapping[str, int]
    ceiling_s: Positive
    """The least time that the hardware needs, in seconds."""
    bound: Literal["memory", "compute"]
    rate: Rate
    """Arithmetic whose peak bounds the compute time."""
    flops: float | None = Field(default=None, ge=0)
    """Operations of one call by the problem's formula; 0 where the problem declares that memory bounds it. None in records from
    before this field, as `bytes` is."""
    bytes: Positive | None = None
    """Compulsory DRAM traffic of one call by the problem's formula."""
    measured_s: Positive
    """Seconds per call: the median of `process_medians_s`."""
    ci95: tuple[Positive, Positive]
    """Bootstrap 95 % interval of `measured_s`."""
    launch_mode: LaunchMode
    overhead_s: float | None = Field(default=None, ge=0)
    """The judge's own part of each window, in seconds, which was taken off. None in scores of arena 0.2 and before."""
    among_s: Positive | None = None
    """Seconds per call among others, the judge's own part taken off. None in scores of arena 0.2 and before."""
    alone_s: Positive | None = None
    """Seconds of one call alone on a GPU, from a cold cache, the judge's own part taken off."""
    alone_margin_s: float | None = Field(default=None, ge=0)
    """What was taken off `alone_s` before the larger time counted: `measured_s` is `among_s`, or `alone_s` less this. None on
    a CPU, and in scores from before 2026-11-26, in which nothing was."""
    alone_overhead_s: float | None = Field(default=None, ge=0)
    """That part: the median of the processes' own, each of which was taken off its own calls. Until 2026-11-24 the least one,
    taken off all."""
    unsteady: bool = False
    """True when half of the interval is wider, or the processes lie farther apart, than the published method allows for: of the
    time among others, or of the larger of the two times. `ci95` and `process_medians_s` are those of the time that counts. False
    in records from before this field."""
    vetoed: bool = False
    """In scores of arena 0.2 and before: whether the GPU's clock, read by the worker, was over 10 % behind the judge's."""
    wall_s: Positive | None = None
    """Seconds per call by the judge's own clock, in scores of arena 0.2 and before."""
    calls_per_window: int
    windows: int
    process_medians_s: tuple[Positive, ...]
    """Seconds per call in each process: the median of its windows. Where calls alone count, their mean without the lowest and the
    highest tenth, less `alone_margin_s`; until 2026-11-25 their median."""
    samples_s: tuple[tuple[Positive, ...], ...]
    """Seconds per call of every window, one tuple per worker process."""
    alone_samples_s: tuple[tuple[Positive, ...], ...] = ()
    """The same of every call alone."""
    disturbed: tuple[str, ...] = ()
    """Why the shape was timed again, one reason each time: a process ran while the judge made inputs, or windows were short."""
    error: Errors

    def half_width(self) -> float:
        """Half of `ci95`, relative to `measured_s`."""
        low_s, high_s = self.ci95
        return (high_s - low_s) / 2 / self.measured_s

    def apart(self) -> float:
        """From the lowest of `process_medians_s` to the highest, relative to `measured_s`."""
        return (max(self.process_medians_s) - min(self.process_medians_s)) / self.measured_s

    def overlapped(self) -> bool:
        """Whether a call is so much faster among others that they may have run at the same time."""
        return self.alone_s is not None and self.among_s is not None and self.among_s < OVERLAPPED * self.alone_s - COLD_S


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
    tensor_ops: Mapping[str, float] | None = None
    """Operations of the tensor cores by input type (bf16, fp8, ...); a multiply-add counts two. None where they were not counted:
    the problem names no arithmetic, or no counters were read."""
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None


REVIEW_SHARE = 0.3
"""From this share of a well-known kernel on a person should look. Of this repository's own solutions none holds more than 0.19. A
copy with other names and a foreign statement after every fourth holds 0.47 or more (docs/tables/similar.md)."""


class Similar(Record):
    """A well-known kernel of which the submission holds a part. For a reviewer; no verdict comes of it."""

    source: str
    """Package and version, file, function."""
    share: float = Field(gt=0, le=1)
    """Of that kernel's fingerprints, the part that the submission has too. Other names, numbers or comments change nothing."""


class Timings(Record):
    """The parts of the scoring time, in seconds."""

    build_s: float
    """Importing the solution and its first call on each shape, which may compile and tune."""
    check_s: float
    benchmark_s: float
    evidence_s: float = 0.0
    """Reading kernels after each process's timing, and counters after the last."""
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

    _read_version_1 = model_validator(mode="before")(version_1.score)


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
    unsteady: bool = False
    """True when a scored shape is, or the driver slowed the device down meanwhile: the number would come out otherwise another
    time. False in records from before this field."""
    brief: bool = False
    """True when fewer processes or windows were timed than the published ones: a demonstration."""
    similar: tuple[Similar, ...] = ()
    """Well-known kernels of which the submission holds the largest shares, largest first; small shares are left out."""
    review_suggested: bool = False
    """True when the score is unsteady, a shape is above 0.95 of its ceiling or was retimed more than once, its calls seem to
    overlap, the device's speed changed during timing or the driver slowed it down, the profiler saw no kernel on a GPU, the
    counters are missing, show more calls than were made or other arithmetic than the problem's, or the submission holds a large
    share of a well-known kernel."""


RejectionVerdict = Literal["incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing"]
Verdict = Literal["passed", RejectionVerdict, "judge_failed"]


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


class BaselineShape(Record):
    """The speed of a baseline on one shape."""

    shape: Mapping[str, int]
    fraction: float = Field(gt=0, le=1)
    """Of the ceiling."""
    ceiling_s: Positive
    flops: float | None = Field(default=None, ge=0)
    """As in a score. None in records from before this field, as `bytes` is."""
    bytes: Positive | None = None
    measured_s: Positive
    launch_mode: LaunchMode
    error: Errors
    """On public inputs."""


class BaselineLine(Record):
    """One baseline: its speed, or why it is absent."""

    name: Name
    """The file's stem."""
    title: str
    verdict: Verdict | None
    """The judge's verdict with nothing forbidden. Only `passed` is within the tolerance. None when it was not run."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Of the ceiling, the geometric mean over the shapes, as in a score. Without the verdict `passed` it is only a speed. None
    when nothing was timed."""
    message: str = ""
    """Why it is absent or outside the tolerance, and the judge's message."""
    shapes: tuple[BaselineShape, ...] = ()
    error: Errors | None = None
    """The worst of all shapes, on public inputs."""
    reference: bool = False
    """Whether it is a stored solution of the problem, `naive` or `oracle`, under all of its rules, and no library."""

    @model_validator(mode="after")
    def _absent_says_why(self) -> BaselineLine:
        if self.verdict == "passed" and self.fraction is None:
            raise ValueError("fraction: a passed baseline needs one")
        if self.verdict != "passed" and not self.message:
            raise ValueError("message: must say why the baseline is absent or outside the tolerance")
        return self


class Baselines(Record):
    """`baselines/<hardware>/<problem>.yaml`: the speed of libraries on a problem and a device. Plotted, never scored."""

    schema_version: Literal[2] = 2
    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit, as in a cell."""
    hardware: Name
    device: Device | None
    """None when no line was measured."""
    measured_at: datetime
    arena_version: str
    versions: Mapping[str, str]
    """Of torch, triton and the packages that the lines need, if installed."""
    lines: tuple[BaselineLine, ...]

    _read_version_1 = model_validator(mode="before")(version_1.baselines)
