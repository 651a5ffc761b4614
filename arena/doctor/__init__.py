"""What this machine has and lacks for scoring on a GPU, and canaries: kernels so plain that a failure is the machine's."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "missing", "note"]


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: State
    """What is missing is needed, and makes the exit code 2."""
    detail: str
