"""A window on a CPU: what runs while the worker is frozen, and how its sample is copied.

What ran once brings new inputs, and every time is a cheat. The test itself lets the worker run.
"""

import contextlib
import os
import resource
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from command import needs_sandbox

torch = pytest.importorskip("torch")

from arena.files import documents  # noqa: E402
from arena.judge import problem_code, worker_client  # noqa: E402
from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.sets import Disturbed, InputSpec, Sets  # noqa: E402
from arena.judge.window import PREPARE_TRIES, prepare_inputs, window  # noqa: E402
from arena.sandboxes import bwrap  # noqa: E402
from arena.schema import Problem  # noqa: E402
from arena.submission import collect  # noqa: E402

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
@needs_sandbox
def test_process_that_ran_has_seen_other_inputs(worker, sets, disturbed):
    draw, read = Draw(disturbed), problem_code.load(PROBLEM, "cpu", FOLDER)
    [kept] = prepare_inputs(worker, sets, read, SHAPE, draw)
    assert draw.seeds == kept.seed == disturbed + 1
    assert torch.equal(sets.input(0)[0], read.make_inputs(SHAPE, kept.seed, "public", "cpu")[0])
    assert worker.ran_ns() == 0  # frozen again


@needs_sandbox
def test_one_try_where_input_classes_are_secret(worker, sets):
    draw = Draw(1)
    with pytest.raises(Disturbed):
        prepare_inputs(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, draw, tries=1)
    assert draw.seeds == 1


@needs_sandbox
def test_process_that_runs_every_time_is_a_cheat(worker, sets):
    with pytest.raises(Rejection, match=r"A process of the submission ran \(.* ms\) while the worker was stopped") as caught:
        prepare_inputs(worker, sets, problem_code.load(PROBLEM, "cpu", FOLDER), SHAPE, Draw(PREPARE_TRIES))
    assert caught.value.verdict == "cheated"


class Still:
    """A worker without processes, whose calls fill each output with a number. Notes how many pages the judge has at each step."""

    gate = None

    def __init__(self, sets):
        self.sets, self.windows, self.pages = sets, 0, []

    def note(self):
        self.pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

    def freeze(self):
        self.note()

    def reject_stray_packets(self):
        pass

    def ran_ns(self):
        self.note()
        return 0

    def send(self, *_, **order):
        self.note()
        assert order == {"calls": 2, "launch_mode": "call"}

    def resume(self):
        pass

    def reply(self, *_):
        self.windows += 1
        for index in range(2):
            self.sets.output(index)[0].fill_(10 * self.windows + index)
        self.note()


def test_no_memory_is_taken_for_the_sample_once_there_are_inputs():
    """The kernel writes zeros into new memory: that would lengthen some windows, or give what runs unseen time for the inputs."""
    memory, floats = HostMemory(), layout([((1 << 20,), torch.float32)])
    inputs, outputs = (memory.buffer(2 * floats.set_bytes) for _ in range(2))
    large = Sets(memory, memory.staging(inputs), inputs, outputs, floats, floats, 2)
    read: Any = SimpleNamespace(make_inputs=lambda *how: (torch.ones(1 << 20),))
    worker: Any = Still(large)

    def draw():
        return [InputSpec("public", 1), InputSpec("public", 2)]

    done = [window(worker, large, read, SHAPE, draw, "call", 2, 60.0) for _ in range(12)]
    for number, each in enumerate(done, start=1):  # all are kept, so that none of their memory is used again
        assert set(each.sample) == {0, 1}
        assert all(bool((copied == 10 * number + index).all()) for index, (copied,) in each.sample.items())
    steps = [worker.pages[first : first + 5] for first in range(0, len(worker.pages), 5)]
    assert len(steps) == 12 and len(worker.pages) == 60  # stopped, proved, sent, replied, stopped
    taken = [(sent - proved, stopped - replied) for _, proved, sent, replied, stopped in steps]
    of_the_sample = 2 * floats.set_bytes // resource.getpagesize()
    assert max(map(max, taken)) < of_the_sample / 4, taken
