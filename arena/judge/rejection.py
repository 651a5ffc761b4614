"""The exception that carries a verdict other than `passed` out of the judge's inner functions."""

from collections.abc import Mapping

from arena.schema import Errors, RejectionVerdict


class Rejection(Exception):  # noqa: N818  a verdict, not an error of arena
    """The submission failed: the verdict, and a message that a person can act on."""

    def __init__(
        self,
        verdict: RejectionVerdict,
        message: str,
        *,
        shape: Mapping[str, int] | None = None,
        input_class: str | None = None,
        error: Errors | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict: RejectionVerdict = verdict
        self.message, self.shape, self.input_class, self.error = message, shape, input_class, error
