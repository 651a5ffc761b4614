"""The exception that carries a verdict other than `passed` out of the judge's inner functions, and what a submission causes."""

import errno
import re
from collections.abc import Mapping

from arena.errors import ArenaError
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


SHORTAGES = {errno.ENOMEM: "Memory", errno.EAGAIN: "Processes", errno.ENFILE: "The machine's open files"}
"""What a submission can take from the judge, by the error of a system call. Not EMFILE: each process has a count of its own. Not
ENOSPC: a worker has no disk."""
SHORT_TEXTS = {
    "Memory": re.compile(r"out[ _]of[ _]memory|can(no|')t allocate|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED", re.IGNORECASE),
    "Processes": re.compile(r"can't start new thread"),
}
"""The same in the texts of RuntimeErrors: torch's on host and device, cuBLAS's (which cannot make a handle), Python's threads."""


def shortage(error: MemoryError | OSError | RuntimeError) -> str | None:
    """What ran out, where the error says that something did which all processes of the machine share; else None."""
    if isinstance(error, MemoryError):
        return "Memory"
    if isinstance(error, OSError):
        return SHORTAGES.get(error.errno or 0)
    return next((what for what, pattern in SHORT_TEXTS.items() if pattern.search(str(error))), None)


def crowded(failure: Rejection | ArenaError | MemoryError | OSError | RuntimeError) -> bool:
    """Whether a worker that fails so while others build, or the judge, may have lacked the memory that the others took."""
    if isinstance(failure, Rejection):
        return failure.verdict == "crashed" and shortage(RuntimeError(failure.message)) == "Memory"
    return not isinstance(failure, ArenaError) and shortage(failure) == "Memory"


def refusal_under_way(error: BaseException) -> Rejection | None:
    """The Rejection during whose cleaning up this error came up; None where there was none."""
    before: BaseException | None = error
    while before is not None and not isinstance(before, Rejection):
        before = None if before.__suppress_context__ else before.__context__
    return before
