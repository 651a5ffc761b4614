"""The problem `kahan_softmax`: what its inputs hold, its reference, its tolerance, and where its solutions fail."""

import math
from statistics import median

import pytest

torch = pytest.importorskip("torch")

from shipped import Shipped, usual, words  # noqa: E402

from arena import paths  # noqa: E402
from arena.files.text import render  # noqa: E402
from arena.judge import forbidden  # noqa: E402

IT = Shipped("kahan_softmax")
FACTS, REFERENCE, HIDDEN = IT.facts, IT.reference, IT.hidden
PUBLIC, SHAPES, INPUT_CLASSES = IT.public, IT.shapes, IT.input_classes
make, solution = IT.make, IT.solution
SEEDS = (1, 2**62 + 5)
MINUS_INF = -math.inf
U = 2.0**-24


def drawn(shape, input_class, seed):
    """Inputs and the exact answer."""
    inputs = make(shape, seed, input_class)
    return inputs[0], REFERENCE.reference(*inputs)


def errors(*given):
    """The errors of y, p and x."""
    return REFERENCE.errors(*((tensor,) for tensor in given))


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", [PUBLIC[0], SHAPES[-1]], ids=words)
def test_every_row_has_a_finite_logit(shape, input_class):
    for seed in SEEDS:
        (x,) = make(shape, seed, input_class)
        assert not x.isnan().any() and x.amax(1).isfinite().all()
        if input_class == "public":
            continue
        assert (x == MINUS_INF).any() == (
            input_class == "minus_inf" or (input_class == "all_equal" and shape["V"] & (shape["V"] - 1) > 0)
        )


def test_public_rows_are_normal_with_one_of_two_spreads():
    classes = REFERENCE.hard(PUBLIC[0]["R"], REFERENCE.STRESS, REFERENCE.generators(3, "cpu")[0])
    x = make(PUBLIC[0], 3)[0].double()[usual(PUBLIC[0]["R"], classes)]
    assert len(x) == PUBLIC[0]["R"] * 7 // 8
    spread = x.std(1)
    wide = spread > 1.5
    assert 0.2 < wide.double().mean() < 0.8
    assert ((spread / torch.where(wide, 2, 1) - 1).abs() < 0.05).all()
    assert (x.mean(1).abs() < 0.1).all()


def test_every_shape_has_rows_enough():
    for profile in ("cpu", "gpu"):
        shapes = [*FACTS.shapes[profile], *HIDDEN.EXTRA_SHAPES[profile]]
        assert all(shape["R"] >= 32 for shape in shapes)
        assert len({tuple(shape.values()) for shape in shapes}) == len(shapes)


# ------------------------------------------------------------------ hidden input classes


def stress(input_class, shape=PUBLIC[1]):
    return make(shape, 3, input_class)[0].double()


def test_logits_that_hardly_differ():
    x = stress("near_constant")
    width = x.amax(1) - x.amin(1)
    assert width.min() > 0.0099 and width.max() < 0.01


def test_ramps():
    falling, rising = stress("descending"), stress("ascending")
    for x in (falling, rising.flip(1)):
        assert (x[:, 0].abs() < 0.1).all() and ((x[:, -1] + 16).abs() < 0.1).all()
        assert (x[:, ::1000].diff(dim=1) < 0).all()


def test_one_logit_somewhere_far_above_the_rest():
    x = stress("one_big")
    place = (x == 0).nonzero()
    assert place[:, 0].tolist() == list(range(len(x))) and len(set(place[:, 1].tolist())) > 20
    assert ((x + 17.3).abs() < 0.01).sum() == x.numel() - len(x)


def test_large_logits_of_either_sign():
    x = stress("large_logits")
    assert (x.amax(1)[::2] > 9e3).all() and (x.amin(1)[::2] < -9e3).all()
    assert (x.amax(1)[1::2] < -9e3).all()


def test_minus_inf_in_single_places_and_in_long_pieces():
    gone = stress("minus_inf") == MINUS_INF
    share = gone.double().mean(1)
    assert ((share[::2] - 0.1).abs() < 0.02).all() and ((share[1::2] - 0.775).abs() < 0.02).all()
    starts = {int((~row).roll(-1).long().argmax()) for row in gone[1::2]}
    assert len(starts) > 3, "the piece begins anywhere"


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_equal_logits_have_an_answer_that_fp32_holds(shape):
    x, p = drawn(shape, "all_equal", 3)
    n = 2 ** math.floor(math.log2(shape["V"]))
    assert ((x > MINUS_INF).sum(1) == n).all()
    assert torch.equal(p, torch.where(x > MINUS_INF, 1 / n, 0.0).double())


