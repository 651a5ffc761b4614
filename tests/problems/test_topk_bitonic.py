"""The problem `topk_bitonic`: what its inputs hold, its reference, its tolerance, and where its solutions fail."""

import math
from fnmatch import fnmatchcase

import pytest

torch = pytest.importorskip("torch")

from shipped import SEEDS, Shipped, usual, words  # noqa: E402

from arena.judge import forbidden, verify  # noqa: E402

IT = Shipped("topk_bitonic")
FACTS, REFERENCE, HIDDEN = IT.facts, IT.reference, IT.hidden
PUBLIC, SHAPES, INPUT_CLASSES = IT.public, IT.shapes, IT.input_classes
make, solution = IT.make, IT.solution
SMALL = {"rows": 6, "n": 1500, "k": 20}
TABLE = {"rows": 8, "n": 16384, "k": 64}
"""Where each shortcut is tried on each class of inputs."""
INF = math.inf


def winners(x, k):
    """Places (rows, k) of the k largest, in the order of their row."""
    return x.topk(k).indices.sort().values


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_no_element_is_nan_and_ranks_count_up(shape, input_class):
    for seed in SEEDS:
        x, ranks = make(shape, seed, input_class)
        assert not x.isnan().any()
        assert ranks.tolist() == list(range(shape["k"]))


def test_public_rows_are_as_the_prompt_says():
    x, _ = make({"rows": 400, "n": 1000, "k": 1}, 3)
    x = x[usual(400, REFERENCE.hard(400, REFERENCE.STRESS, REFERENCE.generators(3, "cpu")[0]))]
    scale = x.std(1)
    mean = x.mean(1) / scale
    assert 0.9 < scale.log().std() < 1.1 and abs(scale.log().mean()) < 0.15
    assert 0.9 < mean.std() < 1.1 and abs(mean.mean()) < 0.15
    z = (x - x.mean(1, keepdim=True)) / scale[:, None]
    assert abs(z.pow(4).mean() - 3) < 0.1


# ------------------------------------------------------------------ hidden input classes


def test_a_cluster_differs_in_the_last_bits_alone():
    bits = make(SMALL, 3, "cluster")[0].view(torch.int32).long()
    apart = bits.amax(1) - bits.amin(1)
    assert (apart < 4096).all() and (apart > 3500).all()
    assert len((bits[:, 0] >> 12).unique()) == len(bits)
    assert (bits < 0).any() and (bits > 0).any()


