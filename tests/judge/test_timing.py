"""Timing: retries of a disturbed shape, the limit on one worker, the anchor and the stopwatch."""

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from arena import catalog, judge
from arena.cli.render import show_score
from arena.files import documents
from arena.judge import timing as judge_timing
from arena.judge.evaluation import _settled_gb_s
from arena.judge.rejection import Rejection
from arena.judge.sampling import CPU
from arena.judge.sets import Disturbed
from arena.judge.timing import Stopwatch
from arena.sandboxes import bwrap
from arena.schema import Problem
from arena.submission import Submission

FOLDER = Path(__file__).parents[1] / "given"
PROBLEM = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
SHAPE = {"R": 8, "N": 16}
HONEST = (Path(__file__).parents[1] / "submissions" / "honest.py").read_text()
QUICK = replace(CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3)
sandboxed = pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")


UNUSED: Any = None
"""Stands for an argument that the replaced timing never reads."""


class FakeTiming:
    """Replaces the timing of one shape; the first `disturbed` tries are disturbed."""

    def __init__(self, disturbed):
        self.left = disturbed
        self.tries = 0

    def __call__(self, *_):
        self.tries += 1
        if self.tries <= self.left:
            raise Disturbed("cheated", f"a process ran {self.tries}")
        return judge_timing.ShapeTiming("call", 8, (8e-3,), (), judge_timing.Overhead(0.0), {})


@pytest.mark.parametrize("disturbed", [0, 1, judge_timing.TIMING_TRIES - 1])
def test_disturbed_shape_is_retried(disturbed, monkeypatch):
    monkeypatch.setattr(judge_timing, "_time_once", timing := FakeTiming(disturbed))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    timed = judge_timing.time_shape(UNUSED, UNUSED, SHAPE, "call", 8, UNUSED)
    assert timed.disturbed == tuple(f"a process ran {number + 1}" for number in range(disturbed))
    assert timing.tries == disturbed + 1


def test_shape_disturbed_in_every_try_is_a_cheat(monkeypatch):
    monkeypatch.setattr(judge_timing, "_time_once", timing := FakeTiming(judge_timing.TIMING_TRIES))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    with pytest.raises(Rejection) as caught:
        judge_timing.time_shape(UNUSED, UNUSED, SHAPE, "call", 8, UNUSED)
    tries = "a process ran 1; a process ran 2; a process ran 3; a process ran 4"
    assert caught.value.message == f"Timing was disturbed in each of 4 tries: {tries}"
    assert timing.tries == judge_timing.TIMING_TRIES


def scored(source, **sampling):
    submission = Submission(source.encode(), hashlib.sha256(source.encode()).hexdigest())
    how: dict[str, Any] = {"digest": "", "sandbox": bwrap, "sampling": replace(QUICK, **sampling), "folder": FOLDER}
    return judge.score(submission, PROBLEM, catalog.hardware("cpu"), **how)


@sandboxed
@pytest.mark.parametrize(("disturbed", "review"), [(0, False), (1, False), (2, True)])
def test_score_records_what_disturbed_it(disturbed, review, monkeypatch, capsys):
    timed, left = judge_timing._time_once, ["a process ran"] * disturbed

    def disturbing(*given):
        if left:
            raise Disturbed("cheated", left.pop())
        return timed(*given)

    monkeypatch.setattr(judge_timing, "_time_once", disturbing)
    result = scored(HONEST)
    assert result.verdict == "passed", result.message
    first, *_ = (shape.disturbed for shape in result.shapes)
    assert first[:disturbed] == ("a process ran",) * disturbed
    assert result.review_suggested == (result.unsteady or any(len(shape.disturbed) > 1 for shape in result.shapes))
    assert result.review_suggested or not review
    show_score(result)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("R=8 N=4096: a process ran") >= disturbed
    assert ("more than once" in shown) == result.review_suggested


@sandboxed
def test_one_worker_has_a_total_time_limit():
    result = scored("import time\n" + HONEST + "\n    time.sleep(0.5)\n", total_limit_s=3.0)
    assert result.verdict == "timed_out"
    assert result.message == "One worker took longer than 3 s for its build, checks and timing together"


@pytest.mark.parametrize(
    ("readings", "taken"),
    [([100, 100.1], 100.1), ([97, 99, 100, 100.1, 50], 100.1), ([90, 110] * 20, 90)],
    ids=["steady", "after a worker's end", "never steady"],
)
def test_anchor_is_read_once_it_has_settled(readings, taken):
    reading = iter(readings)
    assert _settled_gb_s(lambda: next(reading), drift=0.01) == taken


def test_inner_phase_pauses_the_outer_one() -> None:
    stopwatch = Stopwatch()
    with stopwatch.phase("check"):
        time.sleep(0.03)
        with stopwatch.phase("build"):
            time.sleep(0.08)
        time.sleep(0.03)
    time.sleep(0.02)
    spent = stopwatch.timings()
    assert 0.06 <= spent.check_s < 0.08 <= spent.build_s
    assert spent.total_s >= spent.check_s + spent.build_s + 0.018  # they are rounded to milliseconds
    assert spent.benchmark_s == spent.evidence_s == 0
