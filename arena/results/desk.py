"""What a person should look at: why each run asks for a review, from its annotation alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from arena.schema import Annotation, Passed
from arena.schema.score import REVIEW_SHARE

NEAR_CEILING = 0.95
"""Of the ceiling, as in the judge's own flag."""
SUSPECT = ("cheated", "forbidden")
"""Rejections that a person should read: they say something of the agent, or of the judge."""


NOISE = ("unsteady:", "timed again")
"""How reasons begin that a busy machine alone may explain."""


class Wanted(NamedTuple):
    """A run that wants a look."""

    annotation: Annotation
    reasons: tuple[str, ...]


def wanted(annotations: Iterable[Annotation]) -> list[Wanted]:
    """The runs without a review that want a look, in the order given, those last that only lack steady timings."""
    found = (Wanted(annotation, reasons(annotation)) for annotation in annotations if annotation.review is None)
    return sorted((one for one in found if one.reasons), key=lambda one: all(reason.startswith(NOISE) for reason in one.reasons))


def reasons(annotation: Annotation) -> tuple[str, ...]:
    """Why the run wants a look; empty when it does not."""
    score = annotation.score
    if not isinstance(score, Passed):
        return (" ".join(f"{score.verdict}: {score.message}".splitlines()),) if score.verdict in SUSPECT else ()
    found = []
    for shape in score.shapes:
        sizes = " ".join(f"{name}={size}" for name, size in shape.shape.items())
        if shape.unsteady:
            found.append(f"unsteady: {sizes}, ± {shape.half_width():.1%}, processes {shape.apart():.1%} apart")
        if shape.peak_fraction > NEAR_CEILING:
            found.append(f"near the ceiling: {sizes}, {shape.peak_fraction:.3f}")
        if len(shape.disturbed) > 1:
            found.append(f"timed again {len(shape.disturbed)} times: {sizes}")
        if shape.overlapped():
            found.append(f"calls may have overlapped: {sizes}")
    well_known = [known for known in score.similar if known.share >= REVIEW_SHARE]
    found += [f"holds {known.share:.2f} of a well-known kernel: {known.source}" for known in well_known]
    if score.unsteady and not any(shape.unsteady for shape in score.shapes):
        found.append(f"the driver slowed the device down meanwhile: {score.environment.get('throttle', 'no reason recorded')}")
    if score.message:
        found.append(score.message)
    if score.review_suggested:
        found += ["on some shape no kernel was seen"] * any(not each.kernels for each in score.evidence)
        found += dict.fromkeys(f"evidence: {each.note}" for each in score.evidence if each.note)
        if not found:
            found.append("the judge suggests a review: the device's speed changed")
    return tuple(" ".join(reason.splitlines()) for reason in found)
