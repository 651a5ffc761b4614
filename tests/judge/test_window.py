"""What runs while the worker is stopped: once is made good by new inputs, every time is a cheat. The test itself continues it."""

import contextlib
import hashlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

from arena import catalog, judge  # noqa: E402
from arena.cli.render import show_score  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge import problem_code, worker_client  # noqa: E402
from arena.judge import timing as judge_timing  # noqa: E402
from arena.judge.device.layout import layout  # noqa: E402
from arena.judge.device.memory import HostMemory  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.sampling import CPU  # noqa: E402
from arena.judge.window import PUBLISH_TRIES, Disturbed, Draw, Sets, publish  # noqa: E402
from arena.sandboxes import bwrap  # noqa: E402
from arena.schema import Problem  # noqa: E402
from arena.submission import Submission, collect  # noqa: E402

pytestmark = pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")

FOLDER = Path(__file__).parents[1] / "given"
PROBLEM = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
SHAPE = {"R": 8, "N": 16}
HONEST = Path(__file__).parents[1] / "submissions_given" / "honest.py"
QUICK = replace(CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3)


@pytest.fixture
def worker():
    """A frozen worker that waits for its first order."""
    submission = collect(HONEST.parent, HONEST.name)
    with worker_client.start(submission, sandbox=bwrap, cpus=None, gpu=None, env={}, logs=None, total_limit_s=60) as started:
        started.greet("host")
        started.freeze()
        yield started


@pytest.fixture
def sets():
    memory, floats = HostMemory(), layout([((8, 16), torch.float32)])
    inputs, outputs = memory.buffer(floats.set_bytes), memory.buffer(floats.set_bytes)
    return Sets(memory, memory.staging(inputs), inputs, outputs, floats, floats, 1, True, 0.0)


def let_run():
    """Continue the worker's processes and give them a moment: to go back to their waiting takes a thread some CPU time."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # a dead child of an earlier test
            if worker_client.INSIDE["worker"] in process.cmdline():
                os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.02)


class Drawn:
    """Seeds 0, 1, 2, ... with something that runs beside the first `disturbed` of them."""

    def __init__(self, disturbed):
        self.disturbed = disturbed
        self.seeds = 0

    def __call__(self):
        if self.seeds < self.disturbed:
            let_run()
        self.seeds += 1
        return [Draw("public", self.seeds)]


@pytest.mark.parametrize("disturbed", [0, 1, PUBLISH_TRIES - 1])
def test_who_ran_has_seen_other_inputs(worker, sets, disturbed):
    draw, read = Drawn(disturbed), problem_code.load(PROBLEM, "cpu", FOLDER)
    [kept] = publish(worker, sets, read, SHAPE, draw)
    assert draw.seeds == kept.seed == disturbed + 1
    assert torch.equal(sets.input(0)[0], read.make_inputs(SHAPE, kept.seed, "public", "cpu")[0])
    assert worker.ran_ns() == 0  # stopped again


def test_where_the_class_of_inputs_is_secret_there_is_one_try(worker, sets):
    draw = Drawn(1)
    with pytest.raises(Disturbed):
        publish(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, draw, tries=1)
    assert draw.seeds == 1


class Timing:
    """Stands for the timing of one shape, which something disturbs so often."""

    def __init__(self, disturbed):
        self.left = disturbed
        self.tries = 0

    def __call__(self, *_):
        self.tries += 1
        if self.tries <= self.left:
            raise Disturbed("cheated", f"somebody ran {self.tries}")
        return judge_timing.Timed("call", (1e-3,), (1e-3,), 8, {})


@pytest.mark.parametrize("disturbed", [0, 1, judge_timing.UNDISTURBED_TRIES - 1])
def test_a_disturbed_shape_is_timed_from_its_beginning(disturbed, monkeypatch):
    monkeypatch.setattr(judge_timing, "_timed", timing := Timing(disturbed))
    monkeypatch.setattr(judge_timing, "CALM_S", 0.0)
    timed = judge_timing.time_shape(None, None, SHAPE, "call", 8, None)
    assert timed.disturbed == tuple(f"somebody ran {number + 1}" for number in range(disturbed))
    assert timing.tries == disturbed + 1


def test_a_shape_that_is_disturbed_every_time_is_a_cheat(monkeypatch):
    monkeypatch.setattr(judge_timing, "_timed", timing := Timing(judge_timing.UNDISTURBED_TRIES))
    monkeypatch.setattr(judge_timing, "CALM_S", 0.0)
    with pytest.raises(Rejection) as refused:
        judge_timing.time_shape(None, None, SHAPE, "call", 8, None)
    tries = "somebody ran 1; somebody ran 2; somebody ran 3; somebody ran 4"
    assert refused.value.message == f"Timing was disturbed in each of 4 tries: {tries}"
    assert timing.tries == judge_timing.UNDISTURBED_TRIES


def scored(source, **plan):
    submission = Submission(source.encode(), hashlib.sha256(source.encode()).hexdigest())
    how = {"digest": "", "sandbox": bwrap, "plan": replace(QUICK, **plan), "folder": FOLDER}
    return judge.score(submission, PROBLEM, catalog.hardware("cpu"), **how)


@pytest.mark.parametrize(("disturbed", "review"), [(0, False), (1, False), (2, True)])
def test_a_score_says_what_disturbed_it(disturbed, review, monkeypatch, capsys):
    timed, left = judge_timing._timed, ["somebody ran"] * disturbed

    def disturbing(*given):
        if left:
            raise Disturbed("cheated", left.pop())
        return timed(*given)

    monkeypatch.setattr(judge_timing, "_timed", disturbing)
    result = scored(HONEST.read_text())
    assert result.verdict == "passed", result.message
    first, *_ = (shape.disturbed for shape in result.shapes)
    assert first[:disturbed] == ("somebody ran",) * disturbed
    assert result.review_suggested == any(len(shape.disturbed) > 1 for shape in result.shapes)
    assert result.review_suggested or not review
    show_score(result)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("retimed R=8 N=4096: somebody ran") >= disturbed
    assert ("retimed more than once" in shown) == result.review_suggested


def test_all_that_a_worker_may_take_has_an_end():
    result = scored("import time\n" + HONEST.read_text() + "\n    time.sleep(0.5)\n", total_limit_s=3.0)
    assert (result.verdict, result.message) == ("timed_out", "All that was asked of one worker together took longer than 3 s")


def test_who_runs_every_time_is_a_cheat(worker, sets):
    with pytest.raises(Rejection, match=r"A process of the submission ran \(.* ms\) while the worker was stopped") as refused:
        publish(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, Drawn(PUBLISH_TRIES))
    assert refused.value.verdict == "cheated"
