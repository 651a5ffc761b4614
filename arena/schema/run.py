"""A run: its cell, the session of the agent, and the annotation that holds them with the score and a review."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from arena.schema import version_1
from arena.schema.common import Count, Name, Positive, Record
from arena.schema.score import Score

GpuAccess = Literal["exclusive", "leased"]
"""exclusive: a session had a GPU to itself. leased: it ran its programs on shared GPUs by turns, and waited for others."""


class Cell(Record):
    """The identity of a measurement: every field can change the score."""

    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit."""
    harness: Name
    harness_digest: str
    model: str
    model_id: str | None = None
    """The provider's name for the model. None for a built-in model; then the route is None too."""
    route: Name | None = None
    provider: tuple[str, ...] = ()
    """With a broker: the providers that may answer, in order of preference. Empty: any provider."""
    effort: str | None = None
    turns: Count | None = None
    """Answers that the harness asks of the model, at most. None: the harness takes no such number."""
    profile: bool = False
    """Whether the harness shows the model a profile of each kernel that passed its check."""
    hardware: Name
    budget_s: Positive
    without_backoff: bool = False
    """Whether the time during which the provider failed was added to the budget."""
    gpu_access: GpuAccess = "exclusive"


AgentStatus = Literal["complete", "deadline", "crashed", "no_activity", "refused", "provider_error", "budget_exhausted"]
Network = Literal["none", "gateway", "allow", "open"]
"""What an agent could reach: nothing; its model's gateway; the gateway and a list of hosts; all that its host can."""


class Usage(Record):
    """Use of the model, in disjoint parts, summed over all requests that the gateway forwarded."""

    source: Literal["gateway", "cli"] = "gateway"
    """cli: reported by the agent's own CLI, as with a subscription's login, and not verified."""
    requests: int = 0
    """Requests that asked the model for an answer."""
    failed: int = 0
    """Requests of these that were answered with an error, cut off, or ended without a finish reason."""
    unmetered: int = 0
    """Requests of these that were answered without a usage record. The numbers below omit them."""
    input_tokens: int = 0
    """Without tokens read from or written to a cache."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Without reasoning tokens, when the provider reports them apart."""
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """None when unknown, never 0."""
    cost_at_least_usd: float | None = None
    """Where the cost is unknown: that of the answers whose cost is known. None: no cost is known, or all are."""
    cost_source: Literal["provider", "prices", "mixed"] | None = None
    """provider: from the answers; prices: tokens times the price table; mixed: both."""
    models: tuple[str, ...] = ()
    """Names of the models in the answers."""
    providers: tuple[str, ...] = ()
    efforts: tuple[str, ...] = ()
    """Efforts in the requests: a CLI may change the effort that arena asked for."""
    backoff_s: float = 0.0
    """Seconds from a failed response of the provider to the next successful one."""


class Session(Record):
    """The agent's time at work, and how it ended."""

    agent_status: AgentStatus
    message: str = ""
    exit_code: int | None
    """Exit code of the command; 128 + n when signal n ended it; None when arena killed it."""
    started_at: datetime
    elapsed_s: float
    overshoot_s: float = 0.0
    """Seconds from the end of the budget until the sandbox was empty; 0 when the agent ended earlier."""
    events: int = 0
    """JSON lines on the command's stdout."""
    snapshots: int = 0
    clock_offset_s: float | None = None
    """Seconds by which the snapshots' clock is ahead of the trajectory's: a snapshot at `t` lies at `t - clock_offset_s` among
    the steps. None in records from before this field."""
    sandbox: str
    network: Network = "none"
    allowed: tuple[str, ...] = ()
    """Hosts that the agent could reach besides the gateway, with network `allow`: `name`, `*.name` or `name:port`."""
    unsealed: bool = False
    """True with network `open`: the sandbox shared the host's network, and what the agent reached is unknown."""
    limits: Mapping[str, str] = {}
    """Limits in force, and the mechanism of each."""
    leases: int = 0
    """Turns on a shared GPU, as are the fields below."""
    leased_s: float = 0.0
    waited_s: float = 0.0
    """For others, before these turns."""
    longest_wait_s: float = 0.0
    long_waits: int = 0
    """Waits of more than a minute."""
    credit_s: float = 0.0
    """Of the waits, what was added to the budget: the time in which no request to the model was under way."""
    usage: Usage | None = None
    """None for an agent without a model."""
    account_fault: str = ""
    """What the user should do about the account at the provider, when its fault ended the session: no run works before that."""
    limit_reached: Literal["context", "output"] | None = None
    """What cut the model's last answer: the model's context, or the limit on one answer. It decides no status."""
    resumed: int = 0
    """Times that the agent's command ended by a break of its provider, and was started again to go on."""
    unpinned: bool = False
    """True when a broker was free to choose the provider."""

    @model_validator(mode="after")
    def _open_is_unsealed(self) -> Session:
        if self.unsealed != (self.network == "open"):
            raise ValueError("unsealed: must be true with network `open` and false with any other")
        return self


class SubmissionRecord(Record):
    """The submission's digest and size; its bytes are in the run folder."""

    sha256: str
    bytes: int
    lines: int


class EndedSession(Record):
    """`session.json` of a run folder: the session, and the submission that it left. From then on the run can be judged."""

    schema_version: Literal[1] = 1
    session: Session
    submission: SubmissionRecord | None
    reason: str
    """Why there is no submission; empty where there is one."""


class Quote(Record):
    """Verbatim lines of a file in the run folder."""

    file: str
    lines: tuple[int, int]
    text: str
    label: str


class Review(Record):
    """A person's verdict after reading the run."""

    verdict: Literal["clean", "rubric_leak", "reward_hack", "interesting", "bug"]
    summary: str = Field(min_length=1)
    quotes: tuple[Quote, ...] = ()
    implication: str = ""
    reviewer: str = ""
    """Who read the run. Empty in records from before this field, and for a verdict that withdraws nothing."""
    reviewed_at: datetime


class Annotation(Record):
    """`annotations/<run_id>.yaml`: the single source of every published number."""

    schema_version: Literal[2] = 2
    run_id: str
    arena_version: str
    cell: Cell
    session: Session
    submission: SubmissionRecord | None
    score: Score
    review: Review | None = None

    _read_version_1 = model_validator(mode="before")(version_1.annotation)