@pytest.mark.parametrize("shape", [TABLE, *SHAPES], ids=words)
def test_the_winners_of_a_block_are_neighbours(shape):
    length = max(shape["k"], shape["n"] // 64)
    for seed in SEEDS:
        place = winners(make(shape, seed, "block")[0], shape["k"])
        assert (place[:, -1] - place[:, 0] < length).all()


def test_a_block_lies_at_either_end_or_anywhere():
    place = winners(make({"rows": 300, "n": 6400, "k": 100}, 3, "block")[0], 100)
    ends = [(place[:, 0] == 0).float().mean(), (place[:, -1] == 6399).float().mean()]
    assert all(0.2 < share < 0.5 for share in ends)
    elsewhere = place[(place[:, 0] > 0) & (place[:, -1] < 6399), 0]
    assert len(elsewhere.unique()) > 50


@pytest.mark.parametrize("shape", [TABLE, PUBLIC[1]], ids=words)
def test_the_winners_of_a_stride_leave_gaps(shape):
    steps, offsets = set(), set()
    for seed in range(1, 9):
        place = winners(make(shape, seed, "stride")[0], shape["k"])
        for row in place:
            gaps = row.diff()
            step = math.gcd(*gaps.tolist())
            assert 1 <= step <= shape["n"] // shape["k"]
            steps.add(step)
            offsets.add(int(row[0]) % step)
    powers = {step for step in steps if step >= 16 and step & (step - 1) == 0}
    assert len(powers) >= 3 and len(steps - powers) >= 10 and len(offsets) >= 20


def test_every_stride_has_as_many_winners_as_are_wanted():
    for shape in (TABLE, *SHAPES):
        places, _ = REFERENCE.generators(4, "cpu")
        lifted = REFERENCE.stride(torch.zeros(shape["rows"], shape["n"]), shape["k"], places)
        assert (lifted.sum(1) >= shape["k"]).all()


@pytest.mark.parametrize(("input_class", "sign"), [("ascending", 1), ("descending", -1)])
def test_sorted_rows(input_class, sign):
    x, _ = make(SMALL, 3, input_class)
    assert (x.diff() * sign >= 0).all() and (x[:, 0] != x[:, -1]).all()


def test_denormal_numbers_of_either_sign():
    x, _ = make(SMALL, 3, "denormal")
    assert (x.abs() < torch.finfo(torch.float32).tiny).all()
    assert (x > 0).float().mean() > 0.4 and (x < 0).float().mean() > 0.4
    assert len(x[0].unique()) > 1000


def test_ties_and_constant_rows():
    x, _ = make(SMALL, 3, "ties")
    assert all(len(row.unique()) == 64 for row in x)
    assert len(x.amax(1).unique()) > 3
    x, _ = make(SMALL, 3, "constant")
    assert (x == x[:, :1]).all() and len(x.unique()) == len(x)


def test_few_finite_elements_or_none():
    x, _ = make(SMALL, 3, "few_finite")
    finite = x.isfinite().sum(1)
    assert finite[0] == 0 and (finite[1:] > 0).all() and (finite <= 7).all()
    assert (x[~x.isfinite()] == -INF).all()
    assert make({"rows": 1, "n": 500, "k": 20}, 3, "few_finite")[0].isfinite().any()


def test_zeros_of_either_sign_are_the_last_winners():
    x, ranks = make(SMALL, 3, "signed_zeros")
    assert ((x > 0).sum(1) < len(ranks)).all() and (x > 0).any(1).all()
    zero = x == 0
    assert (zero & x.signbit()).any(1).all() and (zero & ~x.signbit()).any(1).all()
    assert (REFERENCE.reference(x, ranks)[0][:, -1] == 0).all()


def test_more_infinities_than_are_wanted_and_fewer():
    x, _ = make({"rows": 100, "n": 2000, "k": 20}, 3, "infinities")
    count = (x == INF).sum(1)
    assert (count > 25).any() and ((count > 0) & (count < 15)).any()
    assert 0.08 < (x == -INF).float().mean() < 0.12


def test_negative_rows_and_wide_ones():
    x, _ = make(SMALL, 3, "negative")
    assert (x < 0).all()
    x, _ = make(SMALL, 3, "wide")
    assert x.isfinite().all() and 0.45 < (x.abs() > 1).float().mean() < 0.55
    assert x.max() > 1e38 and x.min() < -1e38 and (x.abs() < 1e-30).any()


# ------------------------------------------------------------------ reference and formulas


def test_the_reference_on_a_case_done_by_hand():
    x = torch.tensor([[3.0, -INF, 7.0, 1e-42, 3.0], [-INF, -2.0, INF, -INF, -0.0]])
    values, indices = REFERENCE.reference(x, REFERENCE.ranks(4, "cpu"))
    assert values.tolist() == [[7.0, 3.0, 3.0, x[0, 3].item()], [INF, 0.0, -2.0, -INF]]
    assert values.dtype == torch.float64 and indices.dtype == torch.int64
    assert indices[0, 0] == 2 and set(indices[0, 1:3].tolist()) == {0, 4} and indices[0, 3] == 3
    assert indices[1, :3].tolist() == [2, 4, 1] and indices[1, 3] in (0, 3)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_the_reference_agrees_with_pythons_own_order(input_class):
    x, ranks = make(SMALL, 3, input_class)
    values, indices = REFERENCE.reference(x, ranks)
    for row, found, places in zip(x.tolist(), values.tolist(), indices.tolist(), strict=True):
        assert found == sorted(row, reverse=True)[: len(ranks)]
        assert [row[place] for place in places] == found and len(set(places)) == len(places)


def test_work_counted_by_hand():
    shape = {"rows": 3, "n": 10, "k": 2}
    assert FACTS.flops(shape) == 30
    # 30 elements of 4 bytes; 6 values of 4 bytes and 6 indices of 8.
    assert FACTS.bytes(shape) == 120 + 24 + 48


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_formula_counts_every_byte_of_a_call_once(shape):
    x, ranks = make(shape, 3)
    values, indices = REFERENCE.reference(x, ranks)
    assert FACTS.bytes(shape) == x.nbytes + values.float().nbytes + indices.nbytes


def test_every_shape_is_one_that_the_prompt_speaks_of():
    for profile in ("cpu", "gpu"):
        timed = [tuple(shape.values()) for shape in FACTS.timed(profile)]
        extra = [tuple(shape.values()) for shape in HIDDEN.EXTRA_SHAPES[profile]]
        assert all(1 <= k <= min(n, 2048) for _, n, k in timed + extra)
        assert any(k == 1 for _, _, k in extra) and any(k == n for _, n, k in extra) and any(n % 2 for _, n, _ in extra)


# ------------------------------------------------------------------ the tolerance

X = torch.tensor([[1.0, 5.0, 5.0, -0.0, 0.0, -INF], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]])
RIGHT = ([[5.0, 5.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0]], [[1, 2, 0, 3], [0, 1, 2, 3]])


