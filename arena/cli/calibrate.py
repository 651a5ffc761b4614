"""`arena calibrate`: measure what this machine can do."""

from __future__ import annotations

import rich_click as click

from arena.cli import options
from arena.cli.console import Display, data, safe, tell
from arena.cli.render import show_attainable
from arena.plan import hardware_on
from arena.schema import Hardware


@click.command()
@options.hardware
@options.gpu
@options.as_json
def calibrate(hardware_name: str | None, gpu: int, as_json: bool) -> None:
    """Measure the speed that this machine attains. Keep it idle meanwhile.

    On hardware `cpu` the measured speed is the ceiling of scores. On a GPU the datasheet is the ceiling; the measured speed is
    shown beside it.
    """
    hardware = hardware_on(hardware_name, gpu)
    options.say_hardware(hardware_name, hardware, gpu)
    if hardware.profile == "gpu":
        _calibrate_gpu(hardware, gpu, as_json)
    else:
        _calibrate_cpu(as_json)


def _calibrate_cpu(as_json: bool) -> None:
    from arena.judge.device import calibrate_cpu

    with Display() as display:
        display.judging("measuring one core")
        found = calibrate_cpu.cpu(fresh=True)
    if as_json:
        data(found)
        return
    rates = ", ".join(f"{rate} {value:.3f} TFLOP/s" for rate, value in found.tflops.items())
    tell(f"{safe(found.device)}, one core: {found.bandwidth_gb_s:.1f} GB/s, {rates}")


def _calibrate_gpu(hardware: Hardware, gpu: int, as_json: bool) -> None:
    from arena.judge.device import calibrate_gpu, detect

    with Display() as display:
        display.judging(f"measuring GPU {gpu}")
        with detect.open_device(hardware, gpu) as device:
            found = calibrate_gpu.calibrate(gpu)
    if as_json:
        data(found)
        return
    tell(f"GPU {gpu}, {safe(device.record.name)}, driver {safe(found.driver)}, torch {safe(found.torch)}")
    show_attainable(found, hardware)
