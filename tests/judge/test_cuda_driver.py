"""Memory of the CUDA driver that cannot be had whole is given back: a stand-in for the driver notes what is asked of it."""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch")

from arena.judge import device, worker  # noqa: E402

TAKEN_AND_GIVEN_BACK = {
    "cuMemCreate": [],
    "cuMemExportToShareableHandle": ["cuMemRelease"],
    "cuMemAddressReserve": ["cuMemRelease"],
    "cuMemMap": ["cuMemAddressFree", "cuMemRelease"],
    "cuMemSetAccess": ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"],
    "as_tensor": ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"],
}
"""What fails, and what is given back then."""
BYTES = MagicMock()


class Driver:
    """Of this call, `fails`, it says that memory is short."""

    CUresult = SimpleNamespace(
        CUDA_SUCCESS=SimpleNamespace(name="SUCCESS"), CUDA_ERROR_OUT_OF_MEMORY=SimpleNamespace(name="OUT_OF_MEMORY")
    )

    def __init__(self, fails: str) -> None:
        self.fails, self.asked, self.fd = fails, list[str](), os.open(os.devnull, os.O_RDONLY)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuMem"):
            return MagicMock()

        def function(*arguments: object) -> tuple[object, int]:
            self.asked.append(name)
            status = self.CUresult.CUDA_ERROR_OUT_OF_MEMORY if name == self.fails else self.CUresult.CUDA_SUCCESS
            return status, self.fd if name == "cuMemExportToShareableHandle" else 1 << 21

        function.__name__ = name
        return function


def module_of(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """arena/judge/worker/cuda_driver.py over that driver, and over a torch without a GPU."""
    bindings = ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    for name, module in {"cuda": ModuleType("cuda"), "cuda.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("cuda_driver_alone", f"{worker.__path__[0]}/cuda_driver.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def as_tensor(*arguments: object, device: str) -> object:
        if driver.fails == "as_tensor":
            raise RuntimeError("no context")
        return BYTES

    nothing: Callable[..., None] = lambda *a, **k: None  # noqa: E731
    module.torch = SimpleNamespace(  # type: ignore[attr-defined]
        cuda=SimpleNamespace(init=nothing, synchronize=nothing),
        empty=nothing,
        as_tensor=as_tensor,
        OutOfMemoryError=torch.OutOfMemoryError,
    )
    return module


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("fails", TAKEN_AND_GIVEN_BACK)
def test_what_was_taken_is_given_back(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(fails)
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
        module_of(driver, monkeypatch).allocate(4096, 0)
    returned = [name for name in driver.asked if name in ("cuMemUnmap", "cuMemAddressFree", "cuMemRelease")]
    assert returned == TAKEN_AND_GIVEN_BACK[fails]
    exported = "cuMemExportToShareableHandle" in driver.asked and fails != "cuMemExportToShareableHandle"
    assert is_open(driver.fd) != exported
    if is_open(driver.fd):
        os.close(driver.fd)


def test_what_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("nothing")
    memory, fd = module_of(driver, monkeypatch).allocate(4096, 0)
    assert memory.tensor is BYTES and fd == driver.fd and is_open(fd)
    assert not {"cuMemUnmap", "cuMemAddressFree", "cuMemRelease"} & set(driver.asked)
    memory.close()
    assert driver.asked[-3:] == ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]
    os.close(fd)


@pytest.mark.parametrize("fails", ["zeros", "synchronize", "nothing"])
def test_a_gate_that_fails_keeps_nothing(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("nothing")
    monkeypatch.setattr(worker, "cuda_driver", module_of(driver, monkeypatch), raising=False)
    spec = importlib.util.spec_from_file_location("gpu_memory_alone", f"{device.__path__[0]}/gpu_memory.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    short = MagicMock(side_effect=[torch.OutOfMemoryError("short"), None])
    of_torch = {"zeros": MagicMock(), "synchronize": MagicMock(), fails: short}
    cuda = SimpleNamespace(synchronize=of_torch["synchronize"])
    module.torch = SimpleNamespace(zeros=of_torch["zeros"], int32=torch.int32, cuda=cuda)  # type: ignore[attr-defined]
    if fails == "nothing":
        gate = module.CudaGate(0, None, threading.RLock())
        assert gate.fd == driver.fd and is_open(driver.fd)
        gate.close()
    else:
        with pytest.raises(torch.OutOfMemoryError):
            module.CudaGate(0, None, threading.RLock())
    assert not is_open(driver.fd)
    assert driver.asked[-3:] == ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]
