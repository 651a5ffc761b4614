"""Turn what was found into one line for each thing that scoring on a GPU needs, with a remedy where it is missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from arena import catalog
from arena.doctor import Check, State
from arena.doctor.found import Found, NvmlGpu
from arena.errors import DataError, UsageError
from arena.schema import Hardware

EXTRA = "pip install -e '.[gpu]' in arena's checkout"
GIB = 1 << 30


class Gpu(NamedTuple):
    """One GPU as torch reports it, or else NVML, or else the kernel module."""

    name: str
    memory_bytes: int | None
    hardware: Hardware | None
    """None when no hardware file lists that name."""
    usable: bool
    """Whether torch sees it and can compute on it."""
    error: str
    """Why torch sees it and cannot use it."""
    warnings: tuple[str, ...]
    """What prevents or slows down scoring on it right now."""


def checks(found: Found) -> Iterator[Check]:
    """All checks. What a GPU of the catalogue needs and lacks is `missing`; for other GPUs it is a `note`."""
    if found.driver is None:
        yield Check("gpu", "note", "no NVIDIA driver is loaded: only hardware cpu can be scored")
        return
    listed = gpus(found)
    lack: State = "missing" if any(gpu.hardware for gpu in listed) else "note"
    yield Check("driver", "ok", f"{found.nvml.driver or found.driver}{f', CUDA {found.nvml.cuda}' if found.nvml.cuda else ''}")
    if not listed:
        yield Check("gpu", "note", "a driver is loaded and lists no GPU: only hardware cpu can be scored")
    for number, gpu in enumerate(listed):
        size = f", {gpu.memory_bytes / GIB:.0f} GiB" if gpu.memory_bytes else ""
        known = f"hardware {gpu.hardware.name}" if gpu.hardware else _unlisted(gpu.name)
        broken = f"torch cannot use it: {gpu.error}" if gpu.error else ""
        state: State = lack if broken else "note" if gpu.warnings or not gpu.hardware else "ok"
        yield Check(f"gpu {number}", state, "; ".join(filter(None, [f"{gpu.name}{size}, {known}", broken, *gpu.warnings])))
    for name, requirement in NEEDED.items():
        fault, detail = requirement(found)
        yield Check(name, lack if fault else "ok", fault or detail)
    yield _counters(found)


def gpus(found: Found) -> list[Gpu]:
    """The GPUs as CUDA counts them; where torch sees none, in the driver's order."""
    by_uuid = {gpu.uuid: gpu for gpu in found.nvml.gpus}
    rows: list[tuple[str, int | None, NvmlGpu | None, str]]
    if found.torch.gpus:
        rows = [(gpu.name, gpu.memory_bytes, by_uuid.get(gpu.uuid), gpu.error) for gpu in found.torch.gpus]
    elif found.nvml.gpus:
        rows = [(gpu.name, gpu.memory_bytes, gpu, "") for gpu in found.nvml.gpus]
    else:
        rows = [(name, None, None, "") for name in found.models]
    listed = []
    for name, memory_bytes, nvml_gpu, error in rows:
        warnings = []
        if nvml_gpu is not None and nvml_gpu.pids:
            pids = ", ".join(map(str, nvml_gpu.pids))
            used = f"in use by other processes (pid {pids})"
            warnings.append(f"{used}: a score needs it alone, so end them or choose another --gpu")
        if nvml_gpu is not None and nvml_gpu.persistence is False:
            warnings.append("persistence mode is off, so each process waits for the driver to start: nvidia-smi -pm 1")
        listed.append(Gpu(name, memory_bytes, _listed(name), bool(found.torch.gpus) and not error, error, tuple(warnings)))
    return listed


def _listed(name: str) -> Hardware | None:
    """The hardware of that name; None for a broken file, which the line `catalogue` reports."""
    try:
        return catalog.hardware_of(name)
    except (UsageError, DataError):
        return None


def _unlisted(name: str) -> str:
    return f"in no hardware file, so only hardware cpu can be scored: add one with `device_names: [{name}]` (see CONTRIBUTING.md)"


