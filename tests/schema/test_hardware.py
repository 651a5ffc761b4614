"""Ceilings that people argue about: a mistyped digit must break one of the relations that hold on all these chips."""

from pathlib import Path

import pytest

from arena import catalog, paths

HARDWARE = catalog.hardwares()
GPUS = [name for name, entry in HARDWARE.items() if entry.profile == "gpu"]


def rates(name: str) -> dict[str, float]:
    return {rate: figure.value for rate, figure in HARDWARE[name].tflops.items()}


def test_expected_hardware_files_exist():
    assert {"cpu", "h200", "h100-sxm", "h100-pcie", "b200", "rtx-pro-6000", "a100-80gb-sxm", "l40s"} <= set(HARDWARE)
    assert set(HARDWARE) == {path.stem for path in Path(paths.hardware()).glob("*")}


def test_gpus_have_the_expected_rates():
    assert all({"fp64", "fp32", "tf32", "fp16", "bf16", "int8"} <= set(rates(name)) for name in GPUS)
    assert {name for name in GPUS if "fp8" not in rates(name)} == {"a100-80gb-sxm"}
    assert {name for name in GPUS if "fp4" in rates(name)} == {"b200", "rtx-pro-6000"}


RELATIONS = [("bf16", 1, "fp16"), ("bf16", 2, "tf32"), ("int8", 2, "bf16"), ("fp8", 1, "int8"), ("fp4", 2, "fp8")]


@pytest.mark.parametrize(
    ("name", "rate", "times", "of"), [(name, *relation) for name in GPUS for relation in RELATIONS if relation[0] in rates(name)]
)
def test_halving_the_width_doubles_the_rate(name, rate, times, of):
    assert rates(name)[rate] == pytest.approx(times * rates(name)[of], rel=0.002)


@pytest.mark.parametrize("name", GPUS)
def test_vector_rates_stand_in_proportion(name):
    dense = rates(name)
    # One fp64 unit per 64 fp32 units on graphics chips; on data-centre chips as many (tensor fp64 included), or half.
    assert any(dense["fp64"] == pytest.approx(dense["fp32"] * part, rel=0.02) for part in (1, 1 / 2, 1 / 64))
    assert 1.9 < dense["tf32"] / dense["fp32"] < 16


@pytest.mark.parametrize("name", GPUS)
def test_ridge_point_is_that_of_a_gpu(name):
    entry = HARDWARE[name]
    assert entry.bandwidth_gb_s is not None
    # bf16 operations per byte at which compute and memory take equally long: 146 on an A100, 424 on an L40S.
    assert 140 < rates(name)["bf16"] * 1e3 / entry.bandwidth_gb_s.value < 450


def test_parts_of_one_chip_agree():
    assert rates("h200")["bf16"] == pytest.approx(rates("h100-sxm")["bf16"], rel=0.001)
    assert rates("h200")["fp64"] == pytest.approx(rates("h100-sxm")["fp64"], rel=0.01)


def test_peaks_follow_from_the_chip():
    # multiprocessors x operations per clock x GHz: two figures on each side were read from different documents.
    assert rates("a100-80gb-sxm")["bf16"] == pytest.approx(108 * 2048 * 1.410e-3, rel=0.01)
    assert rates("h100-sxm")["bf16"] == pytest.approx(132 * 4096 * 1.830e-3, rel=0.01)
    assert rates("h100-pcie")["bf16"] == pytest.approx(114 * 4096 * 1.620e-3, rel=0.01)
    assert rates("l40s")["bf16"] == pytest.approx(142 * 1024 * 2.520e-3, rel=0.01)
    assert rates("rtx-pro-6000")["bf16"] == pytest.approx(188 * 1024 * 2.617e-3, rel=0.01)
    assert rates("b200")["bf16"] == pytest.approx(148 * 8192 * 1.860e-3, rel=0.01)


# Bus in bits and data rate in Gbit/s of each pin: twice the memory clock that the driver reports, or GDDR's printed rate.
BUSES = {
    "h200": (6016, 2 * 3.201),
    "h100-sxm": (5120, 2 * 2.619),
    "h100-pcie": (5120, 2 * 1.593),
    "b200": (7680, 2 * 3.996),
    "rtx-pro-6000": (512, 28),
    "a100-80gb-sxm": (5120, 2 * 1.593),
    "l40s": (384, 18),
}


@pytest.mark.parametrize("name", GPUS)
def test_bandwidth_follows_from_the_bus(name):
    bits, gbit_s = BUSES[name]
    # The H100 PCIe's datasheet rounds 2039 down to 2 TB/s.
    bandwidth = HARDWARE[name].bandwidth_gb_s
    assert bandwidth is not None and bandwidth.value == pytest.approx(bits / 8 * gbit_s, rel=0.02)


def test_caches_in_the_units_of_the_driver():
    mib = {name: entry.l2_mb.value * 1e6 / 2**20 for name, entry in HARDWARE.items() if entry.l2_mb}
    expected = {"a100-80gb-sxm": 40, "h100-sxm": 50, "h100-pcie": 50, "h200": 60, "b200": 126.5, "rtx-pro-6000": 128}
    assert mib == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize("name", GPUS)
def test_sources_are_used_and_have_addresses(name):
    entry = HARDWARE[name]
    figures = [figure for figure in (entry.bandwidth_gb_s, entry.l2_mb, *entry.tflops.values()) if figure is not None]
    assert {figure.source for figure in figures} == set(entry.sources)
    assert any("https://www.nvidia.com/" in text or "https://resources.nvidia.com/" in text for text in entry.sources.values())


def test_no_device_is_listed_twice():
    names = [name for entry in HARDWARE.values() for name in entry.device_names]
    assert len(names) == len(set(names))


def test_cpu_has_no_datasheet_peaks():
    cpu = HARDWARE["cpu"]
    assert (cpu.bandwidth_gb_s, dict(cpu.tflops), cpu.device_names) == (None, {}, ())
