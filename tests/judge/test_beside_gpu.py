"""On a GPU: a score while a person's program computes there, and a solution that needs much memory while it builds."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from submission import SHIPPED, submitted  # noqa: E402

from arena import catalog, judge  # noqa: E402
from arena.judge.sampling import GPU  # noqa: E402
from arena.sandboxes import bwrap  # noqa: E402
from arena.schema import JudgeFailed, Passed  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.timing]

ORACLE = (SHIPPED / "oracle_gpu.py").read_text()
COMPUTES = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    a @ a
    torch.cuda.synchronize()
"""
NEEDS_MUCH_AT_FIRST = """

import time
LIBRARY = torch.library.Library("arena_test", "DEF")  # a second import in one process would fail here
honest, begun = solution, []


def solution(*arguments):
    if not begun:
        begun.append(True)
        room = torch.empty(int(0.3 * torch.cuda.get_device_properties(0).total_memory), dtype=torch.uint8, device="cuda")
        room.fill_(0)
        torch.cuda.synchronize()
        time.sleep(8)
        del room
    honest(*arguments)
"""


def scored(source, report=lambda text: None, processes=1):
    problem = catalog.problem("paged_attention")
    problem = problem.model_copy(update={"shapes": {"gpu": problem.shapes["gpu"][1::3]}, "latency": {}})
    sampling = replace(GPU, processes=processes, repeats=0, counters=False)
    hardware = catalog.hardware_of(torch.cuda.get_device_name())
    return judge.score(submitted(source), problem, hardware, digest="", sandbox=bwrap, sampling=sampling, report=report)


def test_a_persons_program_on_the_gpu_is_no_verdict():
    people: list[Any] = []

    def begin(step):
        if step.startswith("timing, process 1") and not people:
            people.append(subprocess.Popen([sys.executable, "-c", COMPUTES], stdout=subprocess.PIPE))
            assert people[0].stdout.readline() == b"ready\n"

    try:
        result = scored(ORACLE, begin)
    finally:
        for person in people:
            person.kill()
            person.communicate()
    assert isinstance(result, JudgeFailed), result
    assert f"Other processes use the GPU (pid {people[0].pid})" in result.message
    assert isinstance(scored(ORACLE), Passed), "alone it passes"


TAKES = """
import sys, time, torch
free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - (600 << 20), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
time.sleep(600)
"""


def test_memory_that_a_persons_program_takes_is_no_verdict():
    people: list[Any] = []

    def begin(step):
        if step == "building" and not people:
            people.append(subprocess.Popen([sys.executable, "-c", TAKES], stdout=subprocess.PIPE))
            assert people[0].stdout.readline() == b"ready\n"

    try:
        result = scored(ORACLE, begin, processes=2)
    finally:
        for person in people:
            person.kill()
            person.communicate()
    assert isinstance(result, JudgeFailed), result
    assert f"Other processes use the GPU (pid {people[0].pid})" in result.message


def test_one_that_needs_much_memory_is_built_again():
    result = scored(ORACLE + NEEDS_MUCH_AT_FIRST, processes=2)
    assert isinstance(result, Passed), result.message
    assert "builds were repeated, one after the other" in result.environment["notes"]
    print(result.peak_fraction, result.environment["notes"], result.timings)  # for docs/measurements/judge.md
