"""The lines of a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from arena.schema import Api

How = Literal["whole", "refused", "incomplete", "cut", "stalled", "error", "rejected", "stopped", "left"]
"""How a request ended.

whole       answered, with a finish reason
refused     the same, but the model refused
incomplete  the answer ended properly, but without a finish reason
cut         the answer broke off
stalled     the program left a stream after the provider was silent for too long
error       the provider reported a failure of its own, or did not answer
rejected    the provider reported a fault of the request
stopped     the gateway cut it: another model or provider answered, or the key was in the answer
left        the program left, which is its right
"""
GOOD = ("whole", "refused")
FAULTS = ("incomplete", "cut", "stalled", "error")
"""Faults of the provider."""
FAILED = (*FAULTS, "rejected", "stopped")


@dataclass(frozen=True)
class Tokens:
    """The tokens of one answer. Each token counts in one field only."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The part of `cache_write` that the provider keeps for an hour, at a higher price."""
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.cache_read + self.cache_write + self.output + self.reasoning


@dataclass(frozen=True)
class Began:
    """A request went out."""

    n: int
    """Its number, from 1."""
    at: str
    """UTC."""
    s: float
    """Seconds since the gateway began to serve."""
    kind: Literal["model", "count"]
    api: Api
    model: str
    effort: str | None
    provider: tuple[str, ...]
    """The pin: which providers may answer. Empty: any."""
    path: str
    bytes: int
    """Of its body, unpacked."""
    event: Literal["began"] = "began"


@dataclass(frozen=True)
class Ended:
    """How a request ended."""

    n: int
    s: float
    how: How
    status: int | None = None
    """Of the provider's answer; None when there was none."""
    first_byte_s: float | None = None
    """Seconds from its beginning to the answer's first byte."""
    seconds: float = 0.0
    model: str | None = None
    """The model that answered, as the answer names it; likewise the provider."""
    provider: str | None = None
    finish: str | None = None
    tier: str | None = None
    tokens: Tokens | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The provider's usage object, with plain strings."""
    cost_usd: float | None = None
    cost_source: Literal["provider", "prices"] | None = None
    priced_as: str | None = None
    """The price table's entry and version."""
    error: str | None = None
    bytes: int = 0
    """Of the answer."""
    charged_tokens: int = 0
    """Beyond `tokens`, against the caps only: an estimate for an answer without numbers."""
    charged_usd: float | None = 0.0
    """The same beyond `cost_usd`; None without a price to estimate by."""
    event: Literal["ended"] = "ended"


@dataclass(frozen=True)
class Refused:
    """A request that the gateway refused."""

    at: str
    s: float
    status: int
    path: str
    reason: str
    event: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Stopped:
    """From this line on no request went out."""

    at: str
    s: float
    status: str
    message: str
    event: Literal["stopped"] = "stopped"


@dataclass(frozen=True)
class Full:
    """The ledger had no room for more lines."""

    event: Literal["full"] = "full"


@dataclass(frozen=True)
class Closed:
    """The run is over."""

    s: float
    backoff_s: float
    """Time lost to the provider's failures, with one that lasted at the run's end."""
    event: Literal["closed"] = "closed"


Line = Began | Ended | Refused | Stopped | Full | Closed


def unmetered(line: Ended) -> bool:
    """Whether an answer, or the part that arrived, may have used more than its numbers show."""
    answered = line.how in ("left", "stalled") if line.status is None else line.status < 300
    return answered and (line.tokens is None or line.finish is None)
