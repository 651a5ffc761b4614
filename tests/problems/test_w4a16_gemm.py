"""The problem `w4a16_gemm`: what its inputs hold, its reference, its tolerance, and where its solutions fail."""

import pytest

torch = pytest.importorskip("torch")

from in_triton import ran  # noqa: E402
from shipped import SEEDS, Shipped, usual, words  # noqa: E402

from arena.judge import forbidden  # noqa: E402

IT = Shipped("w4a16_gemm")
FACTS, REFERENCE, HIDDEN = IT.facts, IT.reference, IT.hidden
PUBLIC, SHAPES, INPUT_CLASSES = IT.public, IT.shapes, IT.input_classes
make, solution = IT.make, IT.solution


def codes(qw):
    """The codes (N, K) of packed bytes, in fp64."""
    return torch.stack([qw % 16, qw // 16], dim=-1).flatten(1).double()


def per_weight(of_groups, size):
    """Scales or zero points (N, K / G) as (N, K), in fp64; `size` is G."""
    return of_groups.double().repeat_interleave(size, dim=1)


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_zero_points_are_codes_and_all_values_finite(input_class, seed):
    x, _, s, z = make(PUBLIC[1], seed, input_class)
    assert z.max() <= 15
    assert x.isfinite().all() and s.isfinite().all() and (s >= 0).all()


def usual_rows(shape, seed):
    """The rows of x, and of the weights, that are of no stress class."""
    sizes = ((shape["M"], REFERENCE.OF_ACTIVATIONS), (shape["N"], REFERENCE.OF_WEIGHTS))
    both = zip(sizes, REFERENCE.generators(seed, "cpu"), strict=True)
    return [usual(rows, REFERENCE.hard(rows, classes, each)) for (rows, classes), each in both]


def test_public_values_are_as_the_prompt_says():
    _, kept = usual_rows(PUBLIC[1], 3)
    qw, s, z = (t[kept] for t in make(PUBLIC[1], 3)[1:])
    counts = codes(qw).flatten().long().bincount(minlength=16) / (2 * qw.numel())
    assert counts.min() > 0.9 / 16 and counts.max() < 1.1 / 16
    assert abs(z.double().mean() - 8) < 0.1 and 1.4 < z.double().std() < 1.65
    assert 0.45 < s.float().log().std() < 0.55
    shape = {"M": 4096, "N": 64, "K": 1024, "G": 128}  # enough rows to see the channels
    x = make(shape, 3)[0][usual_rows(shape, 3)[0]]
    channels = x.float().abs().log().mean(0).exp()
    large = (channels > 2 * channels.median()).nonzero().flatten()
    assert len(large) in (x.shape[1] // 97, x.shape[1] // 97 + 1) and (large.diff() == 97).all()
    assert 3.5 < channels[large].mean() / channels.median() < 4.5
    usual = x.float()[:, channels < 2 * channels.median()]
    assert 0.9 < usual.pow(2).mean().sqrt() < 1.1 and 0.02 < (usual.abs() > 2.5).float().mean() < 0.06


def test_answers_are_of_the_size_of_the_activations():
    x, qw, s, z = make(PUBLIC[1], 3)
    sizes = [t.double().pow(2).mean().sqrt() for t in (REFERENCE.reference(x, qw, s, z), x)]
    assert 0.5 < sizes[0] / sizes[1] < 2


def test_the_large_channels_begin_anywhere():
    shape = {"M": 1024, "N": 64, "K": 256, "G": 128}
    sizes = [make(shape, seed)[0][usual_rows(shape, seed)[0]].float().abs().log().mean(0) for seed in range(9)]
    assert len({int(size[:97].argmax()) for size in sizes}) > 4


def test_hardly_a_part_may_be_left_out():
    x, qw, s, _ = make({"M": 4096, "N": 2048, "K": 8192, "G": 128}, 3)
    assert 0 < ((x != 0).sum(1) <= 1).double().mean() < 0.01
    assert 0 < (s == 0).double().mean() < 0.002
    # Groups that together add a hundredth to a row's norm. With scales that differed by up to 1e4 they were 1.6 % of all.
    square = s.double().square().sort(1).values.cumsum(1)
    assert (square <= 1e-4 * square[:, -1:]).double().mean() < 0.003
    # Rows whose codes are 15 but for a few groups were 2.5 %.
    assert 0 < ((qw == 0xFF).double().mean(1) > 0.9).double().mean() < 0.005


# ------------------------------------------------------------------ hidden input classes


def test_uniform_and_extreme_zero_points():
    assert set(make(PUBLIC[1], 3, "uniform_zeros")[3].unique().tolist()) == set(range(16))
    assert set(make(PUBLIC[1], 3, "extreme_zeros")[3].unique().tolist()) == {0, 15}


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_wide_scales_span_orders_and_rows_keep_their_size(shape):
    codes, values = REFERENCE.generators(3, "cpu")
    usual = REFERENCE.build(shape, codes, values)[2].float()
    s = make(shape, 3, "wide_scales")[2].float()
    assert (s.amax(1) / s.amin(1)).median() > 12 and s.amax() / s.amin() > 100
    torch.testing.assert_close(s.pow(2).mean(1), usual.pow(2).mean(1), rtol=1e-2, atol=0)


def test_all_codes_fifteen_and_no_sum_cancels():
    x, qw, _, z = make(PUBLIC[1], 3, "all_fifteen")
    assert (codes(qw) == 15).all() and (z <= 15).all() and (x >= 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_zero_scales_silence_groups_and_whole_rows(shape):
    x, qw, s, z = make(shape, 3, "zero_scales")
    assert (s == 0).any(1).all()
    silent = (s == 0).all(1)
    assert silent.any() and not silent.all()
    assert (REFERENCE.reference(x, qw, s, z)[:, silent] == 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_one_hot_rows_read_back_weights(shape):
    single = 0
    for seed in range(12):
        x, qw, s, z = make(shape, seed, "one_hot")
        w = (codes(qw) - per_weight(z, shape["G"])) * per_weight(s, shape["G"])
        hot = x.double().argmax(1, keepdim=True)
        assert (x.gather(1, hot) == 1).all()
        rest = x.double().scatter(1, hot, 0)
        alone = ~rest.any(1)
        single += int(alone.sum())
        assert torch.equal(REFERENCE.reference(x, qw, s, z)[alone], w[:, hot[alone, 0]].T)
        # What is beside the one may not be left out, and is not most of the answer.
        assert torch.allclose(rest[~alone].norm(dim=1), torch.tensor(REFERENCE.BESIDE, dtype=torch.float64), rtol=0.2)
    assert 0 < single < 12 * shape["M"] / 2


def test_scattered_values_prefer_no_channel():
    x = make(PUBLIC[2], 3, "scattered")[0].float()
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
    x, qw, s, z = make(shape, 3, input_class)
    expected = torch.zeros(shape["M"], shape["N"], dtype=torch.float64)
    for k in range(shape["K"]):
        code, group = (qw[:, k // 2] >> 4 * (k % 2)) & 15, k // shape["G"]
        expected += x[:, k, None].double() * ((code.double() - z[:, group].double()) * s[:, group].double())
    torch.testing.assert_close(REFERENCE.reference(x, qw, s, z), expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


def test_the_reference_takes_all_parts_of_the_weights():
    shape = {"M": 2, "N": REFERENCE.WEIGHTS_AT_ONCE // 1024 + 3, "K": 1024, "G": 128}
    x, qw, s, z = make(shape, 3)
    expected = x.double() @ ((codes(qw) - per_weight(z, 128)) * per_weight(s, 128)).T
    torch.testing.assert_close(REFERENCE.reference(x, qw, s, z), expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


def test_work_counted_by_hand():
    shape = {"M": 3, "N": 5, "K": 8, "G": 4}
    # 15 outputs of 8 multiply-adds, 2 flops each.
    assert FACTS.flops(shape) == 15 * 8 * 2
    # 5 rows of 4 bytes of codes; 5 rows of 2 scales (2 bytes) and 2 zero points; 24 activations and 15 outputs of 2 bytes.
    assert FACTS.bytes(shape) == 5 * 4 + 5 * 2 * 2 + 5 * 2 + 24 * 2 + 15 * 2


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_formula_counts_every_byte_of_a_call_once(shape):
    inputs = make(shape, 3)
    assert FACTS.bytes(shape) == sum(t.nbytes for t in inputs) + 2 * shape["M"] * shape["N"]


def test_every_shape_has_whole_groups():
    for profile in ("cpu", "gpu"):
        for shape in (*FACTS.timed(profile), *HIDDEN.EXTRA_SHAPES[profile]):
            assert shape["K"] % shape["G"] == 0 and shape["G"] in (64, 128)


# ------------------------------------------------------------------ the tolerance


def rounded_weights(q, s, z):
    return ((q - z) * s).bfloat16().double()


def offset_rounded(q, s, z):
    return (q * s + (-z * s).bfloat16().double()).bfloat16().double()


def both_rounded(q, s, z):
    return ((q * s).bfloat16().double() - (z * s).bfloat16().double()).bfloat16().double()


@pytest.mark.parametrize("decode", [rounded_weights, offset_rounded, both_rounded])
@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_tolerance_accepts_other_honest_ways_to_decode(shape, decode):
    for seed in SEEDS:
        x, qw, s, z = inputs = make(shape, seed)
        w = decode(codes(qw), per_weight(s, shape["G"]), per_weight(z, shape["G"]))
        assert IT.accepts(((x.double() @ w.T).bfloat16(),), inputs), seed


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_weights_rounded_to_bf16_are_right_with_room(shape, input_class):
    for seed in SEEDS:
        x, qw, s, z = inputs = make(shape, seed, input_class)
        w = rounded_weights(codes(qw), per_weight(s, shape["G"]), per_weight(z, shape["G"]))
        errors = IT.errors(((x.double() @ w.T).bfloat16(),), inputs)
        assert IT.within(errors, 1 / 2), (seed, errors)


@pytest.mark.parametrize("stem", IT.wrong)
def test_wrong_solutions_fail_on_public_inputs(stem):
    wrong = solution(stem)
    for shape in PUBLIC[stem == "wrong_int8_split" :]:  # of two rows it keeps almost all
        for seed in SEEDS:
            inputs = make(shape, seed)
            assert not IT.accepts(wrong(*inputs), inputs), (shape, seed)


def test_bf16_steps_pass_with_room_where_scales_are_wide():
    honest = solution("beyond_bf16_steps_cpu")
    for shape in HIDDEN.EXTRA_SHAPES["cpu"]:
        for seed in range(40):
            inputs = make(shape, seed, "wide_scales")
            errors = IT.errors(honest(*inputs), inputs)
            assert IT.within(errors, 0.75), (shape, seed, errors)


HIDDEN_GPU = [{"M": 67, "N": 1001, "K": 2112, "G": 64}, {"M": 777, "N": 514, "K": 1152, "G": 64}]
"""Shapes like those that an honest kernel failed on by a hair: many elements, of which the worst counts."""


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("decode", [rounded_weights, offset_rounded, both_rounded])
def test_honest_ways_to_decode_pass_on_many_elements(decode, input_class):
    for shape in HIDDEN_GPU:
        x, qw, s, z = inputs = make(shape, SEEDS[0], input_class)
        w = decode(codes(qw), per_weight(s, shape["G"]), per_weight(z, shape["G"]))
        errors = IT.errors(((x.double() @ w.T).bfloat16(),), inputs)
        assert IT.within(errors, 0.9), (shape, errors)


@pytest.mark.parametrize("kept", [0.0, 0.002], ids=["large channels", "and the largest values"])
def test_eight_bit_activations_fail_on_public_inputs(kept):
    """Also where what fits 8 bits worst stays as it is: the channels that every row has large, and two values in a thousand."""
    for shape in ({"M": 64, "N": 512, "K": 4096, "G": 128}, *PUBLIC[1:]):
        x, qw, s, z = inputs = make(shape, SEEDS[0])
        rows = x.double().view(shape["M"], -1, shape["G"])
        size = x.double().abs().mean(0)
        apart = (size > 2 * size.median()).view(1, -1, shape["G"]) | (rows.abs() > rows.abs().flatten().quantile(1 - kept))
        rest = rows.masked_fill(apart, 0.0)
        step = rest.abs().amax(-1, keepdim=True) / 127
        a = torch.where(apart, rows, (rest / step).round() * step).view_as(x)
        w = (codes(qw) - per_weight(z, shape["G"])) * per_weight(s, shape["G"])
        assert not IT.accepts(((a @ w.T).bfloat16(),), inputs), shape


def test_the_cheat_fails_once_its_buffers_get_new_weights():
    cheat = solution("cheat_weights_by_pointer")
    inputs = make(PUBLIC[1], 1)
    assert IT.accepts(cheat(*inputs), inputs)
    for old, new in zip(inputs, make(PUBLIC[1], 2), strict=True):
        old.copy_(new)
    assert not IT.accepts(cheat(*inputs), inputs)


# ------------------------------------------------------------------ the solutions' own form


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
def test_ready_made_kernels_are_forbidden_by_name(source):
    assert forbidden.forbidden(source, FACTS.forbidden)


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
def test_the_oracle_uses_wgmma_and_wide_stores_on_hopper(tmp_path):
    made = ran(COMPILE, IT.folder, tmp_path)
    assert [name for name, *_ in made] == ["multiply_unpacked", *["unpack", *["multiply"] * 3] * 2]
    for name, *products, wide, shared_bytes in made:
        assert products == ([] if name == "unpack" else ["wgmma"])
        assert name != "unpack" or wide == "True"
        assert int(shared_bytes) <= 227 * 1024
