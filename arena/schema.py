"""Every record that crosses a folder or a file, in one place. Frozen; unknown keys are errors.

Catalogue records come from YAML that people write (`Problem`, `Harness`, `Hardware`); run records are what
arena writes (`Cell`, `Session`, `Score`, `Annotation`, `Baselines`). `peak_fraction` exists on `Passed` and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from string import Formatter
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from arena.formula import FormulaError, evaluate

Profile = Literal["cpu", "gpu"]
DType = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int8", "uint8", "bool"
]
Rate = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
"""Arithmetic whose peak a hardware file may give, dense, in TFLOP/s (TOP/s for int8)."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Shape = Annotated[Mapping[str, int], Field(min_length=1)]
"""Named sizes of one shape, such as `{B: 4, Hq: 8}`. Units are elements unless the problem says otherwise."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Record(BaseModel):
    """Base of all records: frozen, no unknown keys, docstrings under fields become schema descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


# ---------------------------------------------------------------- catalogue: what people write


class Tensor(Record):
    """One argument or result of the operator, as the prompt states it."""

    name: str
    shape: tuple[str | int, ...]
    """Sizes: names of the problem's shape, or other names that the note explains."""
    dtype: DType
    note: str = ""


Metric = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
Tolerance = Annotated[Mapping[Metric, Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=1)]
"""The gate: what each error may be at most; 0 allows none. `rel_fro`, `row` and `el` are the kit's (problems/kit/check.py defines
them); a problem may measure others in its reference.py."""
KIT_METRICS = ("rel_fro", "row", "el")
Errors = Mapping[Metric, float]
"""Worst error found, in the gate's terms."""


class Work(Record):
    """The operator's algorithmic work as formulas over the shape's names (`+ - * / // **`)."""

    flops: str
    bytes: str


class Problem(Record):
    """`problems/<name>/problem.yaml`: the public facts. Everything the agent is told comes from here."""

    schema_version: Literal[1]
    name: Name
    """The folder's name; not written in the file."""
    version: int = Field(ge=1)
    title: str
    operator: str
    """What is computed, in the words and symbols of the prompt."""
    inputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs_given: bool = False
    """Whether a solution is given its outputs, contiguous, after the inputs, and writes its results into them; it returns None
    then. Otherwise it returns them, and what copying them into the judge's buffers takes is part of a call."""
    shapes: Mapping[Profile, tuple[Shape, ...]]
    tolerance: Tolerance
    gate: str = ""
    """A gate of the problem's own in the words of the prompt, with `{metric}` where the tolerance of that name belongs; empty
    where the kit's metrics count. `errors` and `worst` in reference.py measure it."""
    work: Work
    distribution: str
    """How the public inputs are drawn, in words."""
    stress: tuple[str, ...] = ()
    """Classes of further inputs that a solution must survive, in words; never their seeds."""
    forbidden: tuple[str, ...] = ()
    """Dotted names that a solution may not import or call, resolved through aliases. A trailing `.*` covers a module, a bare `*`
    every name that starts so; `torch.Tensor.x` covers any `.x` of what may be a tensor, `operator.matmul` the sign `@`."""
    arithmetic: Rate | None = None
    """What the tensor cores should multiply where computing is the bound. A number whose counters show less of it says so."""
    forbidden_kernels: tuple[str, ...] = ()
    """Names of GPU kernels that no call may launch (`*` and `?` as in file names): those of libraries that the rules exclude."""

    @model_validator(mode="after")
    def _formulas_fit_the_shapes(self) -> Problem:
        for profile, shapes in self.shapes.items():
            if not shapes:
                raise ValueError(f"shapes.{profile}: a profile needs at least one shape")
            for shape in shapes:
                for formula in (self.work.flops, self.work.bytes):
                    try:
                        value = evaluate(formula, shape)
                    except FormulaError as error:
                        raise ValueError(f"work: {formula!r}: {error}") from None
                    if not (math.isfinite(value) and value > 0):
                        raise ValueError(f"work: {formula!r} is {value} for shape {dict(shape)}; it must be positive")
        return self

    @model_validator(mode="after")
    def _the_gate_is_told(self) -> Problem:
        if not self.gate and set(self.tolerance) != set(KIT_METRICS):
            raise ValueError(f"tolerance: without `gate` it names {', '.join(KIT_METRICS)}, not {', '.join(self.tolerance)}")
        try:
            told = {name for _, name, _, _ in Formatter().parse(self.gate) if name is not None}
        except ValueError as error:
            raise ValueError(f"gate: {error}") from None
        due = {metric for metric, most in self.tolerance.items() if most > 0}  # that nothing is allowed needs no number
        if self.gate and not due <= told <= set(self.tolerance):
            raise ValueError(f"gate: must hold {', '.join(f'{{{metric}}}' for metric in self.tolerance)}, the tolerances")
        return self

    def gate_text(self) -> str:
        """The words of the problem's own gate with its numbers."""
        return self.gate.strip().format(**{metric: f"{most:g}" for metric, most in self.tolerance.items()})

    def flops(self, shape: Mapping[str, int]) -> float:
        """Floating-point operations of one call (a multiply-add counts two)."""
        return evaluate(self.work.flops, shape)

    def bytes(self, shape: Mapping[str, int]) -> float:
        """Compulsory DRAM traffic of one call in bytes."""
        return evaluate(self.work.bytes, shape)


