"""The exception that carries a verdict other than `passed` out of the judge's inner functions, and what a submission causes."""

import errno
import re
from collections.abc import Mapping, Sequence
from typing import Self

from arena.errors import ArenaError, JudgeError
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

    def alone(self) -> Self:
        """The same without where it came from: what was on the stack there has memory."""
        return type(self)(self.verdict, self.message, shape=self.shape, input_class=self.input_class, error=self.error)


class NotAloneError(JudgeError):
    """Something failed that may be due to these processes, which compute on the GPU and are not the submission's."""

    def __init__(self, pids: Sequence[int], what: str) -> None:
        remedy = "a score needs it alone. End them or choose another GPU"
        super().__init__(f"Other processes use the GPU (pid {', '.join(map(str, pids))}): {remedy}. {what}")


SHORTAGES = {errno.ENOMEM: "Memory", errno.EAGAIN: "Processes", errno.ENFILE: "The machine's open files"}
"""What a submission can take from the judge, by the error of a system call. Not EMFILE: each process has a count of its own. Not
ENOSPC: a worker has no disk."""
SHORT_TEXTS = {
    "Memory": re.compile(
        r"out[ _]of[ _]memory|(can(no|')t|unable to) allocate|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
        r"|MemoryError|bad_alloc|memory allocation failure|memory exhausted",
        re.IGNORECASE,
    ),
    "Processes": re.compile(r"can't start new thread"),
}
"""The same in the texts of RuntimeErrors: torch's on host and device, cuBLAS's (which cannot make a handle), Python's threads.
And in what a worker prints: Python's, the C++ library's, and those of compilers."""


SHORT_ON_GPU = re.compile(r"CUDA\b.*out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)")
"""Of these, what says that a GPU's memory was short: CUDA's, torch's, Triton's and cuBLAS's words."""


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
