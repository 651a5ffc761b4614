"""The problem `w4a16_gemm`: its inputs, its reference, its gate, and what its solutions get."""

import shutil
import subprocess
import sys
import typing

import pytest

torch = pytest.importorskip("torch")

from in_triton import ran  # noqa: E402

from arena import catalog, paths  # noqa: E402
from arena.judge import forbidden, problem_code  # noqa: E402
from arena.schema import Verdict  # noqa: E402

PROBLEM = catalog.problem("w4a16_gemm")
CODE = problem_code.load(PROBLEM, "cpu")
CHECK = problem_code.kit("check")
REFERENCE, HIDDEN = (sys.modules[f"arena_problem_w4a16_gemm.{name}"] for name in ("reference", "hidden"))
KIT = problem_code.kit("benchmark")
SOLUTIONS = sorted((paths.problems() / "w4a16_gemm" / "solutions").glob("*.py"))
PUBLIC = [dict(shape) for shape in PROBLEM.shapes["cpu"]]
SHAPES = PUBLIC + [dict(shape) for shape in CODE.extra_shapes]
INPUT_CLASSES = ("public", *CODE.input_classes)
SEEDS = (1, 2**40 + 3, 2**62 + 5)


def words(shape):
    return "-".join(f"{name}{size}" for name, size in shape.items())


def tight(errors):
    return all(errors[key] <= PROBLEM.tolerance[key] for key in errors)


def solution(stem):
    return KIT.load_solution(paths.problems() / "w4a16_gemm" / "solutions" / f"{stem}.py")


def verdict_of(path):
    return path.read_text().partition("\n")[0].removeprefix("# verdict: ")


