"""Settings of the model gateway, and its request to stop a run: plain records, readable without its HTTP library."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from arena.schema import Api, Route

GATEWAY_PORT = 3127
"""On the sandbox's own 127.0.0.1, like `PROXY_PORT`."""
PROXY_PORT = 3128
GATEWAY_URL = f"http://127.0.0.1:{GATEWAY_PORT}"
"""Address of the gateway inside the sandbox."""
RESUME_PATH = "/resume"
"""Where the sandbox asks, after the agent's command has ended, whether the provider broke off and answers again."""
RESUMES = 3
"""Times in one session that an agent goes on after a break of its provider."""
PATIENCE_S = 300.0
"""End a run after this long without a successful response of its provider."""


@dataclass(frozen=True)
class Caps:
    """Limits on the requests, tokens and cost of a run. None: no limit."""

    requests: int = 2000
    """To the model; as many again may count tokens."""
    tokens: int | None = None
    """Of all kinds together, as the provider counts them, with those read from a cache."""
    cost_usd: float | None = None

    @property
    def metered(self) -> bool:
        """Whether a cap needs the provider's numbers."""
        return self.tokens is not None or self.cost_usd is not None


@dataclass(frozen=True)
class ModelAccess:
    """One model behind one route, for one run."""

    api: Api
    route: Route
    key: str | None = field(repr=False)
    """The real key, which never enters the sandbox; None for a route without one."""
    model: str
    """The provider's name for it. The gateway refuses a request for any other."""
    provider: tuple[str, ...] = ()
    """The pin on a broker's route: which providers may answer, in this order. Empty: any."""
    caps: Caps = Caps()
    patience_s: float = PATIENCE_S
    """End the run after the provider has failed for this long without one good answer."""
    authorities: Path | None = None
    """PEM file of further certificate authorities."""
    answers_as: tuple[str, ...] = ()
    """Further names under which the same model may answer."""
    turns: int | None = None
    """Answers that the run may get, one after the other: the next request ends it. None: as many as its caps allow."""


@dataclass(frozen=True)
class Stop:
    """The gateway's request to end the run now."""

    status: Literal["budget_exhausted", "provider_error", "crashed"]
    """crashed: the gateway itself failed, a bug of arena."""
    message: str
