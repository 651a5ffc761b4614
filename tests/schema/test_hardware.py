"""Ceilings that people argue about: a mistyped digit must break one of the relations that hold on all these chips."""

from pathlib import Path

import pytest

from arena import catalog, paths

HARDWARE = catalog.hardwares()
GPUS = [name for name, entry in HARDWARE.items() if entry.profile == "gpu"]


def rates(name: str) -> dict[str, float]:
    return {rate: figure.value for rate, figure in HARDWARE[name].tflops.items()}


def test_expected_hardware_files_exist():
    expected = {"h200", "h100-sxm", "h100-pcie", "h100-nvl", "gh200-96gb", "gh200-144gb", "h20", "b200", "b300", "cpu"}
    expected |= {"a100-80gb-sxm", "l40s", "l4", "rtx-pro-6000", "rtx-5090", "rtx-4090"}
    assert expected == set(HARDWARE)
    assert set(HARDWARE) == {path.stem for path in Path(paths.hardware()).glob("*")}


def test_gpus_have_the_expected_rates():
    assert all({"fp64", "fp32", "tf32", "fp16", "bf16", "int8"} <= set(rates(name)) for name in GPUS)
    assert {name for name in GPUS if "fp8" not in rates(name)} == {"a100-80gb-sxm"}
    assert {name for name in GPUS if "fp4" in rates(name)} == {"b200", "b300", "rtx-pro-6000", "rtx-5090"}


RELATIONS = [("fp16", 1, "bf16"), ("bf16", 2, "tf32"), ("int8", 2, "fp16"), ("fp8", 2, "fp16"), ("fp4", 2, "fp8")]
OTHERWISE = {
    # GeForce cards sum in FP32 at half the rate of FP16, and bf16 products have no other sum.
    ("rtx-4090", "fp16"): 2,
    ("rtx-5090", "fp16"): 2,
    # The B300 gives up integers (and fp64) for fp4.
    ("b300", "int8"): 153.5 / 2250,
    ("b300", "fp4"): 14 / 4.5,
}
"""(hardware, rate): how many times the other rate of its relation, where that is not the common one."""


@pytest.mark.parametrize(
    ("name", "rate", "times", "of"), [(name, *relation) for name in GPUS for relation in RELATIONS if relation[0] in rates(name)]
)
def test_halving_the_width_doubles_the_rate(name, rate, times, of):
    assert rates(name)[rate] == pytest.approx(OTHERWISE.get((name, rate), times) * rates(name)[of], rel=0.002)


@pytest.mark.parametrize("name", GPUS)
def test_vector_rates_stand_in_proportion(name):
    dense = rates(name)
    # One fp64 unit per 64 fp32 units on graphics chips and the B300 (printed with two digits); on other data-centre chips as many
    # (tensor fp64 included), or half. The H20's fp64 is cut to 1.
    parts = (1 / 44,) if name == "h20" else (1, 1 / 2, 1 / 64)
    assert any(dense["fp64"] == pytest.approx(dense["fp32"] * part, rel=0.03) for part in parts)
    least = {"rtx-4090": 1, "rtx-5090": 1, "h20": 1.6}.get(name, 1.9)
    assert least <= dense["tf32"] / dense["fp32"] < 16


@pytest.mark.parametrize("name", GPUS)
def test_ridge_point_is_that_of_a_gpu(name):
    entry = HARDWARE[name]
    assert entry.bandwidth_gb_s is not None
    # bf16 operations per byte at which compute and memory take equally long: 146 on an A100, 424 on an L40S.
    # The H20 has an H200's memory and a seventh of its arithmetic, the RTX 5090 half the arithmetic of the RTX PRO 6000's chip.
    least = {"h20": 36, "rtx-5090": 115}.get(name, 140)
    assert least < rates(name)["bf16"] * 1e3 / entry.bandwidth_gb_s.value < 450


def test_parts_of_one_chip_agree():
    assert rates("h200")["bf16"] == pytest.approx(rates("h100-sxm")["bf16"], rel=0.001)
    assert rates("h200")["fp64"] == pytest.approx(rates("h100-sxm")["fp64"], rel=0.01)
    assert rates("gh200-96gb") == rates("gh200-144gb") == rates("h200")
    same = ("fp32", "tf32", "fp16", "bf16", "fp8")
    assert [rates("b300")[rate] for rate in same] == [rates("b200")[rate] for rate in same]


