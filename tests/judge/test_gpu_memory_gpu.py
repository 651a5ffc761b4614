"""On a GPU: what torch keeps for cuBLAS must not hold the memory that a score needs."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu
GIB = 1 << 30


def held_bytes(early: bool) -> int:
    """What torch cannot give back after a block of 1 GiB was freed in a new stream, and cuBLAS then took its workspace."""
    from arena.judge.device.gpu_memory import own_workspace

    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with torch.cuda.stream(torch.cuda.Stream()):
        if early:
            own_workspace("cuda")
        block = torch.empty(GIB, dtype=torch.uint8, device="cuda")
        del block
        one = torch.ones(1, 1, dtype=torch.float64, device="cuda")
        torch.mm(one, one)
        del one
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() - before


def test_a_workspace_taken_late_holds_a_large_block():
    assert held_bytes(early=False) >= GIB  # why own_workspace exists


def test_a_workspace_of_its_own_holds_little():
    assert held_bytes(early=True) < GIB // 8
