"""The lines of a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from arena.schema import Api

How = Literal["whole", "refused", "incomplete", "cut", "stalled", "error", "rejected", "stopped", "left"]
"""How a request ended.

whole       answered, with a finish reason
refused     the same, and the model said no
incomplete  the answer ended well, but without a finish reason
cut         the answer broke off
stalled     the program left, having waited in vain
error       the provider said that it failed, or did not say anything
rejected    the provider found fault with the request
stopped     by us: another model or provider answered, or the key was in the answer
left        the program left, as it may
"""
GOOD = ("whole", "refused")
FAULTS = ("incomplete", "cut", "stalled", "error")
"""The provider's."""
FAILED = (*FAULTS, "rejected", "stopped")


@dataclass(frozen=True)
class Tokens:
    """Of one answer, each token in one of these."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """Of those in `cache_write`: kept for an hour, at a higher price."""
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.cache_read + self.cache_write + self.output + self.reasoning


@dataclass(frozen=True)
class Began:
    """A request was passed on."""

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
    """Who may answer; empty: anybody."""
    path: str
    bytes: int
    """Of its body, unpacked."""
    event: Literal["began"] = "began"


@dataclass(frozen=True)
class Ended:
    """How it ended."""

    n: int
    s: float
    how: How
    status: int | None = None
    """Of the provider's answer; None when there was none."""
    first_byte_s: float | None = None
    """Seconds from its beginning to the answer's first byte."""
    seconds: float = 0.0
    model: str | None = None
    """Who answered, by the answer's own word; as is the provider."""
    provider: str | None = None
    finish: str | None = None
    tier: str | None = None
    tokens: Tokens | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The provider's usage object, as it came."""
    cost_usd: float | None = None
    cost_source: Literal["provider", "prices"] | None = None
    priced_as: str | None = None
    """The price table's entry and version."""
    error: str | None = None
    bytes: int = 0
    """Of the answer."""
    charged_tokens: int = 0
    """Beyond `tokens`, against the caps only: an estimate where an answer could not be metered."""
    charged_usd: float | None = 0.0
    """The same beyond `cost_usd`; None where there is no price to estimate by."""
    event: Literal["ended"] = "ended"


@dataclass(frozen=True)
class Refused:
    """A request that was not passed on."""

    at: str
    s: float
    status: int
    path: str
    reason: str
    event: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Stopped:
    """From here on nothing was passed on."""

    at: str
    s: float
    status: str
    message: str
    event: Literal["stopped"] = "stopped"


@dataclass(frozen=True)
class Full:
    """There was no room for more."""

    event: Literal["full"] = "full"


@dataclass(frozen=True)
class Closed:
    """The run is over."""

    s: float
    backoff_s: float
    """What the provider's failures cost it, with one that lasted at its end."""
    event: Literal["closed"] = "closed"


Line = Began | Ended | Refused | Stopped | Full | Closed


def unmetered(line: Ended) -> bool:
    """Whether an answer to the model, or the part of it that there was, may have used more than is known."""
    answered = line.how in ("left", "stalled") if line.status is None else line.status < 300
    return answered and (line.tokens is None or line.finish is None)
