"""The problem `sonic_moe_swiglu`: what its inputs hold, its reference, its tolerance, and where its solutions fail."""

import math

import pytest

torch = pytest.importorskip("torch")

from shipped import SEEDS, Shipped, words  # noqa: E402

from arena.judge import forbidden  # noqa: E402

IT = Shipped("sonic_moe_swiglu")
FACTS, REFERENCE, HIDDEN = IT.facts, IT.reference, IT.hidden
PUBLIC, SHAPES, INPUT_CLASSES = IT.public, IT.shapes, IT.input_classes
make, solution = IT.make, IT.solution
EVERY = [shape for profile in ("cpu", "gpu") for shape in (*FACTS.shapes[profile], *HIDDEN.EXTRA_SHAPES[profile])]


def counts_of(off):
    return (off[1:] - off[:-1]).tolist()


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_experts_share_all_rows_in_every_input_class(shape, input_class):
    _, tok, off, _ = make(shape, 3, input_class)
    assert off[0] == 0 and off[-1] == shape["R"]
    assert min(counts_of(off)) >= 0
    assert int(tok.min()) >= 0 and int(tok.max()) < shape["T"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_every_token_has_k_experts_among_the_active_ones(shape, seed):
    x, tok, off, weights = make(shape, seed)
    empty = torch.tensor(counts_of(off)) == 0
    assert int(empty.sum()) == shape["E"] - shape["E_act"]
    assert weights[empty].isnan().all() and weights[~empty].isfinite().all()
    gone = x.isnan().all(1)
    assert int(gone.sum()) <= 1 + shape["T"] // 64 and x[~gone].isfinite().all()
    assert (tok.long().bincount(minlength=shape["T"])[gone] == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_every_token_is_first_given_k_experts(shape, seed):
    tok, off = REFERENCE.grouped(REFERENCE.choose(shape, shape["E_act"], REFERENCE.generators(seed, "cpu")[0]), shape["E"])
    assert tok.long().bincount(minlength=shape["T"]).tolist() == [shape["K"]] * shape["T"]
    for begin, end in zip(off.tolist()[:-1], off.tolist()[1:], strict=True):
        tokens = tok[begin:end].tolist()
        assert tokens == sorted(set(tokens))


def test_popularity_falls_by_zipfs_law_and_lies_anywhere():
    # With K = 1 the share of the expert of rank n is n^-1 / H(4) = 12/25, 6/25, 4/25, 3/25.
    shape = {"T": 40_000, "K": 1, "E": 6, "zipf_pct": 100}
    firsts = set()
    for seed in range(8):
        chosen = REFERENCE.choose(shape, 4, REFERENCE.generators(seed, "cpu")[0]).flatten().bincount(minlength=6)
        shares = chosen.sort(descending=True).values / 40_000
        torch.testing.assert_close(shares, torch.tensor([12, 6, 4, 3, 0, 0]) / 25, rtol=0, atol=0.015)
        firsts.add(int(chosen.argmax()))
    assert len(firsts) > 2


def test_values_have_the_spread_that_the_prompt_names():
    shape = {**PUBLIC[0], "T": 2000, "H": 512}
    x, _, _, weights = REFERENCE.build(shape, None, None, REFERENCE.generators(3, "cpu")[1])
    spread = x.double().pow(2).mean(0).sqrt()
    others = torch.ones(512, dtype=torch.bool).index_fill_(0, torch.arange(0, 512, 101), False)
    assert x.double().pow(2).mean() == pytest.approx(1, abs=0.02)
    assert float(spread[~others].mean() / spread[others].mean()) == pytest.approx(10, rel=0.02)
    assert weights.double().pow(2).mean() * 512 == pytest.approx(1, abs=0.02)


# ------------------------------------------------------------------ hidden input classes


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_one_set_and_ends_only(shape):
    counts = counts_of(make(shape, 3, "one_set")[2])
    assert sorted(counts) == [0] * (shape["E"] - shape["K"]) + [shape["T"]] * shape["K"]
    counts = counts_of(make(shape, 3, "ends_only")[2])
    assert counts[0] > 0 and counts[-1] > 0 and counts[0] + counts[-1] == shape["R"]


def test_rows_shared_out_by_hand():
    assert HIDDEN.shared(10, 4, (1,)) == [1, 1, 1, 7]
    assert HIDDEN.shared(400, 6, (1, 127, 128, 129)) == [1, 127, 128, 129, 1, 14]
    assert HIDDEN.shared(130, 5, (1, 127, 128, 129)) == [1, 127, 2, 0, 0]


def test_single_rows_and_tile_edges():
    shape = dict(IT.code.extra_shapes[0])
    assert sorted(counts_of(make(shape, 3, "single_rows")[2])) == [1] * 15 + [785]
    counts = counts_of(make(shape, 3, "tile_edges")[2])
    assert sorted(counts) == [0] * 6 + [1, 1, 1, 29, 127, 127, 128, 128, 129, 129]
    assert counts != counts_of(make(shape, 4, "tile_edges")[2])
    for scored in FACTS.shapes["gpu"]:
        assert {1, 127, 128, 129} <= set(HIDDEN.shared(scored["R"], scored["E"], HIDDEN.COUNTS["tile_edges"]))


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_any_order_changes_only_the_order_within_a_group(shape):
    places, values = REFERENCE.generators(3, "cpu")
    tok, off = REFERENCE.grouped(REFERENCE.choose(shape, shape["E_act"], places), shape["E"])
    x, _, _, weights = REFERENCE.build(shape, tok, off, values)
    x2, mixed, off2, weights2 = make(shape, 3, "any_order")
    assert torch.equal(off, off2) and torch.equal(x, x2) and torch.equal(weights, weights2)
    assert not torch.equal(tok, mixed)
    for begin, end in zip(off.tolist()[:-1], off.tolist()[1:], strict=True):
        assert tok[begin:end].tolist() == sorted(mixed[begin:end].tolist())


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_unused_nan_does_not_reach_the_reference(shape):
    x, tok, off, weights = make(shape, 3, "nan_unused")
    empty = torch.tensor(counts_of(off)) == 0
    assert empty.any() and weights[empty].isnan().all() and weights[~empty].isfinite().all()
    assert x[tok.long()].isfinite().all() and x[1::2].isnan().all()
    answer = REFERENCE.reference(x, tok, off, weights)
    assert answer.isfinite().all()
    assert torch.equal(answer, REFERENCE.reference(x.nan_to_num(7.0), tok, off, weights.nan_to_num(7.0)))


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_large_gates_are_of_the_size_that_the_prompt_names(shape):
    x, tok, off, weights = make(shape, 3, "large_gates")
    e = int(torch.tensor(counts_of(off)).argmax())
    gates = x[tok[off[e] : off[e + 1]].long()].double() @ weights[e, : shape["I"]].double().T
    assert gates.max() > 500 and gates.min() < -500 and 700 < gates.abs().max() < 2500


# ------------------------------------------------------------------ reference and formulas


def test_the_reference_on_a_case_done_by_hand():
    # One column, two channels. silu(ln 3) = ln 3 / (1 + 1/3) = 0.75 ln 3, and silu(-ln 3) = -0.25 ln 3.
    x = torch.tensor([[math.log(3), 2.0], [math.nan, math.nan], [-1.0, 5.0]], dtype=torch.float64)
    first, last = [[1.0, 0.0], [0.0, 1.0]], [[math.log(3), 0.0], [1.0, 1.0]]
    weights = torch.tensor([first, [[math.nan] * 2] * 2, last], dtype=torch.float64)
    tok, off = (torch.tensor(each, dtype=torch.int32) for each in ([0, 2, 0], [0, 1, 1, 3]))
    third = math.log(3) ** 2
    expected = [0.75 * math.log(3) * 2, -0.25 * math.log(3) * 4, third / (1 + math.exp(-third)) * (math.log(3) + 2)]
    out = REFERENCE.reference(x, tok, off, weights)
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64)[:, None], rtol=1e-14, atol=0)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_the_reference_agrees_with_a_sum_taken_one_by_one(input_class):
    shape = {"T": 5, "K": 2, "R": 10, "H": 8, "I": 3, "E": 4, "E_act": 3, "zipf_pct": 60}
    x, tok, off, weights = make(shape, 9, input_class)
    out = REFERENCE.reference(x, tok, off, weights)
    for r in range(10):
        e = max(e for e in range(4) if off[e] <= r)
        for i in range(3):
            gate, up = (
                math.fsum(float(a) * float(b) for a, b in zip(x[tok[r]], weights[e, row], strict=True)) for row in (i, 3 + i)
            )
            silu = gate / (1 + math.exp(-gate)) if gate > -700 else 0.0
            assert out[r, i].item() == pytest.approx(silu * up, rel=1e-11, abs=1e-14)