def codes(qw):
    """The codes (N, K) of packed bytes, in fp64."""
    return torch.stack([qw % 16, qw // 16], dim=-1).flatten(1).double()


def per_weight(of_groups, size):
    """Scales or zero points (N, K / G) as (N, K), in fp64; `size` is G."""
    return of_groups.double().repeat_interleave(size, dim=1)


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
    first = CODE.make_inputs(PUBLIC[1], 5, input_class, "cpu")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    for a, b in zip(first, CODE.make_inputs(PUBLIC[1], 5, input_class, "cpu"), strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_sizes_depend_on_the_shape_and_the_mode_alone(shape, input_class):
    made = [CODE.make_inputs(shape, seed, input_class, "cpu") for seed in SEEDS]
    assert len({tuple((t.shape, t.dtype) for t in inputs) for inputs in made}) == 1
    assert all(t.is_contiguous() for inputs in made for t in inputs)
    for tensor, stated in zip(made[0], PROBLEM.inputs, strict=True):
        assert tensor.dtype == getattr(torch, stated.dtype)
        for size, name in zip(tensor.shape, stated.shape, strict=True):
            assert size == {"bytes": shape["K"] // 2, "groups": shape["K"] // shape["G"], **shape}[name]


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_zero_points_are_codes_and_all_values_finite(input_class, seed):
    x, _, s, z = CODE.make_inputs(PUBLIC[1], seed, input_class, "cpu")
    assert z.max() <= 15
    assert x.isfinite().all() and s.isfinite().all() and (s >= 0).all()


def test_public_values_are_as_the_prompt_says():
    x, qw, s, z = CODE.make_inputs(PUBLIC[1], 3, "public", "cpu")
    counts = codes(qw).flatten().long().bincount(minlength=16) / (2 * qw.numel())
    assert counts.min() > 0.9 / 16 and counts.max() < 1.1 / 16
    assert abs(z.double().mean() - 8) < 0.1 and 1.4 < z.double().std() < 1.65
    assert 0.45 < s.float().log().std() < 0.55
    channels = x.float().pow(2).mean(0).sqrt()
    large = (channels > 10).nonzero().flatten()
    assert len(large) in (x.shape[1] // 97, x.shape[1] // 97 + 1) and (large.diff() == 97).all()
    assert 20 < channels[large].mean() < 40
    sizes = [t.double().pow(2).mean().sqrt() for t in (REFERENCE.reference(x, qw, s, z), x)]
    assert 0.5 < sizes[0] / sizes[1] < 2


def test_the_large_channels_begin_anywhere():
    first = {
        int((CODE.make_inputs(PUBLIC[1], seed, "public", "cpu")[0].float().norm(dim=0) > 40).long().argmax()) for seed in range(9)
    }
    assert len(first) > 4


def test_an_unknown_mode_names_the_known_ones():
    with pytest.raises(ValueError, match="one_hot"):
        CODE.make_inputs(PUBLIC[0], 0, "nonsense", "cpu")
    with pytest.raises(ValueError, match="known: public"):
        REFERENCE.make_inputs(PUBLIC[0], 0, "one_hot")


# ------------------------------------------------------------------ hidden modes


def test_uniform_and_extreme_zero_points():
    assert set(CODE.make_inputs(PUBLIC[1], 3, "uniform_zeros", "cpu")[3].unique().tolist()) == set(range(16))
    assert set(CODE.make_inputs(PUBLIC[1], 3, "extreme_zeros", "cpu")[3].unique().tolist()) == {0, 15}


def test_wide_scales_span_six_orders():
    s, usual = (CODE.make_inputs(PUBLIC[1], 3, input_class, "cpu")[2].float() for input_class in ("wide_scales", "public"))
    assert s.max() / usual.median() > 500 and usual.median() / s.min() > 500


def test_all_codes_fifteen():
    assert (codes(CODE.make_inputs(PUBLIC[1], 3, "all_fifteen", "cpu")[1]) == 15).all()


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_every_row_has_a_group_without_scale_and_some_rows_nothing_else(shape):
    x, qw, s, z = CODE.make_inputs(shape, 3, "zero_scales", "cpu")
    assert (s == 0).any(1).all()
    silent = (s == 0).all(1)
    assert silent.any() and not silent.all()
    assert (REFERENCE.reference(x, qw, s, z)[:, silent] == 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_one_hot_rows_read_back_weights(shape):
    x, qw, s, z = CODE.make_inputs(shape, 3, "one_hot", "cpu")
    assert (x.sum(1) == 1).all() and ((x == 0) | (x == 1)).all()
    w = (codes(qw) - per_weight(z, shape["G"])) * per_weight(s, shape["G"])
    assert torch.equal(REFERENCE.reference(x, qw, s, z), w[:, x.float().argmax(1)].T)


def test_scattered_values_are_large_in_no_channel_above_others():
    x = CODE.make_inputs(PUBLIC[2], 3, "scattered", "cpu")[0].float()
    assert 0.005 < (x.abs() > 5).float().mean() < 0.015
    assert ((x.abs() > 5).float().mean(0) < 0.2).all()


# ------------------------------------------------------------------ reference and formulas


def test_the_reference_on_a_case_done_by_hand():
    # One row of four codes 1, 2, 15, 0 in groups of two: (1 - 3) * 2, (2 - 3) * 2, (15 - 8) * 0.5, (0 - 8) * 0.5.
    qw = torch.tensor([[0x21, 0x0F]], dtype=torch.uint8)
    s = torch.tensor([[2.0, 0.5]]).bfloat16()
    z = torch.tensor([[3, 8]], dtype=torch.uint8)
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 10.0, 100.0, 1000.0]]).bfloat16()
    assert REFERENCE.reference(x, qw, s, z).tolist() == [[-4.0], [-4.0 - 20.0 + 350.0 - 4000.0]]


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_the_reference_agrees_with_a_sum_over_single_channels(input_class):
    shape = {"M": 17, "N": 101, "K": 384, "G": 128}
    x, qw, s, z = CODE.make_inputs(shape, 3, input_class, "cpu")
    expected = torch.zeros(shape["M"], shape["N"], dtype=torch.float64)
    for k in range(shape["K"]):
        code, group = (qw[:, k // 2] >> 4 * (k % 2)) & 15, k // shape["G"]
        expected += x[:, k, None].double() * ((code.double() - z[:, group].double()) * s[:, group].double())
    torch.testing.assert_close(REFERENCE.reference(x, qw, s, z), expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


def test_the_reference_takes_the_weights_in_parts_and_misses_none():
    shape = {"M": 2, "N": REFERENCE.WEIGHTS_AT_ONCE // 1024 + 3, "K": 1024, "G": 128}
    x, qw, s, z = CODE.make_inputs(shape, 3, "public", "cpu")
    expected = x.double() @ ((codes(qw) - per_weight(z, 128)) * per_weight(s, 128)).T
    torch.testing.assert_close(REFERENCE.reference(x, qw, s, z), expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


def test_work_counted_by_hand():
    shape = {"M": 3, "N": 5, "K": 8, "G": 4}
    # 15 outputs of 8 multiply-adds, 2 flops each.
    assert PROBLEM.flops(shape) == 15 * 8 * 2
    # 5 rows of 4 bytes of codes; 5 rows of 2 scales (2 bytes) and 2 zero points; 24 activations and 15 outputs of 2 bytes.
    assert PROBLEM.bytes(shape) == 5 * 4 + 5 * 2 * 2 + 5 * 2 + 24 * 2 + 15 * 2


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_formula_counts_every_byte_of_a_call_once(shape):
    inputs = CODE.make_inputs(shape, 3, "public", "cpu")
    assert PROBLEM.bytes(shape) == sum(t.nbytes for t in inputs) + 2 * shape["M"] * shape["N"]


def test_every_shape_has_whole_groups():
    for profile in ("cpu", "gpu"):
        for shape in (*PROBLEM.timed(profile), *HIDDEN.EXTRA_SHAPES[profile]):
            assert shape["K"] % shape["G"] == 0 and shape["G"] in (64, 128)
        timed = [tuple(shape.values()) for shape in PROBLEM.timed(profile)]
        assert not {tuple(shape.values()) for shape in HIDDEN.EXTRA_SHAPES[profile]} & set(timed)


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
        "columns permuted": ref.roll(1, dims=1),
        "all permuted": ref.flatten().roll(ref.shape[1] - 1).view_as(ref),
        "2 % too large": ref * 1.02,
        "one element wrong": ref.clone().index_put_((torch.tensor([0]),) * 2, ref[0, 0] + 0.2 * ref[0].abs().max()),
    }
    for name, answer in refused.items():
        assert not tight(CHECK.errors(answer.bfloat16(), ref)), name


def rounded_weights(q, s, z):
    return ((q - z) * s).bfloat16().double()


def offset_rounded(q, s, z):
    return (q * s + (-z * s).bfloat16().double()).bfloat16().double()


def both_rounded(q, s, z):
    return ((q * s).bfloat16().double() - (z * s).bfloat16().double()).bfloat16().double()


@pytest.mark.parametrize("decode", [rounded_weights, offset_rounded, both_rounded])
@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_gate_takes_other_honest_ways_to_decode(shape, decode):
    for seed in SEEDS:
        x, qw, s, z = inputs = CODE.make_inputs(shape, seed, "public", "cpu")
        w = decode(codes(qw), per_weight(s, shape["G"]), per_weight(z, shape["G"]))
        assert tight(CHECK.errors((x.double() @ w.T).bfloat16(), REFERENCE.reference(*inputs))), seed


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_weights_rounded_to_bf16_pass_every_mode_with_room(shape, input_class):
    for seed in SEEDS:
        x, qw, s, z = inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
        w = rounded_weights(codes(qw), per_weight(s, shape["G"]), per_weight(z, shape["G"]))
        errors = CHECK.errors((x.double() @ w.T).bfloat16(), REFERENCE.reference(*inputs))
        assert all(errors[key] <= PROBLEM.tolerance[key] / 2 for key in errors), (seed, errors)


WRONG = [path.stem for path in SOLUTIONS if path.stem.startswith("wrong_")]


@pytest.mark.parametrize("stem", [stem for stem in WRONG if stem != "wrong_int8_split"])
def test_wrong_solutions_fail_on_public_inputs(stem):
    wrong = solution(stem)
    for shape in PUBLIC:
        for seed in SEEDS:
            inputs = CODE.make_inputs(shape, seed, "public", "cpu")
            assert not tight(CHECK.errors(wrong(*inputs), REFERENCE.reference(*inputs))), (shape, seed)


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_int8_beside_large_channels_fails_where_large_values_are_scattered_over_many_rows(shape):
    wrong = solution("wrong_int8_split")
    for seed in SEEDS:
        for input_class, passes in (("public", True), ("scattered", shape["M"] == 2)):
            inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
            assert tight(CHECK.errors(wrong(*inputs), REFERENCE.reference(*inputs))) == passes, (input_class, seed)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("stem", ["oracle", "naive"])
def test_honest_solutions_pass_every_mode_with_room(honest, stem, input_class):
    for shape in SHAPES:
        for seed in SEEDS:
            inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
            errors = CHECK.errors(honest[stem](*inputs), REFERENCE.reference(*inputs))
            assert all(errors[key] <= PROBLEM.tolerance[key] / 3 for key in errors), (shape, seed, errors)


def test_the_cheat_is_right_until_its_buffers_get_new_weights():
    cheat = solution("cheat_weights_by_pointer")
    inputs = CODE.make_inputs(PUBLIC[1], 1, "public", "cpu")
    assert tight(CHECK.errors(cheat(*inputs), REFERENCE.reference(*inputs)))
    for old, new in zip(inputs, CODE.make_inputs(PUBLIC[1], 2, "public", "cpu"), strict=True):
        old.copy_(new)
    assert not tight(CHECK.errors(cheat(*inputs), REFERENCE.reference(*inputs)))


@pytest.mark.timing
def test_the_oracle_is_three_times_as_fast_as_naive(honest):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in PUBLIC:
            inputs = [CODE.make_inputs(shape, seed, "public", "cpu") for seed in range(8)]
            outputs = [(torch.empty(shape["M"], shape["N"], dtype=torch.bfloat16),) for _ in inputs]
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


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._weight_int4pack_mm(a, b, 128, c)",
        "import torch\ntorch._weight_int4pack_mm_for_cpu(a, b, 128, c)",
        "from torchao.quantization import quantize_",
        "import bitsandbytes as bnb",
        "from gptqmodel import GPTQModel",
        "def solution(x, w):\n    return x @ w",
    ],
)
def test_ready_made_kernels_are_refused_by_name(source):
    assert forbidden.forbidden(source, PROBLEM.forbidden)


def test_without_a_compiler_the_oracle_says_so():
    path = paths.problems() / "w4a16_gemm" / "solutions" / "oracle.py"
    done = subprocess.run(
        [sys.executable, path], env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: this solution needs a C compiler, and there is no `cc` on the PATH"


# ------------------------------------------------------------------ the oracle for a GPU, as far as that goes without one

COMPILE = """
import re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

oracle = load("oracle_gpu")
WEIGHTS = {"qw": "*i16", "s": "*bf16", "z": "*u8"}
SIZES = {"row_words": "i32", "groups": "i32"}

def compiled(kernel, signature, sizes, **options):
    signature |= dict.fromkeys(sizes, "constexpr")
    aligned = [place for place, name in enumerate(signature) if signature[name].startswith("*") or name in SIZES]
    source = ASTSource(kernel, signature, constexprs=sizes, attrs={(place,): [["tt.divisibility", 16]] for place in aligned})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    products = set(re.findall(r"(wgmma|mma[.]sync).*[.]f32[.]bf16[.]bf16", made.asm["ptx"]))
    wide = "st.global.v4.b32" in made.asm["ptx"]
    print(kernel.__name__, *sorted(products), wide, made.metadata.shared)

tiles = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "BAND": 8}
boxes = {"x": "tensordesc<bf16[128, 64]>", "w": "tensordesc<bf16[256, 64]>", "y": "tensordesc<bf16[128, 128]>"}
compiled(oracle.multiply_unpacked, boxes | {"M": "i32", "N": "i32", "K": "i32"}, tiles, num_warps=8, num_stages=4)
for G in (64, 128):
    words = oracle.words_at_once(G)
    some = {"GROUP_WORDS": G // 4, "BLOCK_N": 64, "BLOCK_WORDS": words}
    compiled(oracle.unpack, WEIGHTS | {"w": "*bf16", "N": "i32"} | SIZES, some)
    for M in (1, 33, 256):
        sizes = oracle.tiling(M, G)
        options = {name: sizes.pop(name) for name in ("num_warps", "num_stages")}
        both = {"x": "*bf16"} | WEIGHTS | {"y": "*bf16", "M": "i32", "N": "i32"} | SIZES
        compiled(oracle.multiply, both, {"GROUP_WORDS": G // 4} | sizes, **options)
"""


@pytest.mark.slow
def test_the_oracle_multiplies_bf16_on_hopper_and_unpacks_16_bytes_at_a_time(tmp_path):
    made = ran(COMPILE, paths.problems() / "w4a16_gemm" / "solutions", tmp_path)
    assert [name for name, *_ in made] == ["multiply_unpacked", *["unpack", *["multiply"] * 3] * 2]
    for name, *products, wide, shared_bytes in made:
        assert products == ([] if name == "unpack" else ["wgmma"])
        assert name != "unpack" or wide == "True"
        assert int(shared_bytes) <= 227 * 1024
