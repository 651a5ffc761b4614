"""`arena calibrate`: measure what this machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import rich_click as click

from arena.cli import options
from arena.cli.console import Display, answering, data, safe, tell
from arena.cli.render import show_attainable
from arena.errors import UsageError
from arena.plan import hardware_on
from arena.schema import Attainable, Hardware
from arena.system import load

if TYPE_CHECKING:
    from arena.judge.device.calibrate_cpu import Calibration


@click.command()
@options.hardware
@options.gpu
@options.as_json
def calibrate(hardware_name: str | None, gpu: int, as_json: bool) -> None:
    """Measure the speed that this machine attains, and keep the best measured so far. Refuses while others use the machine.

    On hardware `cpu` the measured speed is the ceiling of scores. On a GPU the datasheet is the ceiling; the measured speed is
    shown beside it.
    """
    hardware = hardware_on(hardware_name, gpu)
    options.say_hardware(hardware_name, hardware, gpu)
    if hardware.profile == "gpu":
        _calibrate_gpu(hardware, gpu, as_json)
    else:
        _calibrate_cpu(as_json)


def _refuse_when_busy() -> None:
    if (seen := load.look()).busy:
        raise UsageError(f"{seen.words()}. What is measured now would be too slow: end them or wait, then calibrate again")


def _calibrate_cpu(as_json: bool) -> None:
    from arena.judge.device import calibrate_cpu

    _refuse_when_busy()
    before = calibrate_cpu.known()
    with Display() as display:
        display.judging("measuring one core")
        now = calibrate_cpu.measure()
    kept = calibrate_cpu.keep(now)
    if as_json:
        data(kept)
        return
    with answering():
        tell(f"{safe(kept.device)}, one core:")
        show_kept(*(_cpu_speeds(found) if found else {} for found in (before, now, kept)))


def _cpu_speeds(found: Calibration) -> dict[str, str]:
    return {"memory": f"{found.bandwidth_gb_s:.1f} GB/s"} | {rate: f"{value:.3f} TFLOP/s" for rate, value in found.tflops.items()}


def show_kept(before: Mapping[str, str], now: Mapping[str, str], kept: Mapping[str, str]) -> None:
    """Print each speed as it was kept before, as it was measured now, and as it is kept from now on: the best of both."""
    for name, value in now.items():
        earlier = f"{before[name]} before, " if name in before else ""
        tell(f"  {name:20} {earlier}{value} now, {kept[name]} kept")


def _calibrate_gpu(hardware: Hardware, gpu: int, as_json: bool) -> None:
    from arena.judge.device import calibrate_gpu, detect

    with detect.open_device(hardware, gpu) as device:
        _refuse_when_busy()
        with Display() as display:
            display.judging(f"measuring GPU {gpu}")
            now = calibrate_gpu.measure(gpu)
            kept = calibrate_gpu.keep(gpu, now)
    if as_json:
        data(kept)
        return
    before = device.record.attainable
    with answering():
        tell(f"GPU {gpu}, {safe(device.record.name)}, driver {safe(kept.driver)}, torch {safe(kept.torch)}")
        show_attainable(kept, hardware)
        show_kept(*(_gpu_speeds(found) if found else {} for found in (before, now, kept)))


def _gpu_speeds(found: Attainable) -> dict[str, str]:
    rates = {f"{rate} product": f"{value:.0f}" for rate, value in found.tflops.items()}
    return {"copy": f"{found.copy_gb_s:.0f} GB/s", "read": f"{found.read_gb_s:.0f} GB/s", **rates}