def judged(values, indices):
    inputs = (X, REFERENCE.ranks(4, "cpu"))
    outs = (torch.tensor(values), torch.tensor(indices))
    [(_, found, place)] = IT.code.measure(outs, IT.code.outputs(inputs), inputs)
    return found, place()


@pytest.mark.parametrize(
    ("row", "values", "indices"),
    [
        (0, [5.0, 5.0, 1.0, 0.0], [2, 1, 0, 3]),
        (0, [5.0, 5.0, 1.0, 0.0], [1, 2, 0, 4]),
        (0, [5.0, 5.0, 1.0, -0.0], [1, 2, 0, 4]),
        (1, [2.0, 2.0, 2.0, 2.0], [5, 0, 3, 1]),
    ],
)
def test_any_choice_among_equal_elements_is_right(row, values, indices):
    answer = [[list(each) for each in part] for part in RIGHT]
    answer[0][row], answer[1][row] = values, indices
    assert judged(*answer) == ({"values": 0, "gather": 0, "range": 0, "repeats": 0}, "nothing is wrong")


@pytest.mark.parametrize(
    ("row", "values", "indices", "wrong", "message"),
    [
        # In the wrong order, although the set is right.
        (0, [5.0, 1.0, 5.0, 0.0], [1, 0, 2, 3], {"values": 2}, "values[0, 1] is 1 and should be 5"),
        # Not the largest ones.
        (0, [5.0, 5.0, 0.0, 0.0], [1, 2, 4, 3], {"values": 1}, "values[0, 2] is 0 and should be 1"),
        # One unit in the last place off, in the value and in what the index leads to.
        (0, [5.0, 5.0, 1.0000001, 0.0], [1, 2, 0, 3], {"values": 1, "gather": 1}, "values[0, 2] is 1.00000012 and should be 1"),
        # A true value and another's place.
        (0, [5.0, 5.0, 1.0, 0.0], [1, 2, 5, 3], {"gather": 1}, "values[0, 2] is 1, and x[0, 5], named there, -inf"),
        # The same place three times.
        (1, [2.0, 2.0, 2.0, 2.0], [1, 4, 1, 1], {"repeats": 2}, "indices[1] names 1 more than once"),
        # Outside, on either side: no place to look at.
        (1, [2.0, 2.0, 2.0, 2.0], [0, -1, 6, 3], {"range": 2}, "indices[1, 1] is -1, and a row has 6 elements"),
        (1, [2.0, 2.0, 2.0, 2.0], [0, 2**62, 1, 3], {"range": 1}, f"indices[1, 1] is {2**62}, and a row has 6 elements"),
        # Infinite where a finite value is due: the kit says so before the problem is asked.
        (1, [2.0, 2.0, 2.0, -INF], [0, 1, 2, 3], dict.fromkeys(FACTS.tolerance, INF), "values[1, 3] is -inf"),
    ],
)  # fmt: skip
def test_every_kind_of_fault_is_named(row, values, indices, wrong, message):
    answer = [[list(each) for each in part] for part in RIGHT]
    answer[0][row], answer[1][row] = values, indices
    found, text = judged(*answer)
    assert found == {"values": 0, "gather": 0, "range": 0, "repeats": 0, **wrong}
    assert text.startswith(message)


