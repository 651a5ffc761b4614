"""Find what this machine has for scoring on a GPU, without judging it. A separate process queries the driver and torch."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arena import paths
from arena.sandboxes.host import NVIDIA_NODE, counters_closed, program
from arena.schema import Record
from arena.system import process

PROBE = paths.PACKAGE / "doctor" / "programs" / "gpu_probe.py"
PROBE_LIMIT_S = 60.0
"""Importing torch and opening several GPUs without persistence mode takes about ten seconds; a hanging driver never returns."""
NVCC_LIMIT_S = 20.0
PACKAGES = ("torch", "triton", "ninja", "cuda-bindings", "nvidia-ml-py")
DRIVER = Path("/proc/driver/nvidia")


class NvmlGpu(Record):
    """One GPU as the driver's management library sees it."""

    name: str
    uuid: str
    memory_bytes: int | None = None
    persistence: bool | None = None
    """None where the driver does not report it."""
    pids: tuple[int, ...] = ()
    """Processes that compute on it."""


class Nvml(Record):
    """What the management library reports."""

    error: str = ""
    driver: str = ""
    cuda: str = ""
    """The newest CUDA that this driver runs, such as `13.0`."""
    gpus: tuple[NvmlGpu, ...] = ()


class TorchGpu(Record):
    """One GPU as CUDA counts."""

    name: str
    uuid: str
    memory_bytes: int
    error: str = ""
    """Why it cannot be used."""


class Torch(Record):
    """What torch reports."""

    error: str = ""
    cuda: str = ""
    """What torch was built for, such as `13.0`; empty for a build without CUDA."""
    gpus: tuple[TorchGpu, ...] = ()


@dataclass(frozen=True)
class Found:
    """Everything found on this machine."""

    driver: str | None = None
    """The kernel module's version; `unknown` where it does not report one; None without a kernel module."""
    models: tuple[str, ...] = ()
    """The GPUs' names as the kernel module lists them."""
    nvml: Nvml = field(default_factory=Nvml)
    torch: Torch = field(default_factory=Torch)
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version of each of `PACKAGES` that is installed."""
    nvcc: str | None = None
    """Its path inside a sandbox."""
    nvcc_elsewhere: str | None = None
    """A path of it that no sandbox sees."""
    nvcc_cuda: str = ""
    """Its CUDA version, such as `13.0`."""
    cxx: str | None = None
    ninja: str | None = None
    headers: str | None = None
    """Folder of Python.h."""
    ncu: str | None = None
    counters_closed: bool = False
    """Whether the driver lets only administrators read the performance counters."""


def inspect_machine() -> Found:
    """Look everything up. With a driver, this imports torch in another process; without one, it takes no time."""
    found = driver()
    if found is None:
        return Found()
    nvml, torch = run_probe()
    nvcc = program("nvcc")
    headers = Path(sysconfig.get_path("include"))
    return Found(
        driver=found,
        models=_models(),
        nvml=nvml,
        torch=torch,
        packages={name: version for name in PACKAGES if (version := _version(name))},
        nvcc=nvcc,
        nvcc_elsewhere=None if nvcc else shutil.which("nvcc"),
        nvcc_cuda=_nvcc_cuda(nvcc) if nvcc else "",
        cxx=program("c++"),
        ninja=program("ninja"),
        headers=str(headers) if (headers / "Python.h").is_file() else None,
        ncu=program("ncu"),
        counters_closed=counters_closed(),
    )


def run_probe(program: Path = PROBE, limit_s: float = PROBE_LIMIT_S) -> tuple[Nvml, Torch]:
    """What NVML and torch report, from a process that a broken driver may kill. A part that it did not report is an `error`."""
    done = process.run([sys.executable, "-P", str(program)], limit_s=limit_s)
    reported: dict[str, object] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith(('{"nvml": ', '{"torch": ')) and line.endswith("}"):
            reported |= json.loads(line)
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing on stderr"])[-1]
    ended = f"took longer than {limit_s:.0f} s" if done.timed_out else f"ended with code {done.returncode}: {last}"
    absent = {"error": f"the GPU probe {ended}"}
    return Nvml.model_validate(reported.get("nvml", absent)), Torch.model_validate(reported.get("torch", absent))


def driver() -> str | None:
    """The kernel module's version; `unknown` where it does not report one; None without a kernel module."""
    version = DRIVER / "version"
    if version.is_file():
        match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", version.read_text())
        return match[0] if match else "unknown"
    return "unknown" if NVIDIA_NODE.exists() else None


def _models() -> tuple[str, ...]:
    return tuple(
        line.partition(":")[2].strip()
        for file in sorted(DRIVER.glob("gpus/*/information"))
        for line in file.read_text().splitlines()
        if line.startswith("Model")
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvcc_cuda(nvcc: str) -> str:
    done = process.run([nvcc, "--version"], limit_s=NVCC_LIMIT_S)
    match = re.search(r"release (\d+\.\d+)", done.stdout.decode(errors="replace"))
    return match[1] if match else ""
