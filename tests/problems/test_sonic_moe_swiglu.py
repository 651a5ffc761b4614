"""The problem `sonic_moe_swiglu`: its inputs, its reference, its gate, and what its solutions get."""

import math
import shutil
import subprocess
import sys
import typing

import pytest

torch = pytest.importorskip("torch")

from arena import catalog, paths  # noqa: E402
from arena.judge import forbidden, problem_code  # noqa: E402
from arena.schema import Verdict  # noqa: E402

PROBLEM = catalog.problem("sonic_moe_swiglu")
CODE = problem_code.load(PROBLEM, "cpu")
CHECK = problem_code.kit("check")
REFERENCE, HIDDEN = (sys.modules[f"arena_problem_sonic_moe_swiglu.{name}"] for name in ("reference", "hidden"))
KIT = problem_code.kit("benchmark")
SOLUTIONS = sorted((paths.problems() / "sonic_moe_swiglu" / "solutions").glob("*.py"))
PUBLIC = [dict(shape) for shape in PROBLEM.shapes["cpu"]]
SHAPES = PUBLIC + [dict(shape) for shape in CODE.extra_shapes]
EVERY = [shape for profile in ("cpu", "gpu") for shape in (*PROBLEM.shapes[profile], *HIDDEN.EXTRA_SHAPES[profile])]
INPUT_CLASSES = ("public", *CODE.input_classes)
SEEDS = (1, 2**40 + 3, 2**62 + 5)


def words(shape):
    return "-".join(f"{name}{size}" for name, size in shape.items())


def tight(errors):
    return all(errors[key] <= PROBLEM.tolerance[key] for key in errors)


def solution(stem):
    return KIT.load_solution(paths.problems() / "sonic_moe_swiglu" / "solutions" / f"{stem}.py")


def verdict_of(path):
    return path.read_text().partition("\n")[0].removeprefix("# verdict: ")


def counts_of(off):
    return (off[1:] - off[:-1]).tolist()


