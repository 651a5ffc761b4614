"""The exception by which the gateway and the egress proxy answer a request that they do not serve."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """What a request asks for."""

    host: str
    port: int


class Refusal(Exception):  # noqa: N818  an answer to a client, not an error of arena
    """A request that is not served: its HTTP status, and why in words."""

    def __init__(self, status: int, reason: str, target: Target | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.target = target