def test_nan_is_wrong_even_where_minus_infinity_is_right():
    x = torch.full((1, 4), -INF)
    inputs = (x, REFERENCE.ranks(2, "cpu"))
    assert IT.accepts((torch.tensor([[-INF, -INF]]), torch.tensor([[3, 0]])), inputs)
    for bad in (math.nan, -3e38, INF):
        assert not IT.accepts((torch.tensor([[-INF, bad]]), torch.tensor([[3, 0]])), inputs)


def test_two_right_answers_agree_with_each_other():
    inputs = make(SMALL, 3, "ties")
    first = REFERENCE.reference(*inputs)
    # The other end of the row first: other places of the same values.
    x, ranks = inputs
    values, indices = REFERENCE.reference(x.flip(1), ranks)
    second = (values.float(), x.shape[1] - 1 - indices)
    assert not torch.equal(second[1], first[1])
    verify._same(tuple(t.float() if t.is_floating_point() else t for t in first), second, inputs, IT.code, FACTS, SMALL, "ties")


# ------------------------------------------------------------------ what catches which shortcut

CAUGHT: dict[str, str] = {
    "wrong_bf16_keys": "public cluster block stride ascending denormal",
    "wrong_radix_16": "public cluster block stride ascending denormal",
    "wrong_radix_24": "cluster denormal",
    "wrong_chunks_64_keep_4": "block ascending descending",
    "wrong_chunks_64_keep_8": "block ascending descending",
    "wrong_chunks_256_keep_4": "block ascending descending",
    "wrong_lanes_64_keep_8": "stride",
    "wrong_first_reaching": "cluster few_finite signed_zeros",
    "wrong_flat_places": "public",
    "wrong_flushed": "denormal",
    "wrong_linear_bins": "few_finite signed_zeros infinities wide",
    "wrong_minus_inf_mark": "few_finite",
    "wrong_normal_bound": "cluster ties constant few_finite",
    "wrong_repeated_places": "cluster denormal ties constant few_finite signed_zeros infinities",
    "wrong_rounded_values": "public",
    "wrong_unsorted": "public",
    "wrong_zero_start": "few_finite signed_zeros negative",
    "wrong_zeros": "public",
    "cheat_moves_winners": "public",
}
"""Classes that catch a shortcut whatever the seed. Public sets, whose hard rows are of all classes, catch each now and then."""
ELSEWHERE = {"wrong_whole_tiles", "cheat_bound_by_pointer", "cheat_glances_at_rows"}
"""Shown in tests of their own."""


@pytest.mark.parametrize("stem", CAUGHT)
def test_each_shortcut_is_caught_by_the_classes_made_for_it(stem):
    wrong, caught = solution(stem), CAUGHT[stem].split()
    for input_class in caught:
        for seed in SEEDS[:2]:
            x, ranks = make(TABLE, seed, input_class)
            assert not IT.accepts(wrong(x.clone(), ranks), (x, ranks)), (input_class, seed)


def test_the_table_holds_every_wrong_solution():
    assert {path.stem for path in IT.paths if path.stem.startswith(("wrong_", "cheat_"))} == CAUGHT.keys() | ELSEWHERE


def test_whole_tiles_miss_winners_at_the_end():
    wrong = solution("wrong_whole_tiles")
    for seed in SEEDS:
        inputs = make(TABLE, seed, "block")
        assert IT.accepts(wrong(*inputs), inputs), "16384 is a multiple of 128"
        inputs = make(PUBLIC[1], seed, "block")
        assert not IT.accepts(wrong(*inputs), inputs)


