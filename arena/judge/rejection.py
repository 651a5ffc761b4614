"""The one exception by which a verdict other than `passed` leaves the judge's inner functions."""

from collections.abc import Mapping
from typing import Literal

from arena.schema import Errors

Reason = Literal["incorrect", "forbidden", "cheated", "crashed", "timed_out", "missing"]


class Rejection(Exception):  # noqa: N818  a verdict, not an error of arena
    """The submission failed: the verdict and a sentence that a person can act on."""

    def __init__(
        self,
        verdict: Reason,
        message: str,
        *,
        shape: Mapping[str, int] | None = None,
        mode: str | None = None,
        error: Errors | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict: Reason = verdict
        self.message = message
        self.shape = shape
        self.mode = mode
        self.error = error
