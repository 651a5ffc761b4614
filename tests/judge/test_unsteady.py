"""An unsteady score says so: which timings count as unsteady, and where that shows."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import needs_sandbox

pytest.importorskip("torch")

from records import SHAPE, trial, unsteady

from arena import catalog, judge
from arena.cli.render import show_score
from arena.files import documents
from arena.judge.sampling import CPU, GPU
from arena.judge.scoring import _busy, _unsteady
from arena.sandboxes import bwrap
from arena.schema import Passed, Problem, TimedShape
from arena.submission import Submission
from arena.system.load import Load, User

FOLDER = Path(__file__).parents[1] / "given"
SUBMISSIONS = FOLDER.parent / "attacks" / "cpu"
PROBLEM = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
BOUNDS = replace(CPU, steady_half_width=0.05, steady_apart=0.10)
FEW = replace(CPU, min_calls=4)
"""The published sampling for calls as long as those of the two submissions."""
MOST_SCORES = 3
"""Other work on the machine makes the even one unsteady, too, and passes."""


def timed(ci95: tuple[float, float], medians: tuple[float, ...]) -> TimedShape:
    """A shape of one second per call, with these scatters."""
    return TimedShape.model_validate(SHAPE | {"measured_s": 1.0, "ci95": ci95, "process_medians_s": medians})


@pytest.mark.parametrize(
    ("ci95", "medians", "marked"),
    [
        ((1.0, 1.0), (1.0,), False),
        ((0.96, 1.04), (0.95, 1.0, 1.04), False),
        ((0.94, 1.05), (1.0, 1.0, 1.0), True),
        ((1.0, 1.11), (1.0, 1.0, 1.0), True),
        ((0.99, 1.01), (0.95, 1.0, 1.06), True),
        ((0.66, 1.34), (0.7, 1.0, 1.5), True),
    ],
    ids=["one value", "within both", "wide", "wide on one side", "processes apart", "both"],
)
def test_either_bound_makes_a_shape_unsteady(ci95: Any, medians: Any, marked: bool) -> None:
    assert _unsteady(timed(ci95, medians), BOUNDS) is marked


@pytest.mark.parametrize(("spread_us", "marked"), [(4.5, False), (5.5, True)])
def test_short_calls_have_room_for_what_the_clock_cannot_tell(spread_us: float, marked: bool) -> None:
    medians = (80e-6, 80e-6, (80 + spread_us) * 1e-6)
    short = timed((80e-6, 80e-6), medians).model_copy(update={"measured_s": 80e-6})
    assert _unsteady(short, replace(BOUNDS, steady_apart=0.03), 5e-6) is marked
    assert _unsteady(short, replace(BOUNDS, steady_apart=0.03)), "both are more than 3 % apart"


def test_gpu_is_held_to_narrower_bounds() -> None:
    assert 0 < GPU.half_width < GPU.steady_half_width < CPU.steady_half_width
    assert 0 < GPU.steady_apart < CPU.steady_apart


def scored(name: str) -> Passed:
    source = (SUBMISSIONS / f"{name}.py").read_bytes()
    submission = Submission(source, hashlib.sha256(source).hexdigest())
    result = judge.score(submission, PROBLEM, catalog.hardware("cpu"), digest="", sandbox=bwrap, sampling=FEW, folder=FOLDER)
    assert isinstance(result, Passed), result.message
    return result


@pytest.mark.slow
@pytest.mark.timing
@needs_sandbox
@pytest.mark.parametrize(("name", "marked"), [("sleeps_evenly", False), ("sleeps_at_random", True)])
def test_erratic_submission_is_marked_and_its_twin_is_not(name: str, marked: bool, capsys: pytest.CaptureFixture[str]) -> None:
    result = scored(name)
    for _ in range(MOST_SCORES - 1):
        if result.unsteady is not marked:
            result = scored(name)
    assert (result.unsteady, result.review_suggested) == (marked, marked)
    assert [shape.unsteady for shape in result.shapes] == [marked]
    show_score(result)
    assert ("unsteady" in capsys.readouterr().err) is marked


def test_unsteady_score_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    show_score(trial(0.5).score)
    assert "unsteady" not in capsys.readouterr().err
    show_score(unsteady(trial(0.5)).score)
    shown = capsys.readouterr().err
    assert "unsteady ± 27.5%" in shown
    assert "peak_fraction 0.5000 (geometric mean), unsteady" in shown
    assert "unsteady N=8: its 95 % interval is ± 27.5%, its processes lie 40.0% apart" in shown
    assert "Review it before you cite it: a shape is unsteady" in shown


def test_a_score_of_a_busy_machine_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    idle, busy = Load(0.1, 2), Load(1.9, 2, (User("private", 7, 1.9),))
    assert _busy({"before": idle, "after": idle}) == {}
    found = _busy({"before": idle, "after": busy})
    assert found == {"busy": "other processes use 1.9 of 2 processors after the score"}, "no name of a process is published"
    show_score(trial(0.5).score)
    assert "busy machine" not in capsys.readouterr().err
    show_score(trial(0.5).score.model_copy(update={"environment": found | {"ceilings_busy": busy.share()}}))
    shown = capsys.readouterr().err
    assert "busy machine: other processes use 1.9 of 2 processors after the score; times may be long" in shown
    assert "low ceilings: measured while other processes use 1.9 of 2 processors" in shown
