"""The exception with which the gateway and the egress proxy refuse a request."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """The host and port that a request names."""

    host: str
    port: int


class Refusal(Exception):  # noqa: N818  an answer to a client, not an error of arena
    """A refused request: the HTTP status and the reason."""

    def __init__(self, status: int, reason: str, target: Target | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.target = target
