"""Print what NVML and torch report on the GPUs, one JSON line each on standard output, as soon as it is known.

`python -P gpu_probe.py` is a separate program that needs nothing of arena: a broken driver or CUDA may hang or kill it.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def nvml() -> dict[str, Any]:
    """The driver, and each GPU with the processes on it; `error` where the library or its driver is absent."""
    try:
        import pynvml
    except ImportError as error:
        return {"error": str(error)}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"error": str(error)}

    def query(name: str, *arguments: object) -> Any:  # noqa: ANN401  the bindings are untyped
        try:
            return getattr(pynvml, name)(*arguments)
        except (pynvml.NVMLError, AttributeError):
            return None

    gpus = []
    for index in range(query("nvmlDeviceGetCount") or 0):
        if (handle := query("nvmlDeviceGetHandleByIndex", index)) is None:
            continue
        gpu: dict[str, Any] = {"name": text(query("nvmlDeviceGetName", handle))}
        gpu["uuid"] = text(query("nvmlDeviceGetUUID", handle))
        gpu["memory_bytes"] = getattr(query("nvmlDeviceGetMemoryInfo", handle), "total", None)
        persistence = query("nvmlDeviceGetPersistenceMode", handle)
        gpu["persistence"] = None if persistence is None else bool(persistence)
        gpu["pids"] = sorted(process.pid for process in query("nvmlDeviceGetComputeRunningProcesses", handle) or ())
        gpus.append(gpu)
    cuda = query("nvmlSystemGetCudaDriverVersion_v2") or 0
    driver = text(query("nvmlSystemGetDriverVersion"))
    return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "", "gpus": gpus}


def cuda() -> dict[str, Any]:
    """What torch was built for, and each GPU as CUDA counts, tested with one small sum."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of torch that cannot be loaded
        return {"error": str(error)}
    built = {"cuda": torch.version.cuda or ""}
    if torch.version.cuda is None:
        return built
    gpus = []
    try:
        torch.cuda.init()
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            gpu = {"name": found.name, "uuid": f"GPU-{found.uuid}", "memory_bytes": found.total_memory}
            gpus.append(gpu | {"error": tried(torch, index)})
    except (RuntimeError, AssertionError) as error:
        return built | {"gpus": gpus, "error": first_line(error)}
    return built | {"gpus": gpus}


def tried(torch: Any, index: int) -> str:  # noqa: ANN401  a module
    """Why GPU `index` fails to add 1 and 1, for example a torch without kernels for it; empty when it succeeds."""
    try:
        found = float(torch.ones(2, device=f"cuda:{index}").sum())
    except RuntimeError as error:
        return first_line(error)
    return "" if found == 2 else f"it adds 1 and 1 to {found}"


def first_line(error: Exception) -> str:
    """The first line of the error's text, or its name."""
    return str(error).partition("\n")[0] or type(error).__name__


def text(value: str | bytes | None) -> str:
    """A string, also from NVML's older bindings, which return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


if __name__ == "__main__":
    for name, query in (("nvml", nvml), ("torch", cuda)):
        json.dump({name: query()}, sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()
