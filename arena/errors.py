"""Errors on arena's side, the user's or the machine's. A submission that fails gets a verdict, never one of these.

ArenaError            the one type whose text arena shows to the user (exit code 2)
├── UsageError        a name or option that does not exist; the text lists the choices
├── DataError         a file of arena or of the user that cannot be read; the text names file:line:column
├── SandboxError      the sandbox cannot be built, or fails its isolation test
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
        """The single errors, when this one stands for several."""


def message_of(error: BaseException) -> str:
    """Its text, or its type where it has none, as a MemoryError."""
    return str(error) or type(error).__name__


class UsageError(ArenaError):
    """A name or an option that does not exist."""


class DataError(ArenaError):
    """A YAML or JSON file with wrong or unreadable content."""


class SandboxError(ArenaError):
    """The sandbox cannot be built on this machine, or fails its isolation test."""


class JudgeError(ArenaError):
    """Scoring failed for a reason outside the submission."""


class Faults:
    """Collects the errors of independent steps, so that the user sees all at once."""

    def __init__(self) -> None:
        self._errors: list[ArenaError] = []

    def collect(self, step: Callable[[], T]) -> T | None:
        """Return the step's result; on an ArenaError keep the error and return None."""
        try:
            return step()
        except ArenaError as error:
            self.add(error)
            return None

    def add(self, error: ArenaError) -> None:
        """Keep an error, or each of those that it stands for."""
        self._errors += error.faults or (error,)

    def raise_all(self) -> None:
        """Raise a single kept error itself, and several as one UsageError that numbers them."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            lines = [f"{number}. {error}" for number, error in enumerate(self._errors, start=1)]
            raise UsageError("\n".join([f"{len(lines)} faults:", *lines]), self._errors)
