"""Arena measures how well a coding agent writes GPU kernels, so that the number can be trusted.

    import arena

    score = arena.score("solution.py", problem="paged_attention")
    annotation = arena.run("oracle", problem="paged_attention")

Importing it is light: each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.api import load_annotations, load_problem, run, score
    from arena.errors import ArenaError, DataError, JudgeError, SandboxError, UsageError
    from arena.schema import Annotation, JudgeFailed, Passed, Problem, Rejected, Score
    from arena.submission import Submission

__version__ = "0.2.0"
__all__ = [
    "Annotation",
    "ArenaError",
    "DataError",
    "JudgeError",
    "JudgeFailed",
    "Passed",
    "Problem",
    "Rejected",
    "SandboxError",
    "Score",
    "Submission",
    "UsageError",
    "__version__",
    "load_annotations",
    "load_problem",
    "run",
    "score",
]
_SOURCES = {
    "arena.api": ("load_annotations", "load_problem", "run", "score"),
    "arena.errors": ("ArenaError", "DataError", "JudgeError", "SandboxError", "UsageError"),
    "arena.schema": ("Annotation", "JudgeFailed", "Passed", "Problem", "Rejected", "Score"),
    "arena.submission": ("Submission",),
}


def __getattr__(name: str) -> object:
    for module, names in _SOURCES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'arena' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
