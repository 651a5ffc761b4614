"""The judge: it holds seeds, clock, reference, tolerances, ceilings and verdict; the submission runs in a sandbox outside it.

Importing it is light: each name is loaded when it is first used. torch takes a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.judge.before import missing, preflight
    from arena.judge.scoring import score

__all__ = ["missing", "preflight", "score"]
_SOURCES = {"missing": "before", "preflight": "before", "score": "scoring"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_SOURCES[name]}"), name)
