"""The judge: seeds, clock, reference, tolerances, ceilings and verdict on this side of the wall; the submission on the other."""

from arena.judge.scoring import missing, preflight, score

__all__ = ["missing", "preflight", "score"]
