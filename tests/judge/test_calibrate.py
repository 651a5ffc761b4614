"""What `arena calibrate` caches of a GPU and how a score shows it, on any machine; test_calibrate_gpu.py measures."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from command import Arena, copy, needs_sandbox
from records import trial

from arena.judge.device import calibrate_cpu, calibrate_gpu
from arena.results import annotations
from arena.schema import Annotation, Attainable

UUID = "GPU-11111111-2222-3333-4444-555555555555"
FOUND: dict[str, Any] = {
    "method": calibrate_gpu.METHOD,
    "measured_at": "2026-01-02T03:04:05Z",
    "torch": "2.11.0+cu130",
    "driver": "580.159.04",
    "copy_gb_s": 4280.0,
    "read_gb_s": 4000.0,
    "tflops": {"bf16": 770.0},
    "launch_s": 1e-6,
}
KNOWN = "import sys; from arena.judge.device.calibrate_gpu import known; print(known(sys.argv[1]) is not None)"
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this test is for a machine without a GPU")


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "knows"),
    [
        (json.dumps(FOUND), True),
        (None, False),
        (json.dumps(FOUND | {"method": calibrate_gpu.METHOD + 1}), False),
        (json.dumps(FOUND)[:-9], False),
        (json.dumps(FOUND | {"copy_gb_s": 0}), False),
        ("", False),
    ],
    ids=["whole", "absent", "another method", "cut off", "impossible", "empty"],
)
def test_cached_calibration_is_known_only_when_whole(text: str | None, knows: bool, arena: Arena, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "arena" / "calibration" / "gpu-11111111-2222-3333-4444-555555555555.json"
    kept.parent.mkdir(parents=True)
    if text is not None:
        kept.write_text(text)
    done = arena.python(KNOWN, UUID, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.out, done.err) == (f"{knows}\n", "")


@pytest.mark.parametrize(("fp32", "bf16", "best"), [(0.08, 0.001, 0.08), (0.08, 1.2, 1.2)], ids=["without bf16", "with bf16"])
def test_bf16_ceiling_of_a_cpu_is_at_least_fp32(fp32, bf16, best, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate_cpu, "_bandwidth_gb_s", lambda mib: 40.0)
    monkeypatch.setattr(calibrate_cpu, "_gemm_tflops", {torch.float32: fp32, torch.bfloat16: bf16}.get)
    assert calibrate_cpu.cpu().tflops == {"fp32": fp32, "bf16": best}


def calibration(bandwidth_gb_s: float, fp32: float, busy: str = "") -> calibrate_cpu.Calibration:
    rates: dict[Any, float] = {"fp32": fp32, "bf16": 1.0}
    known: dict[str, Any] = {"method": 2, "device": "x", "torch": "2", "measured_at": datetime.now(UTC)}
    return calibrate_cpu.Calibration(**known, bandwidth_gb_s=bandwidth_gb_s, tflops=rates, busy=busy)


def test_a_slow_calibration_lowers_no_ceiling(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibrate_cpu.known() is None
    calibrate_cpu.keep(calibration(40.0, 0.5))
    kept = calibrate_cpu.keep(calibration(10.0, 0.7, "others"))
    assert (kept.bandwidth_gb_s, kept.tflops["fp32"], kept.busy) == (40.0, 0.7, "")
    assert calibrate_cpu.known() == kept == calibrate_cpu.cpu()


def test_a_calibration_says_that_the_machine_was_busy(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibrate_cpu.keep(calibration(10.0, 0.5, "others")).busy == "others"
    assert calibrate_cpu.keep(calibration(12.0, 0.4, "others")).busy == "others"
    assert calibrate_cpu.keep(calibration(11.0, 0.4)).busy == ""


def test_a_slow_calibration_of_a_gpu_lowers_nothing():
    def found(copy: float, read: float, bf16: float, launch: float) -> Attainable:
        rates: dict[Any, float] = {"bf16": bf16}
        known: dict[str, Any] = {"method": 1, "measured_at": datetime.now(UTC), "torch": "2", "driver": "1"}
        return Attainable(**known, copy_gb_s=copy, read_gb_s=read, tflops=rates, launch_s=launch)

    best = calibrate_gpu.best(found(2.0, 1.0, 5.0, 1e-6), found(1.0, 2.0, 4.0, 2e-6))
    assert (best.copy_gb_s, best.read_gb_s, best.tflops, best.launch_s) == (2.0, 2.0, {"bf16": 5.0}, 1e-6)


def test_no_try_starts_after_the_limit(monkeypatch):
    monkeypatch.setattr(calibrate_cpu, "MOST_S", 0.01)
    calls = []

    def call() -> None:
        calls.append(0)
        time.sleep(0.02)

    assert calibrate_cpu._best_s(call) >= 0.02
    assert len(calls) == 2  # the first is not timed


@pytest.mark.parametrize("rate", calibrate_gpu.GEMMS)
def test_every_call_computes_the_product(rate: Any) -> None:
    gemm = calibrate_gpu.GEMMS[rate]._replace(size=64)
    a, b = (calibrate_gpu.matrix(gemm, seed, "cpu") for seed in (0, 1))
    assert a.double().unique().numel() > 100, "random data"
    straight, transposed = a.double() @ b.double(), a.double() @ b.double().t()
    for call in gemm.calls(a, b):
        out = call().double()
        assert any(torch.allclose(out, wanted, rtol=0.02, atol=0.2) for wanted in (straight, transposed))


def test_fp32_precision_is_restored() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with calibrate_gpu.fp32_as("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


# ---------------------------------------------------------------- how a score shows it


def shown(arena: Arena, bound: str, attainable: dict | None) -> str:
    """What `arena show` prints for a stored run at half of its ceiling."""
    record = trial(0.5).model_dump(mode="json")
    record["score"]["device"]["attainable"] = attainable
    record["score"]["shapes"][0]["bound"] = bound
    annotation = Annotation.model_validate(record)
    annotations.write(arena.home / "annotations", annotation)
    done = arena("show", annotation.run_id)
    assert done.code == 0, done.err
    return done.out


def test_memory_bound_shape_shows_attained_bandwidth(arena: Arena) -> None:
    output = shown(arena, "memory", FOUND)
    assert "datasheet ceilings: 4800 GB/s, of which this GPU attains 4280\n" in output
    assert "attained" in output
    assert f"{0.5 * 4800 / 4280:.4f}" in output


def test_compute_bound_shape_shows_its_attained_product(arena: Arena) -> None:
    [row] = [line for line in shown(arena, "compute", FOUND).splitlines() if line.startswith(" N=8")]
    assert row.split()[-3:] == ["0.5000", "compute", f"{0.5 * 989 / FOUND['tflops']['bf16']:.4f}"]


def test_unmeasured_product_leaves_the_cell_empty(arena: Arena) -> None:
    [row] = [line for line in shown(arena, "compute", FOUND | {"tflops": {"fp8": 1}}).splitlines() if line.startswith(" N=8")]
    assert row.split()[-2:] == ["0.5000", "compute"]


def test_no_calibration_means_no_column(arena: Arena) -> None:
    output = shown(arena, "memory", None)
    assert "on NVIDIA H200, datasheet ceilings\n" in output
    assert "attain" not in output


# ---------------------------------------------------------------- detected hardware


@pytest.mark.slow
@needs_sandbox
@no_gpu
def test_hardware_without_a_gpu_is_cpu_and_is_reported(arena: Arena) -> None:
    path = arena.solution("broken", "def f(:\n")
    done = arena("score", str(path), "--problem", "paged_attention", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["hardware"] == "cpu"
    assert "hardware cpu: no GPU was found here (--hardware chooses another)\n" in done.err


@pytest.mark.slow
@needs_sandbox
@no_gpu
@pytest.mark.parametrize("words", [("run", "-p", "paged_attention"), ("calibrate",)], ids=" ".join)
def test_absent_gpu_is_an_error(words: tuple[str, ...], arena: Arena) -> None:
    done = arena(*words, "--hardware", "h200")
    assert done.code == 2
    assert "torch finds no GPU here, and NVIDIA H200 SXM 141 GB was asked for; score on --hardware cpu" in done.err
    assert "(--hardware chooses another)" not in done.err, "the option was given"