@pytest.fixture(scope="module")
def honest():
    """Both honest solutions; the oracle is compiled once."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler `cc` on this machine")
    return {stem: solution(stem) for stem in ("oracle", "naive")}


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
@pytest.mark.parametrize("other", [2, 1 + 2**32, 1 + 2**62, 1 + 2**100])
def test_two_seeds_give_two_input_sets(shape, other):
    for first, second in zip(
        CODE.make_inputs(shape, 1, "public", "cpu"), CODE.make_inputs(shape, other, "public", "cpu"), strict=True
    ):
        assert not torch.equal(first, second)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_a_seed_gives_the_same_set_again_and_torchs_own_generator_is_left_alone(input_class):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = CODE.make_inputs(PUBLIC[0], 5, input_class, "cpu")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    for a, b in zip(first, CODE.make_inputs(PUBLIC[0], 5, input_class, "cpu"), strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_sizes_depend_on_the_shape_and_the_mode_alone(shape, input_class):
    made = [CODE.make_inputs(shape, seed, input_class, "cpu") for seed in SEEDS]
    assert len({tuple((t.shape, t.dtype) for t in inputs) for inputs in made}) == 1
    assert all(t.is_contiguous() for inputs in made for t in inputs)
    named = shape | {"E+1": shape["E"] + 1, "2I": 2 * shape["I"]}
    for tensor, stated in zip(made[0], PROBLEM.inputs, strict=True):
        assert tensor.dtype == getattr(torch, stated.dtype)
        assert tuple(tensor.shape) == tuple(named[name] for name in stated.shape)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_experts_share_out_all_rows_in_every_mode(shape, input_class):
    _, tok, off, _ = CODE.make_inputs(shape, 3, input_class, "cpu")
    assert off[0] == 0 and off[-1] == shape["R"]
    assert min(counts_of(off)) >= 0
    assert int(tok.min()) >= 0 and int(tok.max()) < shape["T"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_every_token_has_k_experts_and_just_the_active_ones_have_rows(shape, seed):
    _, tok, off, _ = CODE.make_inputs(shape, seed, "public", "cpu")
    assert sum(count > 0 for count in counts_of(off)) == shape["E_act"]
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
    x, _, _, weights = CODE.make_inputs({**PUBLIC[0], "T": 2000, "H": 512}, 3, "public", "cpu")
    spread = x.double().pow(2).mean(0).sqrt()
    others = torch.ones(512, dtype=torch.bool).index_fill_(0, torch.arange(0, 512, 101), False)
    assert x.double().pow(2).mean() == pytest.approx(1, abs=0.02)
    assert float(spread[~others].mean() / spread[others].mean()) == pytest.approx(10, rel=0.02)
    assert weights.double().pow(2).mean() * 512 == pytest.approx(1, abs=0.02)


def test_an_unknown_mode_names_the_known_ones():
    with pytest.raises(ValueError, match="nan_unused"):
        CODE.make_inputs(PUBLIC[0], 0, "nonsense", "cpu")
    with pytest.raises(ValueError, match="known: public"):
        REFERENCE.make_inputs(PUBLIC[0], 0, "nan_unused")


# ------------------------------------------------------------------ hidden modes


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_one_set_and_ends_only(shape):
    counts = counts_of(CODE.make_inputs(shape, 3, "one_set", "cpu")[2])
    assert sorted(counts) == [0] * (shape["E"] - shape["K"]) + [shape["T"]] * shape["K"]
    counts = counts_of(CODE.make_inputs(shape, 3, "ends_only", "cpu")[2])
    assert counts[0] > 0 and counts[-1] > 0 and counts[0] + counts[-1] == shape["R"]


def test_rows_shared_out_by_hand():
    assert HIDDEN.shared(10, 4, (1,)) == [1, 1, 1, 7]
    assert HIDDEN.shared(400, 6, (1, 127, 128, 129)) == [1, 127, 128, 129, 1, 14]
    assert HIDDEN.shared(130, 5, (1, 127, 128, 129)) == [1, 127, 2, 0, 0]


def test_experts_have_one_row_or_as_many_as_a_tile_and_one_more_or_less():
    shape = dict(CODE.extra_shapes[0])
    assert sorted(counts_of(CODE.make_inputs(shape, 3, "single_rows", "cpu")[2])) == [1] * 15 + [785]
    counts = counts_of(CODE.make_inputs(shape, 3, "tile_edges", "cpu")[2])
    assert sorted(counts) == [0] * 6 + [1, 1, 1, 29, 127, 127, 128, 128, 129, 129]
    assert counts != counts_of(CODE.make_inputs(shape, 4, "tile_edges", "cpu")[2])
    for scored in PROBLEM.shapes["gpu"]:
        assert {1, 127, 128, 129} <= set(HIDDEN.shared(scored["R"], scored["E"], HIDDEN.COUNTS["tile_edges"]))


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_any_order_changes_the_order_within_a_group_and_nothing_else(shape):
    x, tok, off, weights = CODE.make_inputs(shape, 3, "public", "cpu")
    x2, mixed, off2, weights2 = CODE.make_inputs(shape, 3, "any_order", "cpu")
    assert torch.equal(off, off2) and torch.equal(x, x2) and torch.equal(weights, weights2)
    assert not torch.equal(tok, mixed)
    for begin, end in zip(off.tolist()[:-1], off.tolist()[1:], strict=True):
        assert tok[begin:end].tolist() == sorted(mixed[begin:end].tolist())


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_nan_where_nobody_looks_does_not_reach_the_reference(shape):
    x, tok, off, weights = CODE.make_inputs(shape, 3, "nan_unused", "cpu")
    empty = torch.tensor(counts_of(off)) == 0
    assert empty.any() and weights[empty].isnan().all() and weights[~empty].isfinite().all()
    assert x[tok.long()].isfinite().all() and x[1::2].isnan().all()
    answer = REFERENCE.reference(x, tok, off, weights)
    assert answer.isfinite().all()
    assert torch.equal(answer, REFERENCE.reference(x.nan_to_num(7.0), tok, off, weights.nan_to_num(7.0)))


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_large_gates_are_of_the_size_that_the_prompt_names(shape):
    x, tok, off, weights = CODE.make_inputs(shape, 3, "large_gates", "cpu")
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
    x, tok, off, weights = CODE.make_inputs(shape, 9, input_class, "cpu")
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
    assert PROBLEM.flops(shape) == 6 * (5 + 5) * 8 * 2
    # bf16: 3 tokens of 8, 3 experts of 10 rows of 8, 6 rows of 5; int32: 6 tokens, 5 beginnings.
    assert PROBLEM.bytes(shape) == (3 * 8 + 3 * 10 * 8 + 6 * 5) * 2 + (6 + 5) * 4


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_formula_claims_just_the_bytes_that_a_call_must_move(shape):
    for seed in SEEDS:
        x, tok, off, weights = CODE.make_inputs(shape, seed, "public", "cpu")
        used = weights[torch.tensor(counts_of(off)) > 0]
        assert PROBLEM.bytes(shape) == x.nbytes + tok.nbytes + off.nbytes + used.nbytes + 2 * len(tok) * shape["I"]


@pytest.mark.parametrize("shape", EVERY, ids=words)
def test_every_shape_fits_itself(shape):
    assert shape["R"] == shape["T"] * shape["K"]
    assert shape["K"] <= shape["E_act"] <= min(shape["E"], shape["R"])
    assert max(shape["K"], shape["E_act"] // 2) < shape["E"]  # so that nan_unused has experts without rows


def test_no_hidden_shape_is_a_scored_one():
    for profile in ("cpu", "gpu"):
        scored = [tuple(shape.values()) for shape in PROBLEM.shapes[profile]]
        assert not {tuple(shape.values()) for shape in HIDDEN.EXTRA_SHAPES[profile]} & set(scored)


# ------------------------------------------------------------------ the gate


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_gate_takes_the_rounded_reference_and_nothing_that_is_no_answer(shape, seed):
    inputs = CODE.make_inputs(shape, seed, "public", "cpu")
    ref = REFERENCE.reference(*inputs)
    assert tight(CHECK.errors(ref.bfloat16(), ref))
    zeros = CHECK.errors(torch.zeros_like(ref), ref)
    assert (zeros["rel_fro"], zeros["row"]) == pytest.approx((1, 1), abs=1e-12)
    refused = {
        "zeros": torch.zeros_like(ref),
        "constant": torch.full_like(ref, ref.mean()),
        "row means": ref.mean(-1, keepdim=True).expand_as(ref),
        "rows permuted": ref.roll(1, dims=0),
        "columns permuted": ref.roll(1, dims=1),
        "2 % too large": ref * 1.02,
        "one row missing": ref.index_fill(0, torch.tensor(len(ref) // 2), 0),
        "one element wrong": ref.clone().index_put_((torch.tensor([0]),) * 2, ref[0, 0] + 0.2 * ref[0].norm()),
    }
    for name, answer in refused.items():
        assert not tight(CHECK.errors(answer.bfloat16(), ref)), name


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_gate_and_up_rounded_to_bf16_are_inside_the_gate(shape):
    # What a grouped product with a bf16 result leaves for an elementwise second step: honest, and the widest that is.
    for seed in SEEDS:
        x, tok, off, weights = CODE.make_inputs(shape, seed, "public", "cpu")
        expert = torch.searchsorted(off[1:].contiguous(), torch.arange(len(tok)), right=True)
        both = (weights[expert].double() @ x[tok.long()].double()[:, :, None])[..., 0].bfloat16().double()
        gate, up = both.split(shape["I"], dim=1)
        errors = CHECK.errors((gate * gate.sigmoid() * up).bfloat16(), REFERENCE.reference(x, tok, off, weights))
        assert tight(errors) and errors["rel_fro"] > 2.5e-3, errors


WRONG = [path.stem for path in SOLUTIONS if path.stem.startswith("wrong_") and not path.stem.endswith("_gpu")]
WRONG_ONLY_IN = {"wrong_nan_times_zero": {"nan_unused"}, "wrong_exp_overflow": {"large_gates"}}
WRONG_EVERYWHERE_IN = {"wrong_capacity": {"one_set", "ends_only", "single_rows", "tile_edges"}}
"""The others, in `public`. Experts of one shape are not so uneven in every set that a capacity of twice the mean shows."""


@pytest.mark.parametrize("stem", WRONG)
def test_wrong_solutions_fail_where_they_should(stem):
    wrong = solution(stem)
    only_in = WRONG_ONLY_IN.get(stem)
    for input_class in INPUT_CLASSES if only_in else WRONG_EVERYWHERE_IN.get(stem, ("public",)):
        for shape in PUBLIC:
            for seed in SEEDS:
                inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
                passes = tight(CHECK.errors(wrong(*inputs), REFERENCE.reference(*inputs)))
                assert passes == (only_in is not None and input_class not in only_in), (input_class, shape, seed)


@pytest.mark.parametrize("stem", ["wrong_int8", "wrong_fp8"])
def test_eight_bits_are_four_times_beyond_the_gate(stem):
    wrong = solution(stem)
    for shape in PUBLIC:
        inputs = CODE.make_inputs(shape, 11, "public", "cpu")
        errors = CHECK.errors(wrong(*inputs), REFERENCE.reference(*inputs))
        assert errors["rel_fro"] > 4 * PROBLEM.tolerance["rel_fro"], (shape, errors)


def test_outliers_kept_apart_do_not_bring_eight_bits_inside_the_gate_where_rows_are_long():
    inputs = CODE.make_inputs({**PUBLIC[2], "H": 2048}, 11, "public", "cpu")
    errors = CHECK.errors(solution("wrong_int8_mixed")(*inputs), REFERENCE.reference(*inputs))
    assert errors["rel_fro"] > 1.5 * PROBLEM.tolerance["rel_fro"], errors


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("stem", ["oracle", "naive"])
def test_honest_solutions_pass_every_mode_with_room(honest, stem, input_class):
    for shape in SHAPES:
        for seed in SEEDS:
            inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
            errors = CHECK.errors(honest[stem](*inputs), REFERENCE.reference(*inputs))
            for key, error in errors.items():
                assert error <= PROBLEM.tolerance[key] / 3, (shape, seed, errors)


@pytest.mark.timing
def test_the_oracle_is_three_times_as_fast_as_naive(honest):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in PUBLIC:
            inputs = [CODE.make_inputs(shape, seed, "public", "cpu") for seed in range(20)]
            outputs = [(torch.empty(shape["R"], shape["I"], dtype=torch.bfloat16),) for _ in inputs]
            times = {stem: min(KIT.timed(each, inputs, outputs, "cpu") for _ in range(5)) for stem, each in honest.items()}
            assert times["naive"] > 3 * times["oracle"], shape
    finally:
        torch.set_num_threads(threads)


# ------------------------------------------------------------------ the solutions' own form


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_solution_names_its_verdict_and_says_what_it_is(path):
    first, second = path.read_text().splitlines()[:2]
    assert first.startswith("# verdict: ")
    assert verdict_of(path) in typing.get_args(Verdict)
    assert second.startswith("# ") and second.endswith(".")
    assert (verdict_of(path) == "passed") == (path.stem.partition("_")[0] in ("oracle", "naive"))
    if path.stem.startswith("wrong_"):
        assert verdict_of(path) == "incorrect"


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_no_solution_is_refused_for_a_name_alone(path):
    assert forbidden.forbidden(path.read_text(), PROBLEM.forbidden) == []


def test_a_library_is_refused_by_its_name():
    for source in ("import sonicmoe.functional", "import torch\ntorch._grouped_mm(a, b)", "def f(a, b):\n    return a @ b"):
        assert forbidden.forbidden(source, PROBLEM.forbidden), source


def test_without_a_compiler_the_oracle_says_so():
    path = paths.problems() / "sonic_moe_swiglu" / "solutions" / "oracle.py"
    done = subprocess.run(
        [sys.executable, path], env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: this solution needs a C compiler, and there is no `cc` on the PATH"