def test_other_counts_of_equal_logits_have_no_fp32_answer():
    # Why `all_equal` takes a power of two: 1 / 50257 is rounded in the same direction in every place.
    x = torch.zeros(1, 50257)
    p = REFERENCE.reference(x)
    assert errors(p.float(), p, x)["mass"] > FACTS.tolerance["mass"]


def test_the_largest_logit_is_there_several_times():
    x = stress("max_duplicated")
    assert set((x == x.amax(1, keepdim=True)).sum(1).tolist()) <= {2, 3, 4}


# ------------------------------------------------------------------ reference, tolerance and formulas


def test_the_reference_on_a_case_done_by_hand():
    x = torch.tensor([[math.log(1), math.log(2), math.log(5), MINUS_INF], [1e4, -1e4, 1e4, 1e4]], dtype=torch.float64)
    p = REFERENCE.reference(x)
    assert p[0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8, 0])
    assert p[1].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    assert p.dtype == torch.float64


def test_errors_counted_by_hand():
    u = 2.0**-24
    x = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -8.0, MINUS_INF, MINUS_INF]])
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.75, 0.25, 0.0, 0.0]], dtype=torch.float64)
    y = p.float()
    assert errors(y, p, x) == {"mass": 0, "el": 0}
    y[0, 1] += 16 * u
    assert REFERENCE.mass(y, p).tolist() == pytest.approx([16 / (0.01 + 0.5), 0])
    assert errors(y, p, x) == pytest.approx({"mass": 16 / 0.51, "el": 16 / 0.25}, rel=1e-6)
    # What one loses another gains: the sum is right, the elements are not.
    y[0, 2] -= 16 * u
    assert errors(y, p, x) == pytest.approx({"mass": 0, "el": 16 / 0.25}, rel=1e-6)
    y = p.float()
    y[1, 1] += 16 * u
    assert REFERENCE.el(y, p, x)[1].tolist() == pytest.approx([0, 16 / (0.25 * (1 + 0.375 * 8)), 0, 0], rel=1e-6)
    assert REFERENCE.mass(y, p)[1] == pytest.approx(16 / (0.01 + math.sqrt(0.625)))


def dividing_by(reciprocal, rows=32, size=16384):
    """Logits whose exponentials add up to 1 / reciprocal."""
    x = -torch.randn(rows, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).abs() - 3
    x += torch.log((1 / reciprocal - 1) / x[:, 1:].exp().sum(1, keepdim=True))
    x[:, 0] = 0
    return x.float()


@pytest.mark.parametrize("apart", [-0.4, -0.2, 0.2, 0.4])
@pytest.mark.parametrize("number", [1, 1.5, 4 / 3], ids=["1", "3/2", "4/3"])
def test_quotients_that_are_rounded_alike_are_no_fault(number, apart):
    """In one row, where they come by chance. A kernel with two such rows in an output sums in another way."""
    alike = dividing_by(number / 512 * (1 + apart * 2.0**-24))
    usual_rows = torch.randn(alike.shape, generator=torch.Generator().manual_seed(2))
    _, worst = REFERENCE.mass(quotients(alike), REFERENCE.reference(alike)).topk(2)
    for count in (1, 2):
        x = torch.cat([alike[worst[:count]], usual_rows])
        y, p = quotients(x), REFERENCE.reference(x)
        single = REFERENCE.mass(y, p)
        assert (single[:count] > FACTS.tolerance["mass"]).all() and (single[count:] < FACTS.tolerance["mass"] * 2 / 3).all()
        assert IT.within(errors(y, p, x)) == (count == 1)
        assert not IT.within(errors(y * (1 + 4e-7), p, x)), "and a sum that is off is found here, too"


def quotients(x):
    """Exponentials of fp32 as near as can be, divided by their sum. torch's own differ between processors."""
    numerators = torch.exp((x - x.amax(1, keepdim=True)).double()).float().double()
    return (numerators / numerators.sum(1, keepdim=True)).float()


