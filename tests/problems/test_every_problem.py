"""What holds for every problem: the contract on all shapes, the tolerance, honest solutions, and the form of all solutions."""

import math
import os
import shutil
import subprocess
import sys
import typing
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from shipped import KIT, SEEDS, Shipped, one_thread, verdict_of, words  # noqa: E402

from arena import catalog  # noqa: E402
from arena.authoring import contract  # noqa: E402
from arena.judge import forbidden, problem_code  # noqa: E402
from arena.schema import Verdict  # noqa: E402

NAMES = list(catalog.problems())
shipped = cache(Shipped)
SHAPES = [pytest.param(name, shape, id=f"{name}-{words(shape)}") for name in NAMES for shape in shipped(name).shapes]
CLASSES = [(name, input_class) for name in NAMES for input_class in shipped(name).input_classes]
SOLUTIONS = [pytest.param(name, path, id=f"{name}-{path.stem}") for name in NAMES for path in shipped(name).paths]
NEEDS_CC = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler `cc` on this machine")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="pytest runs without workers")
def test_torch_has_one_thread_in_a_pytest_worker():
    assert torch.get_num_threads() == 1


# ------------------------------------------------------------------ inputs


def remembering(**how):
    """The kinds of heads of kda_cutlass, those that remember all drawn like this."""
    heads = shipped("kda_cutlass").reference.PUBLIC
    return [each._replace(quiet=0.0, **how) if each.quiet else each for each in heads]


UNDISTURBED = {
    ("fp8_gemm", "cheat_glances_at_scales"): {"disturb": lambda rows, usual, values: None},
    ("kahan_softmax", "cheat_glances_at_rows"): {"disturb": lambda input_class, x, places: None},
    ("kda_cutlass", "cheat_glances_at_decays_cpu"): {"disturb": lambda *heads: None},
    ("kda_cutlass", "wrong_leaves_out_writes_cpu"): {"PUBLIC": remembering(lean=-7.0, common=0.0)},
    ("kda_cutlass", "wrong_no_inverse_cpu"): {"PUBLIC": remembering(lean=-4.6, common=0.0)},
    ("paged_attention", "cheat_glances_at_keys"): {"disturb": lambda kv, alike, block_table, seq_lens, values: None},
    ("topk_bitonic", "cheat_glances_at_rows"): {"disturb": lambda x, places: None},
    ("w4a16_gemm", "cheat_glances_at_codes"): {"disturb": lambda packed, size, codes: None},
}
"""Solutions that take for granted what an input does not tell, or leave out what hardly counts, and the inputs they passed on."""


@pytest.mark.parametrize(("name", "stem"), UNDISTURBED)
def test_a_glance_at_an_input_does_not_tell_the_rest(name, stem, monkeypatch):
    """It passed as long as all that looked regular was, and small numbers hardly counted."""
    problem, cheat = shipped(name), shipped(name).solution(stem)

    def rejected() -> int:
        sets = (problem.make(problem.public[0], seed) for seed in range(DRAWN))
        return sum(not problem.accepts(cheat(*inputs), inputs) for inputs in sets)

    assert rejected() >= 2
    for function, nothing in UNDISTURBED[name, stem].items():
        monkeypatch.setattr(problem.reference, function, nothing)
    assert rejected() == 0


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_the_contract_holds_on_every_shape(name, shape):
    problem = shipped(name)
    assert list(contract.shape_faults(problem.facts, problem.code, shape, "cpu")) == []


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_hidden_shapes_are_no_timed_ones(name, profile):
    problem = shipped(name)
    found = problem_code.load(problem.facts, profile)
    assert found.extra_shapes
    assert list(contract.hidden_shape_faults(problem.facts, profile, found)) == []


CONSTANT = {"topk_bitonic": {"ranks"}}
"""Inputs that are the same in every set."""


