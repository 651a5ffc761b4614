"""What can go wrong on our side. A submission that fails is a verdict, never one of these.

ArenaError            the one type whose text is shown to a person as it stands (exit code 2)
├── UsageError        a name or option that does not exist; the text lists what does
├── DataError         a file of ours or of the user's that cannot be read; the text says file:line:col
├── SandboxError      the sandbox cannot be built, or is not proven to isolate
└── JudgeError        the judge or the machine failed while scoring; becomes verdict `judge_failed` in a run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class ArenaError(Exception):
    """Base of all errors with a text written for the user: what is wrong, where, and what to do."""

    def __init__(self, message: str, faults: Sequence[ArenaError] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        """The single errors where this one stands for several."""


class UsageError(ArenaError):
    """A name or an option that does not exist."""


class DataError(ArenaError):
    """A YAML or JSON file that does not hold what it should."""


class SandboxError(ArenaError):
    """The sandbox cannot be built on this machine, or could not be proven empty."""


class JudgeError(ArenaError):
    """Scoring failed for a reason that is not the submission's."""


class Faults:
    """Collects the errors of independent steps, so that a person sees all of them at once."""

    def __init__(self) -> None:
        self._errors: list[ArenaError] = []

    def collect(self, step: Callable[[], T]) -> T | None:
        """The step's result; None when it raised an ArenaError, which is kept."""
        try:
            return step()
        except ArenaError as error:
            self._errors += error.faults or (error,)
            return None

    def raise_all(self) -> None:
        """Raise the one error that was kept as it is; several as one UsageError that numbers them."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            lines = [f"{number}. {error}" for number, error in enumerate(self._errors, start=1)]
            raise UsageError("\n".join([f"{len(lines)} faults:", *lines]), self._errors)