def test_peaks_follow_from_the_chip():
    # multiprocessors x operations per clock x GHz: two figures on each side were read from different documents.
    assert rates("a100-80gb-sxm")["bf16"] == pytest.approx(108 * 2048 * 1.410e-3, rel=0.01)
    assert rates("h100-sxm")["bf16"] == pytest.approx(132 * 4096 * 1.830e-3, rel=0.01)
    assert rates("h100-pcie")["bf16"] == pytest.approx(114 * 4096 * 1.620e-3, rel=0.01)
    assert rates("l40s")["bf16"] == pytest.approx(142 * 1024 * 2.520e-3, rel=0.01)
    assert rates("rtx-pro-6000")["bf16"] == pytest.approx(188 * 1024 * 2.617e-3, rel=0.01)
    assert rates("b200")["bf16"] == pytest.approx(148 * 8192 * 1.860e-3, rel=0.01)
    # At the driver's highest clock, not the printed one, which these cards exceed.
    assert rates("rtx-5090")["bf16"] == pytest.approx(170 * 512 * 3.135e-3, rel=0.01)
    assert rates("rtx-4090")["bf16"] == pytest.approx(128 * 512 * 3.105e-3, rel=0.01)
    assert rates("l4")["bf16"] == pytest.approx(58 * 1024 * 2.040e-3, rel=0.01)
    assert rates("h100-nvl")["fp32"] == pytest.approx(132 * 256 * 1.785e-3, rel=0.01)


# Bus in bits and data rate in Gbit/s of each pin: twice the memory clock that the driver reports, or GDDR's printed rate.
BUSES = {
    "h200": (6016, 2 * 3.201),
    "h100-sxm": (5120, 2 * 2.619),
    "h100-pcie": (5120, 2 * 1.593),
    "b200": (7680, 2 * 3.996),
    "rtx-pro-6000": (512, 28),
    "a100-80gb-sxm": (5120, 2 * 1.593),
    "l40s": (384, 18),
    "h100-nvl": (6016, 2 * 2.619),
    "gh200-96gb": (6144, 2 * 2.619),
    "gh200-144gb": (6144, 2 * 3.201),
    "h20": (6144, 2 * 2.619),
    "b300": (7680, 2 * 3.996),
    "rtx-5090": (512, 28),
    "rtx-4090": (384, 21),
    "l4": (192, 12.5),
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
    expected |= {"gh200-96gb": 60, "gh200-144gb": 60, "h20": 60, "b300": 126.5}
    expected |= {"rtx-5090": 96, "rtx-4090": 72, "l40s": 96, "l4": 48}
    assert mib == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize("name", GPUS)
def test_sources_are_used_and_have_addresses(name):
    entry = HARDWARE[name]
    given = (entry.memory_gb, entry.bandwidth_gb_s, entry.l2_mb, *entry.tflops.values())
    assert {figure.source for figure in given if figure is not None} == set(entry.sources)
    vendor = any("https://www.nvidia.com/" in text or "https://resources.nvidia.com/" in text for text in entry.sources.values())
    assert vendor or (name == "h20" and "No datasheet of the vendor is public" in entry.sources["press"])


# What CUDA offers, in GiB, of the size in the card's name: read from other documents than the files.
SIZES = {"h100-nvl": 94, "gh200-96gb": 96, "gh200-144gb": 144, "h20": 96, "h200": 141, "b200": 180, "b300": 270}
SIZES |= {"a100-80gb-sxm": 80, "h100-sxm": 80, "h100-pcie": 80, "rtx-pro-6000": 96, "rtx-5090": 32, "rtx-4090": 24}
SIZES |= {"l4": 24, "l40s": 48}


@pytest.mark.parametrize("name", GPUS)
def test_memory_is_a_little_less_than_the_name_says(name):
    memory = HARDWARE[name].memory_gb
    # ECC in GDDR6 takes a sixteenth (L4, L40S).
    assert memory is not None and 0.91 < memory.value * 1e9 / 2**30 / SIZES[name] < 1


def test_only_cards_that_were_scored_on_count_as_measured():
    assert {name for name in GPUS if not HARDWARE[name].unmeasured} == {"h200", "h100-sxm"}


def test_no_device_is_listed_twice():
    names = [name for entry in HARDWARE.values() for name in entry.device_names]
    assert len(names) == len(set(names))


def test_cpu_has_no_datasheet_peaks():
    cpu = HARDWARE["cpu"]
    assert (cpu.bandwidth_gb_s, dict(cpu.tflops), cpu.device_names) == (None, {}, ())
