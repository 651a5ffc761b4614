"""A GPU as the driver's management library (NVML) reports it: identity, state, and the processes on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.errors import JudgeError

UNKNOWN = "unknown"
NOT_THROTTLED = "none"
THERMAL_REASONS = {0x08: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Clock event reasons that slow the chip down (nvml.h: nvmlClocksEventReason...), so that a time is not its own."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML sees it; `handle` is valid inside `opened`."""

    library: Any
    handle: Any

    def ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401  the bindings are untyped
        """The result of `nvmlDeviceGet<name>`, or None where this driver does not report it."""
        try:
            return getattr(self.library, f"nvmlDeviceGet{name}")(self.handle, *arguments)
        except (self.library.NVMLError, AttributeError):
            return None

    def conditions(self) -> dict[str, str]:
        """Clocks, power, temperature and throttle reasons right now; `unknown` for what the driver does not report."""
        reasons = self.ask("CurrentClocksEventReasons")
        if reasons is None:
            reasons = self.ask("CurrentClocksThrottleReasons")
        readings: dict[str, tuple[Any, Callable[[Any], str]]] = {
            "sm_clock_mhz": (self.ask("ClockInfo", self.library.NVML_CLOCK_SM), str),
            "memory_clock_mhz": (self.ask("ClockInfo", self.library.NVML_CLOCK_MEM), str),
            "power_w": (self.ask("PowerUsage"), lambda mw: f"{mw / 1000:.0f}"),
            "temperature_c": (self.ask("Temperature", self.library.NVML_TEMPERATURE_GPU), str),
            "throttle": (reasons, throttling),
        }
        return {name: show(value) if value is not None else UNKNOWN for name, (value, show) in readings.items()}

    def clocks_are_low(self) -> bool:
        """Whether its multiprocessors or its memory run at less than half of their highest clock, or the driver reports none."""
        clocks = (self.library.NVML_CLOCK_SM, self.library.NVML_CLOCK_MEM)
        pairs = [(self.ask("ClockInfo", clock), self.ask("MaxClockInfo", clock)) for clock in clocks]
        return any(now is None or most is None or now < most / 2 for now, most in pairs)

    def clocks_are_free(self) -> bool:
        """Whether an administrator lets any user set its clocks (`nvidia-smi -acp UNRESTRICTED`), and so a submission."""
        restricted = self.ask("APIRestriction", self.library.NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS)
        return restricted is not None and not restricted

    def driver(self) -> str:
        """The driver's version."""
        version = self.library.nvmlSystemGetDriverVersion()
        return version if isinstance(version, str) else str(version.decode())

    def other_processes(self, least_bytes: int = 0) -> list[int]:
        """Pids of other processes that compute on this GPU, and hold so much of its memory, or how much is not reported."""
        processes = self.ask("ComputeRunningProcesses") or []
        holding = [each for each in processes if (each.usedGpuMemory is None) or each.usedGpuMemory >= least_bytes]
        return sorted(process.pid for process in holding if process.pid != os.getpid())

    def strangers(self, least_bytes: int = 0) -> list[int]:
        """Those of them that are in no sandbox and in no container: every process of a submission is in a sandbox."""
        return [pid for pid in self.other_processes(least_bytes) if _in_our_namespace(pid)]

    def minor(self) -> int | None:
        """The number N of its node /dev/nvidia<N>, which may differ from CUDA's number."""
        found = self.ask("MinorNumber")
        return None if found is None else int(found)


def _in_our_namespace(pid: int) -> bool:
    """Whether this process runs, and has no other pid in a namespace of its own. Any user may read that."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) == 2 for line in status.splitlines())


def throttling(reasons: int) -> str:
    """The names of the reasons that spoil a time; `none` when none of them applies."""
    return ", ".join(word for bit, word in THERMAL_REASONS.items() if reasons & bit) or NOT_THROTTLED


@contextmanager
def opened(uuid: str) -> Iterator[Gpu | None]:
    """The GPU of that UUID; None where the library or its driver is absent, which is recorded and is no error."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield Gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
    except pynvml.NVMLError_NotFound:
        raise JudgeError(f"the driver's management library knows no GPU {uuid}") from None
    finally:
        pynvml.nvmlShutdown()
