"""On a GPU: what torch keeps for cuBLAS must not hold the memory that a score needs."""

import sys

import pytest

pytest.importorskip("torch")

from arena.system import process

pytestmark = pytest.mark.gpu
GIB = 1 << 30
HELD = """
import sys, torch
from arena.judge.device.gpu_memory import own_workspace

with torch.cuda.stream(torch.cuda.Stream()):
    if sys.argv[1] == "early":
        own_workspace("cuda")
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    del block
    one = torch.ones(1, 1, dtype=torch.float64, device="cuda")
    torch.mm(one, one)
    del one
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved())
"""
"""A block of 1 GiB is freed in a new stream, and cuBLAS is used: what torch cannot give back then."""


def held_bytes(when: str) -> int:
    ran = process.run([sys.executable, "-c", HELD, when], limit_s=120)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_a_workspace_taken_late_holds_a_large_block():
    assert held_bytes("late") >= GIB  # why own_workspace exists


def test_a_workspace_of_its_own_holds_little():
    assert held_bytes("early") < GIB // 8


ROOM = """
import sys, torch
from arena import catalog, judge
from arena.errors import JudgeError

free_bytes = torch.cuda.mem_get_info()[0]
taken = torch.empty(free_bytes - int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
problem, hardware = catalog.problem("kahan_softmax"), catalog.hardware_of(torch.cuda.get_device_name())
try:
    judge.preflight(hardware, 0, problem)
except JudgeError as refusal:
    print(refusal)
else:
    print(torch.cuda.memory_reserved() - len(taken))
"""
"""Leaves so many GiB free and asks whether `kahan_softmax` can be scored, whose largest three sets take 6.4 GB."""


def asked(free_gib: float) -> str:
    ran = process.run([sys.executable, "-c", ROOM, str(free_gib)], limit_s=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode().strip()


def test_a_problem_that_fits_leaves_no_memory_with_torch():
    assert int(asked(40)) < GIB


@pytest.mark.parametrize(("free_gib", "why"), [(12, "3 sets take "), (3, "there is not the memory to verify one answer")])
def test_a_problem_that_does_not_fit_is_refused(free_gib: float, why: str):
    answer = asked(free_gib)
    assert answer.startswith("kahan_softmax at R=") and f"does not fit on this device: {why}" in answer
