"""The problem `paged_attention`: its inputs, its reference, its gate, and what its solutions get."""

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

PROBLEM = catalog.problem("paged_attention")
CODE = problem_code.load(PROBLEM, "cpu")
CHECK = problem_code.kit("check")
REFERENCE, HIDDEN = (sys.modules[f"arena_problem_paged_attention.{name}"] for name in ("reference", "hidden"))
KIT = problem_code.kit("benchmark")
SOLUTIONS = sorted((paths.problems() / "paged_attention" / "solutions").glob("*.py"))
PUBLIC = [dict(shape) for shape in PROBLEM.shapes["cpu"]]
SHAPES = PUBLIC + [dict(shape) for shape in CODE.extra_shapes]
INPUT_CLASSES = ("public", *CODE.input_classes)
SEEDS = (1, 2**40 + 3, 2**62 + 5)


def words(shape):
    return "-".join(f"{name}{size}" for name, size in shape.items())


def tight(errors):
    return all(errors[key] <= PROBLEM.tolerance[key] for key in errors)


def solution(stem):
    return KIT.load_solution(paths.problems() / "paged_attention" / "solutions" / f"{stem}.py")


def verdict_of(path):
    return path.read_text().partition("\n")[0].removeprefix("# verdict: ")


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
    for tensor, stated in zip(made[0], PROBLEM.inputs, strict=True):
        assert tensor.dtype == getattr(torch, stated.dtype)
        for size, name in zip(tensor.shape, stated.shape, strict=True):
            assert size == shape.get(name, size if isinstance(name, str) else name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_lengths_share_exactly_the_tokens_and_the_table_maps_them(shape, seed):
    _, kv, table, lengths = CODE.make_inputs(shape, seed, "public", "cpu")
    assert lengths.sum() == shape["B"] * shape["mean_len"]
    assert lengths.min() == (1 if shape["B"] > 1 else shape["mean_len"])
    pages = []
    for row, length in zip(table.tolist(), lengths.tolist(), strict=True):
        used = math.ceil(length / shape["page"])
        assert all(entry == -1 for entry in row[used:])
        pages += row[:used]
    assert len(set(pages)) == len(pages)
    assert min(pages) >= 0 and max(pages) < kv.shape[0]
    assert pages != sorted(pages)
    assert kv.isfinite().all()


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_longest_possible_sequence_fits_the_table(shape):
    table = CODE.make_inputs(shape, 0, "public", "cpu")[2]
    assert table.shape[1] == math.ceil((shape["B"] * shape["mean_len"] - shape["B"] + 1) / shape["page"])


def test_an_unknown_mode_names_the_known_ones():
    with pytest.raises(ValueError, match="nan_unused"):
        CODE.make_inputs(PUBLIC[0], 0, "nonsense", "cpu")
    with pytest.raises(ValueError, match="known: public"):
        REFERENCE.make_inputs(PUBLIC[0], 0, "nan_unused")


# ------------------------------------------------------------------ hidden modes


@pytest.mark.parametrize(
    "input_class, length",
    [("length_one", lambda page: 1), ("full_page", lambda page: page), ("page_plus_one", lambda page: page + 1)],
)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_equal_lengths(shape, input_class, length):
    assert set(CODE.make_inputs(shape, 3, input_class, "cpu")[3].tolist()) == {length(shape["page"])}


def test_one_long_is_longer_than_any_public_sequence_and_reaches_its_full_length_on_gpu_shapes():
    for shape in PUBLIC:
        lengths = CODE.make_inputs(shape, 3, "one_long", "cpu")[3]
        assert lengths.max() > 4 * shape["B"] * shape["mean_len"] - shape["page"]
        assert (lengths == 1).sum() == shape["B"] - 1
    assert all(4 * shape["B"] * shape["mean_len"] > HIDDEN.LONGEST for shape in PROBLEM.shapes["gpu"])


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_large_scores_are_of_the_size_that_the_prompt_names(shape):
    q, kv, table, lengths = CODE.make_inputs(shape, 3, "large_scores", "cpu")
    b = int(lengths.argmax())
    keys = kv[table[b, 0].long(), 0].double()
    products = q[b].double().view(shape["Hkv"], -1, shape["D"])[None] * keys[:, :, None]
    largest = products.sum(-1).abs().max() / math.sqrt(shape["D"])
    assert 500 < largest < 2000


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_nan_in_unused_slots_does_not_reach_the_reference(shape):
    q, kv, table, lengths = CODE.make_inputs(shape, 3, "nan_unused", "cpu")
    used = int(lengths.sum()) * 2 * shape["Hkv"] * shape["D"]
    assert int(kv.isfinite().sum()) == used < kv.numel()
    answer = REFERENCE.reference(q, kv, table, lengths)
    assert answer.isfinite().all()
    assert torch.equal(answer, REFERENCE.reference(q, kv.nan_to_num(7.0), table, lengths))


def test_padding_is_wide_and_a_wrapped_index_meets_nan():
    _, kv, table, _ = CODE.make_inputs(PUBLIC[0], 3, "padding", "cpu")
    assert (table[:, table.shape[1] // 4 :] == -1).all()
    assert kv[-1].isnan().all() and kv[:-1].isfinite().all()
    assert table.max() < kv.shape[0] - 1


def test_identical_keys_make_the_answer_the_mean_of_the_values():
    q, kv, table, lengths = CODE.make_inputs(PUBLIC[1], 3, "identical_keys", "cpu")
    b = int(lengths.argmax())
    values = torch.cat([kv[page, 1] for page in table[b].tolist() if page >= 0])[: lengths[b]].double()
    mean = values.mean(0).repeat_interleave(q.shape[1] // kv.shape[3], dim=0)
    torch.testing.assert_close(REFERENCE.reference(q, kv, table, lengths)[b], mean, rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------ reference and formulas


def test_the_reference_on_a_case_done_by_hand():
    # Three tokens over two pages of two slots, taken in the order 1, 0. With q = (sqrt(2) ln 2, 0) the scores are
    # ln 2, 0, 0, so the weights are 1/2, 1/4, 1/4; with q = 0 they are a third each.
    page_1 = torch.tensor([[[1.0, 0.0]], [[0.0, 5.0]]]), torch.tensor([[[4.0, 0.0]], [[0.0, 8.0]]])
    page_0 = torch.tensor([[[0.0, 3.0]], [[math.nan, math.nan]]]), torch.tensor([[[8.0, 8.0]], [[math.nan, math.nan]]])
    kv = torch.stack([torch.stack(page_0), torch.stack(page_1)]).double()
    q = torch.tensor([[[math.sqrt(2) * math.log(2), 0.0], [0.0, 0.0]]], dtype=torch.float64)
    out = REFERENCE.reference(q, kv, torch.tensor([[1, 0, -1]], dtype=torch.int32), torch.tensor([3], dtype=torch.int32))
    expected = torch.tensor([[[4.0, 4.0], [4.0, 16 / 3]]], dtype=torch.float64)
    torch.testing.assert_close(out, expected, rtol=1e-14, atol=0)


def test_work_counted_by_hand():
    shape = {"B": 2, "Hq": 4, "Hkv": 2, "D": 8, "mean_len": 3, "page": 2}
    # 6 tokens, 4 query heads: 8 multiply-adds for the score and 8 for the sum, 2 flops each.
    assert PROBLEM.flops(shape) == 6 * 4 * (8 + 8) * 2
    # 6 tokens of 2 heads, key and value, 8 bf16 each; 8 rows of q and 8 of out; 3 table entries; 2 lengths.
    assert PROBLEM.bytes(shape) == 6 * 2 * 2 * 8 * 2 + (8 + 8) * 8 * 2 + 3 * 4 + 2 * 4


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_the_formula_never_claims_more_bytes_than_a_call_must_move(shape):
    for seed in SEEDS:
        q, _, table, lengths = CODE.make_inputs(shape, seed, "public", "cpu")
        must = int(lengths.sum()) * shape["Hkv"] * shape["D"] * 4 + 2 * q.nbytes + int((table >= 0).sum()) * 4 + lengths.nbytes
        assert 0.99 * must < PROBLEM.bytes(shape) <= must


def test_every_shape_has_whole_groups_of_heads():
    for profile in ("cpu", "gpu"):
        for shape in (*PROBLEM.shapes[profile], *HIDDEN.EXTRA_SHAPES[profile]):
            assert shape["Hq"] % shape["Hkv"] == 0
    scored = [tuple(shape.values()) for profile in ("cpu", "gpu") for shape in PROBLEM.shapes[profile]]
    assert not {tuple(shape.values()) for shape in CODE.extra_shapes} & set(scored)


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
        "heads permuted": ref.roll(1, dims=1),
        "sequences permuted": ref.roll(1, dims=0),
        "2 % too large": ref * 1.02,
        "one element wrong": ref.clone().index_put_((torch.tensor([0]),) * 3, ref[0, 0, 0] + 0.1 * ref[0, 0].norm()),
    }
    for name, answer in refused.items():
        assert not tight(CHECK.errors(answer.bfloat16(), ref)), name


WRONG = [path.stem for path in SOLUTIONS if path.stem.startswith("wrong_")]
WRONG_ONLY_IN = {"wrong_nan_times_zero": {"nan_unused", "padding"}, "wrong_no_max": {"large_scores"}}


@pytest.mark.parametrize("stem", WRONG)
def test_wrong_solutions_fail_where_they_should(stem):
    wrong = solution(stem)
    only_in = WRONG_ONLY_IN.get(stem)
    for input_class in INPUT_CLASSES if only_in else ("public",):
        for shape in PUBLIC:
            for seed in SEEDS:
                inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
                passes = tight(CHECK.errors(wrong(*inputs), REFERENCE.reference(*inputs)))
                assert passes == (only_in is not None and input_class not in only_in), (input_class, shape, seed)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("stem", ["oracle", "naive"])
def test_honest_solutions_pass_every_mode_with_room(honest, stem, input_class):
    for shape in SHAPES:
        for seed in SEEDS:
            inputs = CODE.make_inputs(shape, seed, input_class, "cpu")
            errors = CHECK.errors(honest[stem](*inputs), REFERENCE.reference(*inputs))
            # A row may lose 2**-8 = 3.9e-3 to rounding its bf16 result alone, and rel_fro where all rows are alike up to
            # 2e-3 (measured), so these two cannot lie as far inside the gate as the single element.
            assert errors["el"] <= PROBLEM.tolerance["el"] / 3, (shape, seed, errors)
            assert errors["row"] <= PROBLEM.tolerance["row"] / 2, (shape, seed, errors)
            assert errors["rel_fro"] <= PROBLEM.tolerance["rel_fro"] * 2 / 3, (shape, seed, errors)


@pytest.mark.timing
def test_the_oracle_is_three_times_as_fast_as_naive(honest):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in PUBLIC:
            inputs = [CODE.make_inputs(shape, seed, "public", "cpu") for seed in range(20)]
            outputs = [(torch.empty_like(q),) for q, *_ in inputs]
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


def test_without_a_compiler_the_oracle_says_so():
    path = paths.problems() / "paged_attention" / "solutions" / "oracle.py"
    done = subprocess.run(
        [sys.executable, path], env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: this solution needs a C compiler, and there is no `cc` on the PATH"
