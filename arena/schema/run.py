"""What is measured, and how the agent's process ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import model_validator

from arena.schema.common import Name, Positive, Record


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
