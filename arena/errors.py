"""What can go wrong on our side. A submission that fails is a verdict, never one of these.

ArenaError            the one type whose text is shown to a person as it stands (exit code 2)
├── UsageError        a name or option that does not exist; the text lists what does
├── DataError         a file of ours or of the user's that cannot be read; the text says file:line:col
├── SandboxError      the wall cannot be built, or is not proven shut
└── JudgeError        the judge or the machine failed while scoring; becomes verdict `judge_failed` in a run
"""


class ArenaError(Exception):
    """Base of all errors with a text written for the user: what is wrong, where, and what to do."""


class UsageError(ArenaError):
    """A name or an option that does not exist."""


class DataError(ArenaError):
    """A YAML or JSON file that does not hold what it should."""


class SandboxError(ArenaError):
    """The sandbox cannot be built on this machine, or could not be proven empty."""


class JudgeError(ArenaError):
    """Scoring failed for a reason that is not the submission's."""