Finding = tuple[str, str]
"""(what is wrong and what to do, empty where all is well; what there is)."""


def _torch(found: Found) -> Finding:
    torch, driver = found.torch, found.nvml.cuda
    if "torch" not in found.packages:
        return "torch is not installed: pip install torch", ""
    if torch.error and not torch.cuda:
        return f"torch cannot be queried: {torch.error}", ""
    if not torch.cuda:
        return f"torch {found.packages['torch']} is built without CUDA: install the same version from an index of CUDA builds", ""
    if not torch.gpus:
        fault = f"torch is built for CUDA {torch.cuda} and sees no GPU{f': {torch.error}' if torch.error else ''}"
        if driver and _release(driver) < _release(torch.cuda):
            fault += f"; the driver runs CUDA {driver} at most: update it, or install torch for CUDA {driver}"
        return fault, ""
    if torch.error:
        return f"torch could not query every GPU: {torch.error}", ""
    return "", f"{found.packages['torch']} for CUDA {torch.cuda}, sees {len(torch.gpus)} GPU{'s' * (len(torch.gpus) > 1)}"


def _nvcc(found: Found) -> Finding:
    built = found.torch.cuda
    if found.nvcc is None:
        wanted = f"the CUDA toolkit {built or 'that torch was built for'}"
        if found.nvcc_elsewhere:
            return f"{found.nvcc_elsewhere} is where no sandbox sees it: install {wanted} at /usr/local/cuda", ""
        return f"no nvcc, which load_inline needs: install {wanted} at /usr/local/cuda", ""
    if not found.nvcc_cuda:
        return f"{found.nvcc} does not report its version: install the CUDA toolkit again", ""
    if built and _release(found.nvcc_cuda)[0] != _release(built)[0]:
        # torch.utils.cpp_extension refuses another major version, and only warns about another minor one.
        fault = f"{found.nvcc} is of CUDA {found.nvcc_cuda} and torch of CUDA {built}, which load_inline refuses"
        return f"{fault}: install the CUDA toolkit {built} at /usr/local/cuda", ""
    return "", f"{found.nvcc}, CUDA {found.nvcc_cuda}"


def _cxx(found: Found) -> Finding:
    if found.cxx is None:
        return "no c++, which load_inline needs: install g++", ""
    if found.headers is None:
        return "no Python.h, which load_inline and Triton need: install python3-dev for this Python", ""
    return "", f"{found.cxx}, Python.h in {found.headers}"


def _nvml(found: Found) -> Finding:
    fault, version = _package(found, "nvidia-ml-py", f"without it the judge cannot see other users of the GPU: {EXTRA}")
    return (f"{version} cannot query the driver: {found.nvml.error}", "") if found.nvml.error and not fault else (fault, version)


NEEDED: dict[str, Callable[[Found], Finding]] = {
    "torch for CUDA": _torch,
    "triton": lambda found: _package(found, "triton", "torch's builds for CUDA bring it (pip install triton)"),
    "nvcc": _nvcc,
    "c++": _cxx,
    "ninja": lambda found: ("", found.ninja) if found.ninja else _package(found, "ninja", f"load_inline needs it: {EXTRA}"),
    "cuda-bindings": lambda found: _package(found, "cuda-bindings", f"the judge's GPU buffers need it: {EXTRA}"),
    "nvidia-ml-py": _nvml,
}


def _package(found: Found, name: str, remedy: str) -> Finding:
    version = found.packages.get(name)
    return ("", version) if version else (f"not installed; {remedy}", "")


def _counters(found: Found) -> Check:
    """Whether the hardware's counters can be read. A score is valid without them."""
    faults = []
    if found.ncu is None:
        faults.append("no ncu (Nsight Compute) is below /usr, where a sandbox sees it: it comes with the CUDA toolkit")
    if found.counters_closed:
        faults.append("the driver lets only administrators read them: load its module with NVreg_RestrictProfilingToAdminUsers=0")
    if faults:
        return Check("counters", "note", f"{'; '.join(faults)}. Scores are valid without them; their evidence is `unproven`")
    return Check("counters", "ok", f"can be read, by {found.ncu}")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
