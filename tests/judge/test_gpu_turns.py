"""Of checks side by side in one process, none waits for the device while another's stream waits for a worker.

A GPU is not needed: the driver's calls are replaced, the lock and the threads are real.
"""

import sys
from collections.abc import Callable, Iterator
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch")

REPLACED = ("arena.judge.device.gpu_memory", "arena.judge.worker.cuda_driver")


@pytest.fixture
def gpu_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported without NVIDIA's bindings and forgotten again."""
    kept = {name: sys.modules.pop(name, None) for name in REPLACED}
    for name in ("cuda", "cuda.bindings", "cuda.bindings.driver"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    from arena.judge.device import gpu_memory
    from arena.judge.worker import cuda_driver

    buffer = SimpleNamespace(tensor=torch.zeros(8), close=lambda: None)
    monkeypatch.setattr(cuda_driver, "allocate", lambda size_bytes, index: (buffer, -1))
    monkeypatch.setattr(cuda_driver, "wait_for_word", lambda address, number: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, query=lambda: True))
    yield gpu_memory
    for name, module in kept.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


def gate(gpu_memory: ModuleType) -> Any:
    made = object.__new__(gpu_memory.CudaGate)
    made._turns, made._has_turn = gpu_memory.TURNS, False
    made._started, made._starts, made._last, made._free = torch.zeros(1, dtype=torch.int32), 0, 0, None
    return made


def in_thread(work: Callable[[], object]) -> Thread:
    """Started, and given time to get through if nothing holds it."""
    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(0.3)
    return thread


def through(thread: Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


@pytest.mark.parametrize("end", ["passed", "release"])
def test_memory_waits_for_a_window_of_another_check(gpu_memory: ModuleType, end: str) -> None:
    window = gate(gpu_memory)
    for _ in range(2):  # a window that fails gives no turn back; release does
        with window.queued():
            pass
    other = in_thread(lambda: gpu_memory.CudaBuffer(8, 0, gpu_memory.TURNS))
    assert other.is_alive(), "it would have the driver wait for all streams"
    getattr(window, end)()
    assert through(other)


def test_a_window_waits_for_memory_of_another_check(gpu_memory: ModuleType) -> None:
    def one_window() -> None:
        window = gate(gpu_memory)
        with window.queued():
            pass
        window.passed()

    with gpu_memory.TURNS:
        other = in_thread(one_window)
        assert other.is_alive()
    assert through(other)


def test_a_thread_never_waits_for_its_own_turn(gpu_memory: ModuleType) -> None:
    def all_of_it() -> None:
        window = gate(gpu_memory)
        with window.queued():
            gpu_memory.CudaBuffer(8, 0, gpu_memory.TURNS)
        window.release()
        window.passed()

    assert through(in_thread(all_of_it))
    assert through(in_thread(all_of_it)), "the first thread kept its turn"
