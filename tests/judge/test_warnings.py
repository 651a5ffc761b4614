"""A score whose counters show another arithmetic than the problem's carries a warning."""

import pytest

pytest.importorskip("torch")

from arena import catalog
from arena.judge.scoring import unexpected_arithmetic
from arena.schema import Evidence, ShapeScore

PROBLEM = catalog.problem("fp8_gemm")
WIDE, FLAT = PROBLEM.shapes["gpu"][0], PROBLEM.shapes["gpu"][-1]
FLOPS = PROBLEM.flops(WIDE)


def scored(shape, bound="compute") -> ShapeScore:
    return ShapeScore(
        shape=shape,
        peak_fraction=0.4,
        ceiling_s=1e-4,
        bound=bound,
        rate="fp8",
        measured_s=2.5e-4,
        ci95=(2.4e-4, 2.6e-4),
        launch_mode="graph",
        wall_s=2.5e-4,
        calls_per_window=8,
        windows=9,
        process_medians_s=(2.5e-4,),
        samples_s=((2.5e-4,),),
        error={"rel_fro": 1e-3},
    )


def warning(ops, shape=WIDE, bound="compute", proof="counters") -> str:
    return unexpected_arithmetic(PROBLEM, [scored(shape, bound)], (Evidence(shape=shape, proof=proof, tensor_ops=ops),))


def test_the_problems_arithmetic_gives_no_warning():
    assert warning({"fp8": FLOPS}) == ""
    assert warning({"fp8": 1.1 * FLOPS, "bf16": 5.0}) == ""


@pytest.mark.parametrize(
    ("ops", "words"),
    [({"bf16": FLOPS}, "bf16 1.00 of the work"), ({"fp8": FLOPS / 2, "bf16": FLOPS / 2}, "fp8 0.50"), ({}, "nothing")],
)
def test_another_arithmetic_gives_a_warning(ops, words):
    text = warning(ops)
    assert text.startswith("not fp8: the tensor cores multiplied otherwise on M=4096, N=4096, K=4096 ")
    assert words in text


def test_no_warning_without_counters_or_a_compute_bound():
    assert warning({"bf16": 1.0}, FLAT, "memory") == ""
    assert warning({}, proof="unproven") == ""
    assert unexpected_arithmetic(catalog.problem("paged_attention"), [], ()) == ""