@pytest.mark.parametrize("seed", [2, 1 + 2**32, 1 + 2**62, 1 + 2**100])
@pytest.mark.parametrize("name", NAMES)
def test_another_seed_changes_every_tensor(name, seed):
    problem = shipped(name)
    for shape in problem.public:
        for declared, a, b in zip(problem.facts.inputs, problem.make(shape, 1), problem.make(shape, seed), strict=True):
            assert contract.same((a,), (b,)) == (declared.name in CONSTANT.get(name, ())), declared.name


EXPLAINED = {
    "sonic_moe_swiglu": lambda shape: {"E+1": shape["E"] + 1, "2I": 2 * shape["I"]},
    "w4a16_gemm": lambda shape: {"bytes": shape["K"] // 2, "groups": shape["K"] // shape["G"]},
}
"""Sizes that the note of an input explains."""


@pytest.mark.parametrize("name", EXPLAINED)
def test_sizes_are_what_the_notes_explain(name):
    problem = shipped(name)
    for shape in problem.shapes:
        sizes = shape | EXPLAINED[name](shape)
        for input_class in problem.input_classes:
            for declared, tensor in zip(problem.facts.inputs, problem.make(shape, 3, input_class), strict=True):
                assert list(tensor.shape) == [sizes[size] for size in declared.shape]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_input_class_lists_the_known_ones(name):
    problem = shipped(name)
    with pytest.raises(ValueError, match=f"known: {', '.join(problem.input_classes)}"):
        problem.make(problem.public[0], 0, "nonsense")
    with pytest.raises(ValueError, match=r"known: public\)"):
        problem.reference.make_inputs(problem.public[0], 0, problem.code.input_classes[0])


def rows_of(place):
    """One number for each row of an input, made by a function of its rows."""
    return lambda measure: lambda inputs: measure(inputs[place].double().flatten(0, -2))


def over_heads(measure):
    """One number for each head of kda_cutlass."""
    return lambda inputs: torch.stack(
        [measure(*(x[:, :, h] for x in inputs[:5]), inputs[5][:, h]) for h in range(inputs[0].shape[2])]
    )


def pairs_alike(q, kv, block_table, seq_lens):
    """Distance of a sequence's first two keys, for each sequence with two and each head."""
    pages = block_table[seq_lens > 1, 0].long()
    return (kv[pages, 0, 1] - kv[pages, 0, 0]).double().norm(dim=-1).flatten()


def order_of_tokens(x, tok, off, weights):
    """For each expert with two rows the share of steps upward."""
    parts = [tok[begin:end].diff() for begin, end in zip(off.tolist()[:-1], off.tolist()[1:], strict=True) if end - begin > 1]
    return torch.stack([(part > 0).double().mean() for part in parts])


def gates(x, tok, off, weights):
    """Root mean square of each expert's gate rows, zero where it has no rows."""
    return weights[:, : weights.shape[1] // 2].double().pow(2).mean((1, 2)).sqrt().nan_to_num()


X, WEIGHTS, SCALES, ZEROS = (rows_of(place) for place in range(4))
STATISTICS = {
    ("fp8_gemm", "largest"): X(lambda x: x.abs().mean(1)),
    ("fp8_gemm", "zero_rows"): X(lambda x: x.abs().amax(1)),
    ("fp8_gemm", "wide_scales"): SCALES(lambda s: s.log().abs().amax(1)),
    ("fp8_gemm", "subnormal"): X(lambda x: x.abs().amax(1)),
    ("fp8_gemm", "last_places"): X(lambda x: x[:, :-16].abs().amax(1)),
    ("kahan_softmax", "near_constant"): X(lambda x: x.std(1)),
    ("kahan_softmax", "descending"): X(lambda x: x[:, 0] - x[:, -1]),
    ("kahan_softmax", "ascending"): X(lambda x: x[:, -1] - x[:, 0]),
    ("kahan_softmax", "one_big"): X(lambda x: x.topk(2).values.diff().abs()[:, 0]),
    ("kahan_softmax", "sigma4"): X(lambda x: x.std(1).nan_to_num()),
    ("kahan_softmax", "large_logits"): X(lambda x: x.amax(1)),
    ("kahan_softmax", "minus_inf"): X(lambda x: (x == -math.inf).double().mean(1)),
    ("kahan_softmax", "all_equal"): X(lambda x: (x == x.amax(1, keepdim=True)).double().sum(1)),
    ("kahan_softmax", "max_duplicated"): X(lambda x: (x == x.amax(1, keepdim=True)).double().sum(1)),
    ("kda_cutlass", "strong_decay"): over_heads(lambda q, k, v, g, beta, state: g.double().amin()),
    ("kda_cutlass", "weak_decay"): over_heads(lambda q, k, v, g, beta, state: g.double().mean(1).amin()),
    ("kda_cutlass", "no_decay"): over_heads(lambda q, k, v, g, beta, state: g.double().mean(1).amax()),
    ("kda_cutlass", "correlated_keys"): over_heads(lambda q, k, v, g, beta, state: k.double().mean(1).norm()),
    ("kda_cutlass", "beta_near_zero"): over_heads(lambda q, k, v, g, beta, state: beta.double().log10().mean()),
    ("kda_cutlass", "beta_near_one"): over_heads(lambda q, k, v, g, beta, state: beta.double().amin()),
    ("kda_cutlass", "zero_state"): over_heads(lambda q, k, v, g, beta, state: state.double().norm()),
    ("paged_attention", "length_one"): lambda inputs: inputs[3].double(),
    ("paged_attention", "full_page"): lambda inputs: inputs[3].double(),
    ("paged_attention", "page_plus_one"): lambda inputs: inputs[3].double(),
    ("paged_attention", "large_scores"): X(lambda q: q.norm(dim=1)),
    ("paged_attention", "nan_unused"): lambda inputs: inputs[1].isfinite().double().mean()[None],
    ("paged_attention", "identical_keys"): lambda inputs: pairs_alike(*inputs),
    ("sonic_moe_swiglu", "any_order"): lambda inputs: order_of_tokens(*inputs),
    ("sonic_moe_swiglu", "nan_unused"): lambda inputs: inputs[3].isfinite().all(-1).double().mean(1),
    ("sonic_moe_swiglu", "large_gates"): lambda inputs: gates(*inputs),
    ("topk_bitonic", "cluster"): X(lambda x: (x.amax(1) - x.amin(1)) / x.abs().amax(1)),
    ("topk_bitonic", "block"): X(lambda x: x.topk(8).indices.double().std(1)),
    ("topk_bitonic", "stride"): X(lambda x: x.float().sort().values.diff().amax(1).double().div(x.std(1)).nan_to_num()),
    ("topk_bitonic", "ascending"): X(lambda x: (x.diff() > 0).double().mean(1)),
    ("topk_bitonic", "descending"): X(lambda x: (x.diff() < 0).double().mean(1)),
    ("topk_bitonic", "denormal"): X(lambda x: x.abs().amax(1)),
    ("topk_bitonic", "ties"): X(lambda x: torch.tensor([float(len(row.unique())) for row in x]).double()),
    ("topk_bitonic", "constant"): X(lambda x: (x == x[:, :1]).double().mean(1)),
    ("topk_bitonic", "few_finite"): X(lambda x: x.isfinite().double().mean(1)),
    ("topk_bitonic", "signed_zeros"): X(lambda x: (x == 0).double().mean(1)),
    ("topk_bitonic", "infinities"): X(lambda x: (x == math.inf).double().mean(1)),
    ("topk_bitonic", "negative"): X(lambda x: x.amax(1)),
    ("topk_bitonic", "wide"): X(lambda x: x.nan_to_num(posinf=0, neginf=0).abs().amax(1)),
    ("w4a16_gemm", "uniform_zeros"): ZEROS(lambda z: z.std(1)),
    ("w4a16_gemm", "extreme_zeros"): ZEROS(lambda z: z.std(1)),
    ("w4a16_gemm", "wide_scales"): SCALES(lambda s: s.amax(1) / s.mean(1).clamp_min(1e-30)),
    ("w4a16_gemm", "all_fifteen"): WEIGHTS(lambda packed: packed.mean(1)),
    ("w4a16_gemm", "zero_scales"): SCALES(lambda s: (s == 0).double().mean(1)),
    ("w4a16_gemm", "one_hot"): X(lambda x: (x.abs().amax(1) > 0.9 * x.norm(dim=1)).double()),
    ("w4a16_gemm", "scattered"): X(lambda x: (x.abs() > 5 * x.abs().mean(1, keepdim=True)).double().mean(1)),
}
"""What tells a stress class from ordinary inputs: a number of each row, head or expert, from the inputs."""
NOT_TIMED = {
    "paged_attention": {"one_long", "padding"},
    "sonic_moe_swiglu": {"one_set", "ends_only", "single_rows", "tile_edges"},
}
"""Classes that no timed set can hold. docs/problems.md says why."""
DRAWN = 24
"""Timed sets, fewer than a window has on a GPU. Of a class with few rows a set may have none."""


def test_every_stress_class_is_timed_or_excused():
    assert {(name, each) for name, each in CLASSES if each != "public"} == STATISTICS.keys() | {
        (name, each) for name, classes in NOT_TIMED.items() for each in classes
    }


@pytest.mark.parametrize(("name", "input_class"), STATISTICS)
def test_what_tells_a_stress_class_is_in_the_timed_sets(name, input_class):
    problem, measured = shipped(name), STATISTICS[name, input_class]
    shape = problem.public[0]
    timed = torch.cat([measured(problem.make(shape, seed)) for seed in range(DRAWN)])
    timed = timed[~timed.isnan()]
    for typical in (
        measured(problem.make(shape, 1, input_class)).quantile(torch.tensor([0.25, 0.75], dtype=torch.float64)).tolist()
    ):
        slack = 0.02 * abs(typical) + 1e-12
        assert timed.min() - slack <= typical <= timed.max() + slack, (float(timed.min()), typical, float(timed.max()))


# ------------------------------------------------------------------ the tolerance

KIT_MEASURED = [name for name in NAMES if "el" in shipped(name).facts.tolerance and name != "kahan_softmax"]
"""Whose errors are relative ones in three metrics. The others' tests alter answers in their own way."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KIT_MEASURED)
def test_the_tolerance_accepts_rounding_and_rejects_faults(name, seed):
    problem = shipped(name)
    for shape in problem.public:
        inputs = problem.make(shape, seed)
        refs = problem.code.outputs(inputs)
        dtypes = [getattr(torch, declared.dtype) for declared in problem.facts.outputs]
        rounded = [ref.to(dtype) for ref, dtype in zip(refs, dtypes, strict=True)]
        assert problem.accepts(tuple(rounded), inputs, refs)
        for place, ref in enumerate(refs):
            for how, answer in altered(ref).items():
                outs = (*rounded[:place], answer.to(dtypes[place]), *rounded[place + 1 :])
                assert not problem.accepts(outs, inputs, refs), (shape, place, how)
            zeros = (*refs[:place], torch.zeros_like(ref), *refs[place + 1 :])
            found = problem.errors(zeros, inputs, refs)
            assert (found["rel_fro"], found["row"]) == pytest.approx((1, 1), abs=1e-12)


def altered(ref):
    """An answer with one fault each."""
    first = (0,) * ref.dim()
    one, infinite, row = ref.clone(), ref.clone(), ref.clone()
    one[first] += 0.3 * ref[first[:-1]].abs().max()
    infinite[first] = math.inf
    row.view(-1, ref.shape[-1])[ref.numel() // ref.shape[-1] // 2] = 0
    faults = {"zeros": torch.zeros_like(ref), "constant": torch.full_like(ref, ref.mean())}
    faults |= {"row means": ref.mean(-1, keepdim=True).expand_as(ref), "one row missing": row}
    faults |= {"2 % too large": ref * 1.02, "one element wrong": one, "one element infinite": infinite}
    return faults | {f"moved along {dim}": ref.roll(1, dim) for dim in range(ref.dim()) if ref.shape[dim] > 1}


# A row may lose 2**-8 = 3.9e-3 to rounding its bf16 result alone, so it cannot lie as far within paged_attention's tolerance as
# the single element. Nor can a row's sum in kahan_softmax: rounding the exact answer to fp32 alone reaches 1.4 of 3.25.
ROOM = {"paged_attention": {"row": 1 / 2}, "kahan_softmax": {"mass": 1 / 2}}
"""Share of the tolerance that honest errors may take, where a third is too little. (topk_bitonic allows none at all.)"""
FURTHER_SHAPES = {"topk_bitonic": [{"rows": 8, "n": 16384, "k": 64}]}


@NEEDS_CC
@pytest.mark.parametrize(("name", "input_class"), CLASSES)
def test_honest_solutions_are_right_with_room_to_spare(name, input_class):
    problem, room = shipped(name), ROOM.get(name, {})
    for shape in problem.shapes + FURTHER_SHAPES.get(name, []):
        for seed in SEEDS if shape.get("T", 0) < 2048 else SEEDS[:1]:  # kda_cutlass: long sequences take seconds
            inputs = problem.make(shape, seed, input_class)
            refs = problem.code.outputs(inputs)
            for stem in ("oracle", "naive") if seed == SEEDS[0] else ("oracle",):
                found = problem.errors(problem.honest[stem](*inputs), inputs, refs)
                for metric, most in problem.facts.tolerance.items():
                    assert found[metric] <= most * room.get(metric, 1 / 3), (stem, shape, seed, found)


# ------------------------------------------------------------------ solutions


@NEEDS_CC
@pytest.mark.timing
@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_is_three_times_as_fast_as_naive(name):
    problem = shipped(name)
    pair = {stem: problem.written(stem) for stem in ("oracle", "naive")}
    with one_thread():
        for shape in problem.public[:3]:
            inputs = [problem.make(shape, seed) for seed in range(8)]
            outputs = [problem.buffers(shape) for _ in inputs]
            times = {stem: min(KIT.timed(each, inputs, outputs, "cpu") for _ in range(5)) for stem, each in pair.items()}
            assert times["naive"] > 3 * times["oracle"], shape


@pytest.mark.parametrize(("name", "path"), SOLUTIONS)
def test_a_solution_names_its_verdict_and_what_it_is(name, path):
    first, second = path.read_text().splitlines()[:2]
    assert first.startswith("# verdict: ")
    assert verdict_of(path) in typing.get_args(Verdict)
    assert second.startswith("# ") and second.endswith(".")
    assert (verdict_of(path) == "passed") == (path.stem.partition("_")[0] in ("oracle", "naive", "honest", "beyond", "upcast"))
    if path.stem.startswith("wrong_"):
        assert verdict_of(path) == ("forbidden" if path.stem in ("wrong_fp64", "wrong_library") else "incorrect")


@pytest.mark.parametrize(("name", "path"), SOLUTIONS)
def test_a_forbidden_name_is_used_only_for_that_verdict(name, path):
    names = forbidden.forbidden(path.read_text(), shipped(name).facts.forbidden)
    assert bool(names) == (verdict_of(path) == "forbidden"), names


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_a_compiler_the_oracle_says_so(name):
    command = [sys.executable, str(shipped(name).folder / "oracle.py")]
    done = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: this solution needs a C compiler, and there is no `cc` on the PATH"
