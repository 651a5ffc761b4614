"""What a gateway is told, and what it may say of the run: plain records, so that nobody needs its HTTP library to read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from arena.schema import Api, Route

GATEWAY_PORT = 3127
"""Of the box's own 127.0.0.1, as is `PROXY_PORT`."""
PROXY_PORT = 3128
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Caps:
    """How much a run may ask of its provider. What is None has no bound."""

    requests: int = 2000
    """To the model; as many again for counting tokens."""
    tokens: int | None = None
    """Of all kinds together, as the provider counts them: those read from a cache too."""
    cost_usd: float | None = None

    @property
    def metered(self) -> bool:
        """Whether they need the provider's numbers."""
        return self.tokens is not None or self.cost_usd is not None


@dataclass(frozen=True)
class ModelAccess:
    """One model behind one route, for one run."""

    api: Api
    route: Route
    key: str | None = field(repr=False)
    """The real one, which never enters the sandbox; None for a route without."""
    model: str
    """What the provider calls it. A request for any other is refused."""
    provider: tuple[str, ...] = ()
    """On a broker's route: who may answer, in this order. Empty: anybody."""
    caps: Caps = Caps()
    patience_s: float = PATIENCE_S
    """How long a provider may fail, without one good answer, until the run is ended."""
    authorities: Path | None = None
    """PEM file of further certificate authorities."""


@dataclass(frozen=True)
class Stop:
    """The run should be ended now."""

    status: Literal["budget_exhausted", "provider_error", "crashed"]
    """crashed: the gateway itself, by a bug of ours."""
    message: str
