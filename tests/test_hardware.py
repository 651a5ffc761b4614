"""Ceilings that people argue about: a mistyped digit must break one of the relations that hold on all these chips."""

from pathlib import Path

import pytest

from arena import catalog, paths

HARDWARE = catalog.hardwares()
GPUS = [name for name, entry in HARDWARE.items() if entry.profile == "gpu"]


def rates(name: str) -> dict[str, float]:
    return {rate: figure.value for rate, figure in HARDWARE[name].tflops.items()}


def test_the_expected_files_are_there():
    assert {"cpu", "h200", "h100-sxm", "h100-pcie", "b200", "rtx-pro-6000", "a100-80gb-sxm", "l40s"} <= set(HARDWARE)
    assert set(HARDWARE) == {path.stem for path in Path(paths.hardware()).glob("*")}


def test_which_rates_exist():
    assert all({"fp64", "fp32", "tf32", "fp16", "bf16", "int8"} <= set(rates(name)) for name in GPUS)
    assert {name for name in GPUS if "fp8" not in rates(name)} == {"a100-80gb-sxm"}
    assert {name for name in GPUS if "fp4" in rates(name)} == {"b200", "rtx-pro-6000"}


RELATIONS = [("bf16", 1, "fp16"), ("bf16", 2, "tf32"), ("int8", 2, "bf16"), ("fp8", 1, "int8"), ("fp4", 2, "fp8")]


@pytest.mark.parametrize(
    ("name", "rate", "times", "of"), [(name, *relation) for name in GPUS for relation in RELATIONS if relation[0] in rates(name)]
)
def test_each_halving_of_the_width_doubles_the_rate(name, rate, times, of):
    assert rates(name)[rate] == pytest.approx(times * rates(name)[of], rel=0.002)


@pytest.mark.parametrize("name", GPUS)
def test_vector_rates_stand_in_proportion(name):
    dense = rates(name)
    # One fp64 unit per 64 fp32 units on graphics chips; on data-centre chips as many (tensor fp64 included), or half.
    assert any(dense["fp64"] == pytest.approx(dense["fp32"] * part, rel=0.02) for part in (1, 1 / 2, 1 / 64))
    assert 1.9 < dense["tf32"] / dense["fp32"] < 16


@pytest.mark.parametrize("name", GPUS)
def test_bandwidth_and_ridge_are_those_of_a_gpu(name):
    entry = HARDWARE[name]
    assert entry.bandwidth_gb_s is not None
    assert 500 < entry.bandwidth_gb_s.value < 10_000
    # bf16 operations per byte at which compute and memory take equally long: 146 on an A100, 424 on an L40S.
    assert 140 < rates(name)["bf16"] * 1e3 / entry.bandwidth_gb_s.value < 450
    assert entry.l2_mb is None or 30 < entry.l2_mb.value < 150


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
    assert HARDWARE["h200"].bandwidth_gb_s.value == pytest.approx(6016 / 8 * 2 * 3.201, rel=0.01)
    assert HARDWARE["b200"].bandwidth_gb_s.value == pytest.approx(7680 / 8 * 2 * 3.996, rel=0.01)
    assert HARDWARE["rtx-pro-6000"].bandwidth_gb_s.value == pytest.approx(512 / 8 * 28, rel=0.01)
    assert HARDWARE["l40s"].bandwidth_gb_s.value == pytest.approx(384 / 8 * 18, rel=0.01)


@pytest.mark.parametrize("name", GPUS)
def test_every_source_is_used_and_says_where(name):
    entry = HARDWARE[name]
    figures = [figure for figure in (entry.bandwidth_gb_s, entry.l2_mb, *entry.tflops.values()) if figure is not None]
    assert {figure.source for figure in figures} == set(entry.sources)
    assert any("https://www.nvidia.com/" in text or "https://resources.nvidia.com/" in text for text in entry.sources.values())


def test_no_device_is_listed_twice():
    names = [name for entry in HARDWARE.values() for name in entry.device_names]
    assert len(names) == len(set(names))


def test_the_cpu_is_measured_on_the_spot():
    cpu = HARDWARE["cpu"]
    assert (cpu.bandwidth_gb_s, dict(cpu.tflops), cpu.device_names) == (None, {}, ())