def test_one_row_may_be_off_by_no_more_than_u():
    x, p = drawn({"R": 32, "V": 1000}, "sigma4", 1)
    y = p.float()
    for units, within in ((0.9, True), (1.1, False)):
        most = y.argmax(1)[3]
        off = y.clone().double()
        off[3, most] += units * U - (off[3].sum() - 1)
        assert float(errors(off, p, x)["mass"]) < FACTS.tolerance["mass"] or not within
        assert (REFERENCE.mass(off, p)[3] == errors(off, p, x)["mass"]) != within
    row, one = x[3:4], p[3:4]
    assert errors(off[3:4], one, row)["mass"] == REFERENCE.mass(off, p)[3], "a single row has none beside it"


def test_tiny_numbers_may_be_zero_unless_a_logit_is_minus_inf():
    x = torch.tensor([[0.0, -88.0, -200.0, MINUS_INF]])
    p = REFERENCE.reference(x)
    assert p[0, 1] < 1.2e-38
    for small in (0.0, 1.1e-38):
        assert errors(torch.tensor([[1.0, small, small, 0.0]]), p, x)["el"] == 0
    assert errors(torch.tensor([[1.0, 0.0, 3e-38, 0.0]]), p, x)["el"] > 1e30
    assert errors(torch.tensor([[1.0, 0.0, 0.0, 1e-45]]), p, x)["el"] > 1e200


def test_the_prompt_states_the_tolerance_that_is_measured():
    """2**-24 (0.0325 + 3.25 sqrt(sum p**2)), and 2**-24 p (8 + 3 |x - max|) + 1.2e-38."""
    x, p = drawn(SHAPES[-1], "sigma4", 1)
    y = p.float() + (torch.rand(p.shape, generator=torch.Generator().manual_seed(1)) - 0.5) * 2e-6 * p.float()
    allowed = 2**-24 * (0.0325 + 3.25 * p.pow(2).sum(1).sqrt())
    assert torch.equal(REFERENCE.mass(y, p) <= FACTS.tolerance["mass"], (y.double().sum(1) - 1).abs() <= allowed)
    depth = x.amax(1, keepdim=True).double() - x
    single = 2**-24 * p * (8 + 3 * depth) + 1.2e-38
    inside = REFERENCE.el(y, p, x) <= FACTS.tolerance["el"]
    assert torch.equal(inside, (y.double() - p).abs() <= single) and inside.any() and not inside.all()
    template = paths.problems() / "kit" / "prompt.md.j2"
    prompt = render(template, problem=FACTS, profile="cpu", shapes=PUBLIC, machine="a machine", budget=None)
    assert "for every row but one, |sum of y - 1| is at most 3.25 * u * (0.01 + sqrt(sum of p**2)), and for that one" in prompt
    assert "at most 8 * u * p * (1 + 0.375 * |x - max of the row|) + 1.2e-38" in prompt
    assert "no double precision" in prompt and "norm of e" not in prompt
    assert "def solution(x, y):\n    ...  # writes y, returns None\n" in prompt
    assert "and writes its results into these, which it is given as well, contiguous and on the same device:\n\n- `y`" in prompt
    assert "- Write every element of y in place at every call, whatever is there before, return None," in prompt
    assert "return y" not in prompt and "and returns" not in prompt and "Return plain" not in prompt
    assert "\n\n\n" not in prompt
    given = prompt + (IT.folder.parent / "reference.py").read_text()
    assert not [word for word in ("ceiling", "peak", "score", "evaluat", "budget", "fraction", "kahan") if word in given.lower()]


def test_work_counted_by_hand():
    shape = {"R": 3, "V": 5}
    # 15 elements: subtract, exponential, add, multiply; 4 bytes read and 4 written.
    assert (FACTS.flops(shape), FACTS.bytes(shape)) == (60, 120)
    assert FACTS.bytes(SHAPES[-1]) == 2 * make(SHAPES[-1], 1)[0].nbytes


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", [PUBLIC[1], SHAPES[-1]], ids=words)
def test_the_tolerance_accepts_rounding_and_rejects_faults(shape, input_class):
    x, p = drawn(shape, input_class, 1)
    assert IT.within(errors(p.float(), p, x))
    heavy = (torch.arange(len(p)), p.argmax(1))
    faults = {
        "zeros": torch.zeros_like(p),
        "columns permuted": p.roll(1, dims=1),
        "one element of each row wrong": p.index_put(heavy, p[heavy] * (1 + 1e-6)),
        "a thousandth of a thousandth too large": p * (1 + 1e-6),
    }
    for name, answer in faults.items():
        # Of equal logits, the order does not matter.
        if not (torch.equal(answer, p) or (input_class, name) == ("near_constant", "columns permuted")):
            assert not IT.within(errors(answer.float(), p, x)), name