class Figure(Record):
    """A number that a person may argue with, and where it comes from."""

    value: Positive
    source: str
    """A key of the file's `sources`."""


class Hardware(Record):
    """`arena/hardware/<name>.yaml`: dense peaks from the vendor. Never mounted into a sandbox."""

    schema_version: Literal[1]
    name: Name
    """The file's stem; not written in the file."""
    title: str
    profile: Profile
    device_names: tuple[str, ...] = ()
    """Names by which torch and NVML report this device, exact."""
    compute_capability: str | None = None
    bandwidth_gb_s: Figure | None = None
    """DRAM bandwidth in GB/s (1e9). None: measured on the spot by `arena calibrate`."""
    l2_mb: Figure | None = None
    """Last cache before DRAM in MB (1e6)."""
    tflops: Mapping[Rate, Figure] = {}
    """Dense peak per arithmetic in TFLOP/s (1e12). Empty: measured on the spot."""
    sources: Mapping[str, str] = {}
    """Key -> title and address of the document, and what was read there."""
    notes: str = ""

    @model_validator(mode="after")
    def _sources_exist(self) -> Hardware:
        figures = {"bandwidth_gb_s": self.bandwidth_gb_s, "l2_mb": self.l2_mb} | {
            f"tflops.{k}": v for k, v in self.tflops.items()
        }
        for key, figure in figures.items():
            if figure is not None and figure.source not in self.sources:
                raise ValueError(
                    f"{key}: source {figure.source!r} is not under `sources` (there: {', '.join(self.sources) or 'none'})"
                )
        if self.profile == "gpu" and (self.bandwidth_gb_s is None or not self.tflops or not self.device_names):
            raise ValueError("a GPU needs bandwidth_gb_s, tflops and device_names")
        return self


Count = Annotated[int, Field(ge=1)]


class Limits(Record):
    """What a box may use. What is left out is as in `arena/sandboxes/limits.yaml`, or without a bound. MiB are 2^20 bytes."""

    memory_mib: Count | None = None
    """All memory of the box, its /tmp, home, /dev/shm and (as root) workspace included."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same as a part of what arena itself may use. With both, the smaller counts."""
    cpus: Positive | None = None
    """Processors' worth of CPU time."""
    processes: Count | None = None
    """Threads count."""
    open_files: Count | None = None
    file_mib: Count | None = None
    """The largest single file."""
    tmp_mib: Count | None = None
    home_mib: Count | None = None
    shm_mib: Count | None = None
    workspace_mib: Count | None = None
    workspace_files: Count | None = None

    def replaced(self, own: Limits | None) -> Limits:
        """These, with those of `own` where it names one. A size of memory replaces a fraction of it, and the other way round."""
        if own is None:
            return self
        named = own.model_dump(exclude_none=True)
        memory = {"memory_mib", "memory_fraction"}
        dropped = memory if memory & named.keys() else set()
        return Limits(**self.model_dump(exclude_none=True, exclude=dropped) | named)


class DefaultLimits(Record):
    """`arena/sandboxes/limits.yaml`."""

    schema_version: Literal[1]
    agent: Limits
    worker: Limits


Api = Literal["anthropic", "responses", "chat", "gemini"]
"""How a model is spoken to: Anthropic Messages, OpenAI Responses, OpenAI chat completions, Gemini generateContent."""