def test_work_counted_by_hand():
    shape = {"T": 3, "K": 2, "R": 6, "H": 8, "I": 5, "E": 4, "E_act": 3, "zipf_pct": 100}
    # Six rows of five gates and five ups, each of 8 multiply-adds of 2 flops.
    assert FACTS.flops(shape) == 6 * (5 + 5) * 8 * 2
    # bf16: 3 tokens of 8, 3 experts of 10 rows of 8, 6 rows of 5; int32: 6 tokens, 5 beginnings.
    assert FACTS.bytes(shape) == (3 * 8 + 3 * 10 * 8 + 6 * 5) * 2 + (6 + 5) * 4


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_formula_claims_just_the_bytes_that_a_call_must_move(shape):
    for seed in SEEDS:
        x, tok, off, weights = make(shape, seed)
        used = weights[torch.tensor(counts_of(off)) > 0]
        assert FACTS.bytes(shape) == x.nbytes + tok.nbytes + off.nbytes + used.nbytes + 2 * len(tok) * shape["I"]


@pytest.mark.parametrize("shape", EVERY, ids=words)
def test_every_shape_fits_itself(shape):
    assert shape["R"] == shape["T"] * shape["K"]
    assert shape["K"] <= shape["E_act"] <= min(shape["E"], shape["R"])
    assert max(shape["K"], shape["E_act"] // 2) < shape["E"]  # so that nan_unused has experts without rows


# ------------------------------------------------------------------ the tolerance


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_gate_and_up_rounded_to_bf16_are_within_tolerance(shape):
    # What a grouped product with a bf16 result leaves for an elementwise second step: honest, and the widest that is.
    for seed in SEEDS:
        x, tok, off, weights = make(shape, seed)
        expert = torch.searchsorted(off[1:].contiguous(), torch.arange(len(tok)), right=True)
        both = (weights[expert].double() @ x[tok.long()].double()[:, :, None])[..., 0].bfloat16().double()
        gate, up = both.split(shape["I"], dim=1)
        errors = IT.errors(((gate * gate.sigmoid() * up).bfloat16(),), (x, tok, off, weights))
        assert IT.within(errors) and errors["rel_fro"] > 2.5e-3, errors


WRONG_IN = {
    "wrong_nan_times_zero": {"nan_unused"},
    "wrong_exp_overflow": {"large_gates"},
    "wrong_capacity": {"one_set", "ends_only", "single_rows", "tile_edges"},
}
"""The others, in `public`. Experts of one shape are not so uneven in every set that a capacity of twice the mean shows."""


@pytest.mark.parametrize("stem", IT.wrong)
def test_wrong_solutions_fail_where_they_should(stem):
    wrong = solution(stem)
    for input_class in WRONG_IN.get(stem, ("public",)):
        for shape in PUBLIC:
            for seed in SEEDS:
                inputs = make(shape, seed, input_class)
                assert not IT.accepts(wrong(*inputs), inputs), (input_class, shape, seed)


@pytest.mark.parametrize("stem", ["wrong_int8", "wrong_fp8"])
def test_eight_bits_miss_the_tolerance_by_four_times(stem):
    wrong = solution(stem)
    for shape in PUBLIC:
        inputs = make(shape, 11)
        errors = IT.errors(wrong(*inputs), inputs)
        assert errors["rel_fro"] > 4 * FACTS.tolerance["rel_fro"], (shape, errors)


def test_eight_bits_beside_outliers_fail_on_long_rows():
    inputs = make({**PUBLIC[2], "H": 2048}, 11)
    errors = IT.errors(solution("wrong_int8_mixed")(*inputs), inputs)
    assert errors["rel_fro"] > 1.5 * FACTS.tolerance["rel_fro"], errors


# ------------------------------------------------------------------ the solutions' own form


def test_a_librarys_name_is_forbidden():
    for source in ("import sonicmoe.functional", "import torch\ntorch._grouped_mm(a, b)", "def f(a, b):\n    return a @ b"):
        assert forbidden.forbidden(source, FACTS.forbidden), source
