"""Checks of a machine: what it has and lacks for scoring on a GPU, whether a model answers, and canary kernels."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "missing", "note"]


class Check(NamedTuple):
    """The result of one check."""

    name: str
    state: State
    """`missing` means that something needed is not there; it makes the exit code 2."""
    detail: str
