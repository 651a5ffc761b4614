"""The judge: it holds seeds, clock, reference, tolerances, ceilings and verdict; the submission runs in a sandbox outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arena.judge.before import missing, preflight

if TYPE_CHECKING:
    from arena.judge.scoring import score

__all__ = ["missing", "preflight", "score"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name != "score":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arena.judge.scoring import score  # torch takes a second to import

    return score