class Route(Record):
    """One way to a provider of models. Only the gateway, outside every sandbox, uses it."""

    title: str
    apis: tuple[Api, ...] = Field(min_length=1)
    base_url: str
    """With the version, such as `https://openrouter.ai/api/v1`: what follows is one of the interface's own paths."""
    key: str | None
    """Name of the environment variable, or of the file among the keys, that holds the key; None where no key is needed."""
    bearer: bool = False
    """Whether it goes as `Authorization: Bearer` even where the interface has a header of its own, as copies of it often want."""
    prices: str | None = None
    """The provider's name in the price table of genai-prices; None: the cost stays unknown."""
    pinned: bool = False
    """Whether this is a broker that passes a request on to one of many providers: then a model must name those it may use."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*[^\s?#/])?", url):
            raise ValueError(f"{url!r}: give http(s)://host[:port][/path], without a slash at the end")
        return url


class Routes(Record):
    """`arena/gateway/routes.yaml`, and a file of the user's own."""

    schema_version: Literal[1]
    routes: Mapping[Name, Route]


class Cli(Record):
    """The agent's program, installed by npm into a folder of its own and shown read-only at /opt/cli in the sandbox."""

    packages: tuple[str, ...] = Field(min_length=1)
    """What to install, each `name@version`; the first is the program's own."""
    program: str
    """Its name in `node_modules/.bin`."""
    versions: str
    """Which versions of the first package arena knows how to drive, such as `>=2.1,<3`."""

    @field_validator("packages")
    @classmethod
    def _are_named_with_their_version(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for package in packages:
            if not re.fullmatch(r"(@[\w.-]+/)?[\w.-]+@[\w.+-]+", package):
                raise ValueError(f"{package!r}: give name@version, such as opencode-ai@1.18.33")
        return packages

    @field_validator("versions")
    @classmethod
    def _is_a_range(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier:
            raise ValueError(f"{versions!r}: give a range such as `>=2.1,<3`") from None
        return versions


class Login(Record):
    """How a program uses a person's own subscription instead of a key."""

    files: tuple[str, ...] = Field(min_length=1)
    """What it keeps of the login, as paths below HOME. The agent can read the copies in its sandbox."""
    hosts: tuple[str, ...] = Field(min_length=1)
    """Whom it must reach, as `--allow` has them."""


class Model(Record):
    """One model of a harness."""

    title: str = ""
    id: str | None = None
    """What the provider calls it; without it the model's own name."""
    route: Name | None = None
    """Which route leads to it (`arena list routes`); None: the harness needs no model."""
    provider: tuple[str, ...] = ()
    """On a route that is `pinned`: the providers that may answer, in this order, and no other."""
    effort: str | None = None
    plays: str | None = None
    """Built-in harness only: which of the problem's solutions it plays, `nothing`, or `run:{name}` for a stored run;
    `{name}` stands for what follows the slash of `--model`."""


class Harness(Record):
    """`harnesses/<name>.yaml`: how to start one agent's command line, and how to tell that it finished."""

    schema_version: Literal[1]
    name: Name
    """The file's stem; not written in the file."""
    title: str
    command: tuple[str, ...] = Field(min_length=1)
    """Argument list inside the sandbox, never a shell string. Filled in: `{model}` the model's name, `{id}` what its provider
    calls it, `{effort}`, `{gateway}` the address of the gateway, `{key}` this run's own key to it."""
    prompt: Literal["stdin", "argument", "file"] = "file"
    """How the prompt arrives: standard input, last argument, or only as PROMPT.md in the workspace."""
    env: Mapping[str, str] = {}
    """Variables of the agent; filled in as the command is."""
    files: Mapping[str, str] = {}
    """Read-only files inside the sandbox: absolute path -> file name beside this YAML."""
    home: Mapping[str, str] = {}
    """Files that its fresh HOME holds: path below HOME -> text, a Jinja2 template."""
    cli: Cli | None = None
    """None: the command needs nothing that is not in every sandbox."""
    api: Api | None = None
    """How it speaks to its model; None: it has none."""
    login: Login | None = None
    """None: it runs with a key only. Where `gateway` is empty, a session uses a login: variables with `{gateway}` or `{key}` are
    left out, and templates of `home` must do without."""
    efforts: Mapping[str, str] = {}
    """The efforts it knows -> how they are written in its command, variables or files; empty: any word, as it stands."""
    terminal_event: Mapping[str, str] | None = None
    """Keys and values of the JSON line on stdout that marks a finished session."""
    events: str | None = None
    """Python file beside this YAML whose `read(event)` understands the JSON lines on stdout; without it only `terminal_event`
    is looked for."""
    limits: Limits | None = None
    """What its box may use, where that differs from the defaults."""
    models: Mapping[str, Model] = Field(min_length=1)
    """By name; a name ending in `/*` stands for a family."""

    @field_validator("files")
    @classmethod
    def _absolute(cls, files: Mapping[str, str]) -> Mapping[str, str]:
        for path in files:
            if not path.startswith("/"):
                raise ValueError(f"{path!r}: a path inside the sandbox is absolute")
        return files


# ---------------------------------------------------------------- run records: what arena writes


class Cell(Record):
    """What is measured: everything here may change the number."""

    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit."""
    harness: Name
    harness_digest: str
    model: str
    model_id: str | None = None
    """What the provider calls the model; None for a built-in one, as is the route."""
    route: Name | None = None
    provider: tuple[str, ...] = ()
    """Where the route is a broker: who may answer, in this order. Empty there: anybody."""
    effort: str | None = None
    hardware: Name
    budget_s: Positive
    without_backoff: bool = False
    """Whether the time for which the provider failed was added to the budget."""


AgentStatus = Literal["complete", "deadline", "crashed", "no_activity", "refused", "provider_error", "budget_exhausted"]


Network = Literal["none", "gateway", "allow", "open"]
"""What an agent could reach: nothing; its model's gateway; that and a list of hosts; whatever the host can."""


class Usage(Record):
    """What the model's provider answered, in disjoint parts, added up over all requests that the gateway passed on."""

    source: Literal["gateway", "cli"] = "gateway"
    """cli: told by the agent's own program, as with a subscription's login; nobody has checked it."""
    requests: int = 0
    """Those that asked the model for an answer."""
    failed: int = 0
    """Of them: answered with an error, cut, or ended without a finish reason."""
    unmetered: int = 0
    """Of them: answered without a usage record. The numbers below lack these."""
    input_tokens: int = 0
    """Neither read from a cache nor written to one."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Without reasoning, where the provider tells the two apart."""
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """None: unknown, never 0."""
    cost_source: Literal["provider", "prices", "mixed"] | None = None
    """provider: in the answers; prices: tokens times the price table; mixed: some of each."""
    models: tuple[str, ...] = ()
    """Names of the models that answered, as the answers say."""
    providers: tuple[str, ...] = ()
    efforts: tuple[str, ...] = ()
    """As they stood in the requests: a program may change what it was asked for."""
    backoff_s: float = 0.0
    """Seconds between a failed answer of the provider and the next good one."""


class Session(Record):
    """How the agent's process ended."""

    agent_status: AgentStatus
    message: str = ""
    exit_code: int | None
    """Of the command; 128 + n when a signal n ended it; None when arena killed it."""
    started_at: datetime
    elapsed_s: float
    overshoot_s: float = 0.0
    """Seconds from the end of the budget to an empty sandbox; 0 when the budget was not reached."""
    events: int = 0
    """JSON lines seen on the command's stdout."""
    snapshots: int = 0
    sandbox: str
    network: Network = "none"
    allowed: tuple[str, ...] = ()
    """Hosts that the agent could reach besides the gateway, with network `allow`: `name`, `*.name` or `name:port`."""
    unsealed: bool = False
    """True with network `open`: the box shared the host's network, and nobody knows what the agent reached."""
    limits: Mapping[str, str] = {}
    """Which limits were in force and by what mechanism."""
    usage: Usage | None = None
    """None for an agent without a model."""
    unpinned: bool = False
    """True where a broker was free to choose who answers."""

    @model_validator(mode="after")
    def _open_is_unsealed(self) -> Session:
        if self.unsealed != (self.network == "open"):
            raise ValueError("unsealed: is true with network `open`, and with no other")
        return self


class Taken(Record):
    """The submission as annotations know it; the bytes are in the run folder."""

    sha256: str
    bytes: int
    lines: int


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


class ShapeScore(Record):
    """One scored shape."""

    shape: Mapping[str, int]
    peak_fraction: float = Field(gt=0, le=1)
    ceiling_s: Positive
    bound: Literal["memory", "compute"]
    rate: Rate
    """Arithmetic whose peak bounds the operator's computing."""
    measured_s: Positive
    """Seconds per call: the median of the processes' medians."""
    ci95: tuple[Positive, Positive]
    """Bootstrap 95 % interval of `measured_s`."""
    mode: Literal["graph", "stream", "wall"]
    vetoed: bool = False
    """True when the device's clock said less than the judge's by more than the margin: then the judge's counts."""
    wall_s: Positive
    """Seconds per call by the judge's clock."""
    calls_per_window: int
    windows: int
    process_medians_s: tuple[Positive, ...]
    samples_s: tuple[tuple[Positive, ...], ...]
    """Every window's seconds per call, one tuple per worker process."""
    error: Errors


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
    audit_s: float = 0.0
    total_s: float
    """All of it, and the starting of the workers."""


class ScoreHead(Record):
    """What every score says, whatever the verdict."""

    schema_version: Literal[1] = 1
    problem: Name
    problem_digest: str
    hardware: Name
    tolerance: Mapping[Metric, float] = {}
    """The gate that every error was held to."""
    message: str = ""
    timings: Timings
    environment: Mapping[str, str] = {}


class Passed(ScoreHead):
    """A correct kernel and its number."""

    verdict: Literal["passed"] = "passed"
    peak_fraction: float = Field(gt=0, le=1)
    """Geometric mean over the shapes."""
    device: Device
    shapes: tuple[ShapeScore, ...] = Field(min_length=1)
    evidence: tuple[Evidence, ...] = ()
    """By shape; empty on a CPU."""
    review_suggested: bool = False
    """True when a shape lies above 0.95 of its ceiling, the device's own speed moved while it was timed, the profiler of a GPU
    saw no kernel, or the counters another arithmetic than the problem's."""


class Refused(ScoreHead):
    """No number, and why."""

    verdict: Literal["incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing", "judge_failed"]
    message: str = Field(min_length=1)
    shape: Mapping[str, int] | None = None
    mode: str | None = None
    """The class of inputs on which it failed."""
    error: Errors | None = None


Verdict = Literal["passed", "incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing", "judge_failed"]
Score = Annotated[Passed | Refused, Field(discriminator="verdict")]
SCORE: TypeAdapter[Passed | Refused] = TypeAdapter(Score)


class BaselineShape(Record):
    """What a baseline reached on one shape."""

    shape: Mapping[str, int]
    fraction: float = Field(gt=0, le=1)
    """Of the ceiling."""
    ceiling_s: Positive
    measured_s: Positive
    mode: Literal["graph", "stream", "wall"]
    error: Errors
    """On public inputs."""


class BaselineLine(Record):
    """One baseline: what it reached, or why it is absent."""

    name: Name
    """The file's stem."""
    title: str
    verdict: Verdict | None
    """What the judge says of it by the problem's own gate, though with nothing forbidden: only `passed` is inside. None where it
    was not run."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Of the ceiling, the geometric mean over the shapes, as in a score. Outside the gate it is a speed and nothing more; None
    where there is none."""
    message: str = ""
    """Why it is absent or outside the gate, and what the judge remarked."""
    shapes: tuple[BaselineShape, ...] = ()
    error: Errors | None = None
    """The worst of all shapes, on public inputs."""

    @model_validator(mode="after")
    def _absent_says_why(self) -> BaselineLine:
        if self.verdict == "passed" and self.fraction is None:
            raise ValueError("fraction: what passed has one")
        if self.verdict != "passed" and not self.message:
            raise ValueError("message: must say why the baseline is absent or outside the gate")
        return self


class Baselines(Record):
    """`baselines/<hardware>/<problem>.yaml`: what libraries reach at a problem on one device. Plotted, never scored."""

    schema_version: Literal[1] = 1
    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit, as in a cell."""
    hardware: Name
    device: Device | None
    """None where no line was measured."""
    measured_at: datetime
    arena_version: str
    versions: Mapping[str, str]
    """Of torch, triton and what the lines need, as far as it is installed."""
    lines: tuple[BaselineLine, ...]


class Quote(Record):
    """Lines of a file of the run, verbatim."""

    file: str
    lines: tuple[int, int]
    text: str
    label: str


class Review(Record):
    """What a person found on reading the run."""

    verdict: Literal["clean", "rubric_leak", "reward_hack", "interesting", "bug"]
    summary: str = Field(min_length=1)
    quotes: tuple[Quote, ...] = ()
    implication: str = ""
    reviewed_at: datetime


class Annotation(Record):
    """`annotations/<run_id>.yaml`: the single source of every published number."""

    schema_version: Literal[1] = 1
    run_id: str
    arena_version: str
    cell: Cell
    session: Session
    submission: Taken | None
    score: Score
    review: Review | None = None
