"""What runs while the worker is frozen: once brings new inputs, every time is a cheat. The test itself lets the worker run."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from command import needs_sandbox

torch = pytest.importorskip("torch")

from arena.files import documents  # noqa: E402
from arena.judge import problem_code, worker_client  # noqa: E402
from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.sets import Disturbed, InputSpec, Sets  # noqa: E402
from arena.judge.window import PREPARE_TRIES, prepare_inputs  # noqa: E402
from arena.sandboxes import bwrap  # noqa: E402
from arena.schema import Problem  # noqa: E402
from arena.submission import collect  # noqa: E402

pytestmark = needs_sandbox

FOLDER = Path(__file__).parents[1] / "given"
PROBLEM = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
SHAPE = {"R": 8, "N": 16}
HONEST = Path(__file__).parents[1] / "attacks" / "cpu" / "honest.py"


@pytest.fixture
def worker():
    """A frozen worker that waits for its first order."""
    submission = collect(HONEST.parent, HONEST.name)
    with worker_client.start(submission, sandbox=bwrap, cpus=None, gpu=None, env={}, logs=None, total_limit_s=60) as started:
        started.wait_until_ready(HostMemory())
        started.freeze()
        yield started


@pytest.fixture
def sets():
    memory, floats = HostMemory(), layout([((8, 16), torch.float32)])
    inputs, outputs = memory.buffer(floats.set_bytes), memory.buffer(floats.set_bytes)
    return Sets(memory, memory.staging(inputs), inputs, outputs, floats, floats, 1)


def let_run():
    """Let the worker's processes run for a moment: a thread needs some CPU time to go back to waiting."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # a dead child of an earlier test
            if worker_client.SANDBOX_PATHS["worker"] in process.cmdline():
                os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.02)


class Draw:
    """Draws seeds 1, 2, 3, ...; the worker runs while the first `disturbed` of them are drawn."""

    def __init__(self, disturbed):
        self.disturbed = disturbed
        self.seeds = 0

    def __call__(self):
        if self.seeds < self.disturbed:
            let_run()
        self.seeds += 1
        return [InputSpec("public", self.seeds)]


@pytest.mark.parametrize("disturbed", [0, 1, PREPARE_TRIES - 1])
def test_process_that_ran_has_seen_other_inputs(worker, sets, disturbed):
    draw, read = Draw(disturbed), problem_code.load(PROBLEM, "cpu", FOLDER)
    [kept] = prepare_inputs(worker, sets, read, SHAPE, draw)
    assert draw.seeds == kept.seed == disturbed + 1
    assert torch.equal(sets.input(0)[0], read.make_inputs(SHAPE, kept.seed, "public", "cpu")[0])
    assert worker.ran_ns() == 0  # frozen again


def test_one_try_where_input_classes_are_secret(worker, sets):
    draw = Draw(1)
    with pytest.raises(Disturbed):
        prepare_inputs(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, draw, tries=1)
    assert draw.seeds == 1


def test_process_that_runs_every_time_is_a_cheat(worker, sets):
    with pytest.raises(Rejection, match=r"A process of the submission ran \(.* ms\) while the worker was stopped") as caught:
        prepare_inputs(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, Draw(PREPARE_TRIES))
    assert caught.value.verdict == "cheated"
