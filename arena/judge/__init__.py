"""The judge: it holds seeds, clock, reference, tolerances, ceilings and verdict; the submission runs in a sandbox outside it."""

from arena.judge.scoring import missing, preflight, score

__all__ = ["missing", "preflight", "score"]
