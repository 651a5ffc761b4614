"""Why a run wants a look, and in which order they come."""

from typing import Any

from records import trial, unsteady

from arena.results import desk
from arena.schema import Annotation, Similar


def changed(found: Annotation, **of_the_shape: Any) -> Annotation:
    shape = found.score.shapes[0].model_copy(update=of_the_shape)  # type: ignore[union-attr]
    return found.model_copy(update={"score": found.score.model_copy(update={"shapes": (shape,), "review_suggested": True})})


def test_a_steady_run_wants_no_look():
    assert desk.wanted([trial(0.4, 1), trial("incorrect", 2)]) == []


def test_noise_does_not_hide_calls_that_overlapped():
    """Else a submission that scatters its timings on purpose would come last, as a busy machine does."""
    noisy, hiding = unsteady(trial(0.4, 1)), changed(unsteady(trial(0.4, 2)), among_s=60e-6, alone_s=100e-6)
    found = desk.wanted([noisy, hiding])
    assert [one.annotation for one in found] == [hiding, noisy]
    assert [reason.partition(":")[0] for reason in found[0].reasons] == ["unsteady", "calls may have overlapped"]


def test_a_message_stays_on_its_line():
    """A line feed could make one run look like two."""
    found = trial("cheated", 1)
    forged = found.model_copy(update={"score": found.score.model_copy(update={"message": "x\n2026-01-01_fake  passed"})})
    assert desk.reasons(forged) == ("cheated: x 2026-01-01_fake  passed",)


def test_a_small_share_of_a_well_known_kernel_wants_no_look():
    """It is on record from a tenth on, and a reason for a look where the judge takes it for one."""
    found = trial(0.4, 1)
    for share, wanted in ((0.29, 0), (0.3, 1)):
        held = (Similar(source="library 1.0: kernel", share=share),)
        holding = found.model_copy(update={"score": found.score.model_copy(update={"similar": held})})
        assert len(desk.reasons(holding)) == wanted


def test_a_slowed_device_is_a_reason_beside_missing_counters() -> None:
    """Their notes are no reason where a machine has none, and stood alone."""
    found = trial(0.4, 1)
    slowed = {"unsteady": True, "review_suggested": True, "environment": {"throttle": "hardware slowdown"}}
    reasons = desk.reasons(found.model_copy(update={"score": found.score.model_copy(update=slowed)}))
    assert reasons[0] == "the driver slowed the device down meanwhile: hardware slowdown"