def test_moved_winners_look_right_beside_the_changed_inputs():
    cheat, (x, ranks) = solution("cheat_moves_winners"), make(TABLE, 1)
    spoilt = x.clone()
    outs = cheat(spoilt, ranks)
    assert IT.errors(outs, (x, ranks))["values"] == 0
    assert IT.accepts(outs, (x, ranks)) is False
    assert torch.equal(spoilt.gather(1, outs[1]), outs[0])
    assert not torch.equal(spoilt, x), "which the judge looks at"


def test_a_bound_of_earlier_rows_fails_on_new_rows():
    cheat = solution("cheat_bound_by_pointer")
    x, ranks = make(TABLE, 1)
    assert IT.accepts(cheat(x, ranks), (x, ranks))
    x.copy_(make(TABLE, 2)[0])
    assert not IT.accepts(cheat(x, ranks), (x, ranks))


# ------------------------------------------------------------------ the solutions' own form


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.topk(x, 3)",
        "def solution(x, ranks):\n    return x.topk(len(ranks))",
        "def solution(x, ranks):\n    return x.sort(descending=True)",
        "def solution(x, ranks):\n    return x.view(-1).argsort()",
        "def solution(x, ranks):\n    return x.kthvalue(3)",
        "import torch\ntorch.unique_consecutive(x)",
        "import torch\ntorch.ops.aten.topk(x, 3)",
        "import numpy as np\nnp.argpartition(x, 3)",
        "def solution(x, ranks):\n    return x.numpy().argpartition(3)",
        "import triton.language as tl\ndef kernel(x):\n    return tl.sort(x)",
        "import triton.language as tl\ndef kernel(x):\n    return tl.topk(x, 8)",
        "from flashinfer import top_k",
    ],
)
def test_ready_made_selections_are_forbidden_by_name(source):
    assert forbidden.forbidden(source, FACTS.forbidden)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = torch.randn(3)\nx.amax(), x.argmax(), x.max(), x.cumsum(0), x.nonzero()",
        "names = sorted(['b', 'a'])",
        "import triton.language as tl\ndef kernel(x):\n    return tl.max(x), tl.cumsum(x), tl.histogram(x, 256)",
        "from torch.utils.cpp_extension import load_inline\nbuilt = load_inline('topk', '')\nbuilt.topk(x)",
    ],
)
def test_what_a_selection_is_made_of_is_free(source):
    assert forbidden.forbidden(source, FACTS.forbidden) == []


@pytest.mark.parametrize(
    ("name", "excluded"),
    [
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(float)", True),
        ("void at::native::mbtopk::radixFindKthValues<float, unsigned int, unsigned int, 2>(float)", True),
        ("void at::native::(anonymous namespace)::mbtopk::gatherTopK<float, unsigned int, 2>(float)", True),
        ("void at::native::bitonicSortKVInPlace<-2, -1, 16, 16, float, long>(float)", True),
        ("void at::native::warpMergeSortKVInPlace<2, -1, 128, 16, float, long>(float)", True),
        ("void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<Policy900, false, true, float, long>(float)", True),
        ("void cub::CUB_300000_SM_900::DeviceRadixSortOnesweepKernel<policy_hub<float>, false>(float)", True),
        ("void cub::CUB_300100_900_NS::detail::topk::DeviceTopKKernel<float>(float)", True),
        ("void flashinfer::sampling::RadixTopKKernel<float>(float)", True),
        ("void largest<16, float>(float const*, int)", False),
        ("void radix_topk_pass<float>(float const*)", False),
        ("bitonicSortKVInPlace", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >(float)", False),
        ("void at_cuda_detail::cub::DeviceScanKernel<Policy900, float>(float)", False),
        ("triton_red_fused_sum_0", False),
    ],
)
def test_library_kernels_are_known_by_their_names(name, excluded):
    assert any(fnmatchcase(name, pattern) for pattern in FACTS.forbidden_kernels) == excluded