# ------------------------------------------------------------------ the solutions


DROWNED = {"wrong_no_max": "large_logits", "wrong_empty_part": "minus_inf", "wrong_chains_of_8": "one_big"}
"""Right on public inputs, or nearly so; the class of inputs that tells them."""
WRONG = [stem for stem in IT.wrong if stem not in ("wrong_fp64", *DROWNED)]


@pytest.mark.parametrize("stem", WRONG)
def test_wrong_solutions_fail_on_public_inputs(stem):
    wrong = solution(stem)
    for shape in PUBLIC:
        for seed in SEEDS:
            x, p = drawn(shape, "public", seed)
            assert not IT.within(errors(*wrong(x), p, x)), (shape, seed)


SUMS = [stem for stem in WRONG if stem not in ("wrong_zeros", "wrong_small_dropped", "wrong_residual_on_max")]


@pytest.mark.parametrize("stem", SUMS)
def test_sums_in_fp32_fail_in_every_set(stem):
    """Twice the tolerance at least in every set of 32 rows or more; and about a third of single rows at most within it."""
    wrong, lucky, rows = solution(stem), 0, 0
    for shape in PUBLIC:
        for input_class in ("public", "near_constant", "descending"):
            x, p = drawn(shape, input_class, 1)
            off = REFERENCE.mass(*wrong(x), p)
            assert off.max() > 2 * FACTS.tolerance["mass"], (shape, input_class)
            lucky, rows = lucky + int((off <= FACTS.tolerance["mass"]).sum()), rows + len(off)
    assert lucky < 0.4 * rows


@pytest.mark.parametrize("stem", [stem for stem in SUMS if stem not in ("wrong_sequential", "wrong_library")])
def test_no_single_element_would_tell_them(stem):
    """Why the tolerance is on the mass: in most sets each element of those is as exact as an honest kernel's."""
    wrong = solution(stem)
    for shape in PUBLIC:
        sets = [drawn(shape, "public", seed) for seed in range(7)]
        assert median(errors(*wrong(x), p, x)["el"] for x, p in sets) < FACTS.tolerance["el"], shape


@pytest.mark.parametrize(("stem", "input_class"), DROWNED.items())
def test_subtle_faults_show_in_their_input_class(stem, input_class):
    wrong = solution(stem)
    for shape in PUBLIC:
        for seed in SEEDS:
            x, p = drawn(shape, input_class, seed)
            assert not IT.within(errors(*wrong(x), p, x)), (shape, seed)
    if stem != "wrong_chains_of_8":
        x, p = drawn(PUBLIC[0], "public", 1)
        assert IT.within(errors(*wrong(x), p, x))


def test_double_precision_is_exact_enough():
    x, p = drawn(PUBLIC[0], "public", 1)
    assert IT.within(errors(*solution("wrong_fp64")(x), p, x))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65, 79, 129])
def test_honest_solutions_take_rows_of_any_length(length):
    x = torch.randn(40, length, generator=torch.Generator().manual_seed(length))
    p = REFERENCE.reference(x)
    for stem, each in IT.honest.items():
        assert IT.within(errors(*each(x), p, x)), stem


# ------------------------------------------------------------------ the solutions' own form


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef solution(x):\n    return x.softmax(-1)",
        "import torch.nn.functional as F\ndef solution(x):\n    return F.softmax(x, dim=-1)",
        "import torch\ndef solution(x):\n    return (x - torch.logsumexp(x, -1, keepdim=True)).exp()",
        "from torch import nn\nlayer = nn.Softmax(-1)",
        "import torch\ndef solution(x):\n    return x.to(torch.float64)",
        "import torch\ndef solution(x):\n    return x.sum(-1, dtype=torch.double)",
        "def solution(x):\n    return x.double()",
        "import triton.language as tl\ndef kernel(e):\n    return tl.sum(e.to(tl.float64), 0)",
        "import numpy as np\ndef solution(x):\n    return x.numpy().astype(np.float64)",
        "from liger_kernel.ops.softmax import LigerSoftmaxFunction",
    ],
)
def test_softmaxes_and_double_precision_are_forbidden_by_name(source):
    assert forbidden.forbidden(source, FACTS.forbidden)
