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
