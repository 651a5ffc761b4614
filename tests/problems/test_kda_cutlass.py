"""The problem `kda_cutlass`: what its inputs hold, its reference, its tolerance, and where its solutions fail."""
# ruff: noqa: N806  the sizes and states keep the names that the problem gives them

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from shipped import SEEDS, Shipped, words  # noqa: E402

from arena.judge import forbidden  # noqa: E402

IT = Shipped("kda_cutlass")
FACTS, REFERENCE, HIDDEN = IT.facts, IT.reference, IT.hidden
PUBLIC, SHAPES, INPUT_CLASSES = IT.public, IT.shapes, IT.input_classes
make, solution = IT.make, IT.solution
(LONG,) = (shape for shape in SHAPES if shape["T"] > 2048)


@pytest.fixture(scope="module")
def drawn():
    """(shape, input_class, seed) -> the inputs and the reference's answer, made once."""
    made = {}

    def draw(shape, input_class, seed):
        key = (*shape.values(), input_class, seed)
        if key not in made:
            inputs = make(shape, seed, input_class)
            made[key] = inputs, IT.code.outputs(inputs)
        return made[key]

    return draw


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_the_facts_that_the_prompt_states_hold_in_every_class(shape, input_class):
    q, k, _, g, beta, _ = inputs = make(shape, 3, input_class)
    assert all(t.isfinite().all() for t in inputs)
    for unit in (q, k):
        # Rounding to bf16 moves an element by up to 2**-8 of itself, and so the length by less.
        assert ((unit.double().norm(dim=-1) - 1).abs() < 2**-8).all()
    assert (g <= 0).all()
    assert ((beta >= 0) & (beta <= 1)).all()


def test_public_inputs_exercise_the_operator(drawn):
    (_, _, v, _, beta, _), (o, S_T) = drawn(PUBLIC[0], "public", 1)
    norms = o.norm(dim=-1).mean((0, 1))  # of each head
    assert 0.1 < norms.min() < norms.max() < 1
    assert 0.2 < S_T.pow(2).mean().sqrt() < 0.5
    assert 0.9 < v.double().std() < 1.1
    assert beta.min() > 0


@pytest.mark.parametrize("shape", [*PUBLIC, LONG], ids=words)
def test_heads_of_every_kind_are_in_every_timed_set(shape):
    for seed in SEEDS:
        _, k, _, g, beta, S0 = make(shape, seed)
        rates = -g.double().median(1).values.mean(0) / 0.693  # (H, D); 0.693 is the median of softplus(N)
        remembers = rates.amax(1) < 1.2e-4
        forgets = rates.amax(1) > 1.2
        empty = (S0 != 0).sum((0, 2, 3)) <= len(S0)
        alike = torch.einsum("bthd,bshd->hts", k.double(), k.double()).mean((1, 2)) > 0.3 * len(k)
        assert remembers.any() and forgets.any() and (alike & ~remembers).any()
        assert (empty == forgets).all()
        assert beta[:, :, remembers].max() < 0.4
        assert beta[:, :, forgets].min() > 0.9
        assert not (remembers & forgets | forgets & alike).any()
        assert (remembers & alike).sum() == remembers.sum()


@pytest.mark.slow
def test_the_first_state_shapes_the_last_outputs():
    # What a segment would have to know: with another first state a head's last outputs differ by far more than the tolerance.
    *tokens, S0 = make(LONG, 1)
    o, _ = REFERENCE.reference(*tokens, S0)
    other, _ = REFERENCE.reference(*tokens, torch.randn(S0.shape, generator=torch.Generator().manual_seed(1)) * 0.5)
    last = o[:, -64:].transpose(1, 2).flatten(2), other[:, -64:].transpose(1, 2).flatten(2)
    moved = (last[1] - last[0]).norm(dim=-1) / last[0].norm(dim=-1)
    assert moved.max() > 0.5


# ------------------------------------------------------------------ hidden input classes


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_decay_is_as_strong_and_as_weak_as_the_prompt_says(shape):
    strong = make(shape, 3, "strong_decay")[3]
    assert strong.min() < -20
    assert strong[:, :64].sum(1).min() < -400
    weak = make(shape, 3, "weak_decay")[3]
    assert -0.02 * 6 < weak.min() < weak.max() < 0
    assert not make(shape, 3, "no_decay")[3].any()


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_other_classes_are_what_they_are_called(shape):
    k = make(shape, 3, "correlated_keys")[1][0, :, 0].double()
    alike = k @ k.T
    assert 0.4 < alike[~torch.eye(len(k), dtype=torch.bool)].mean() < 0.6
    assert make(shape, 3, "beta_near_zero")[4].max() < 0.1
    near_one = make(shape, 3, "beta_near_one")[4]
    assert near_one.min() > 0.9 and (near_one == 1).any()
    q, k, *_, S0 = make(shape, 3, "zero_state")
    assert not S0.any()
    assert ((q.double() * k.double()).sum(-1) > 0.4).all()


# ------------------------------------------------------------------ reference and formulas


def test_the_reference_on_a_case_done_by_hand():
    # D = 4, so outputs are halved. The first token halves channel 0 of the state, finds 4 there where 6 should be, and moves
    # it half way. The second reads channels 0 and 1 and writes to channel 1, which had 3 and after its decay 1.
    def rows(*numbers):
        return torch.tensor(numbers, dtype=torch.float64).view(1, len(numbers), 1, 4)

    half, third = math.log(1 / 2), math.log(1 / 3)
    S0 = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    S0[0, 0, 0, 0], S0[0, 0, 1, 0] = 8, 3
    o, S_T = REFERENCE.reference(
        rows((1, 0, 0, 0), (1, 1, 0, 0)),
        rows((1, 0, 0, 0), (0, 1, 0, 0)),
        rows((6, 2, 0, 0), (2, 0, 0, 4)),
        rows((half, 0, 0, 0), (0, third, 0, 0)),
        torch.tensor([0.5, 1.0], dtype=torch.float64).view(1, 2, 1),
        S0,
    )
    expected = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    expected[0, 0, 0, :2] = torch.tensor([5.0, 1.0])
    expected[0, 0, 1] = torch.tensor([2.0, 0.0, 0.0, 4.0])
    torch.testing.assert_close(S_T, expected, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(o, rows((2.5, 0.5, 0, 0), (3.5, 0.5, 0, 2)), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("input_class", ["public", "strong_decay"])
def test_the_reference_against_plain_loops_over_numbers(input_class):
    shape = {"B": 2, "T": 5, "H": 2, "D": 4}
    inputs = make(shape, 3, input_class)
    q, k, v, g, beta, S0 = (t.double().tolist() for t in inputs)
    o, S_T = REFERENCE.reference(*inputs)
    for b, h in itertools.product(range(2), range(2)):
        S = S0[b][h]
        for t in range(5):
            S = [[math.exp(g[b][t][h][i]) * x for x in S[i]] for i in range(4)]
            u = [v[b][t][h][j] - sum(k[b][t][h][i] * S[i][j] for i in range(4)) for j in range(4)]
            S = [[S[i][j] + beta[b][t][h] * k[b][t][h][i] * u[j] for j in range(4)] for i in range(4)]
            answer = [sum(q[b][t][h][i] * S[i][j] for i in range(4)) / 2 for j in range(4)]
            torch.testing.assert_close(o[b, t, h], torch.tensor(answer, dtype=torch.float64), rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(S_T[b, h], torch.tensor(S, dtype=torch.float64), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_blocks_of_tokens_agree_with_single_tokens(input_class):
    # Three whole blocks and a part of one, with a head of each kind.
    T = 3 * REFERENCE.BLOCK + 7
    *tokens, S = make({"B": 2, "T": T, "H": 4, "D": 64}, 3, input_class)
    tokens, S = [x.transpose(1, 2).double() for x in tokens], S.double()
    o, after = REFERENCE.several(S, *tokens)
    for t in range(T):
        answer, S = REFERENCE.one(S, *(x[:, :, t : t + 1] for x in tokens))
        torch.testing.assert_close(o[:, :, t : t + 1], answer, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(after, S, rtol=1e-11, atol=1e-13)


def test_long_sequences_agree_with_their_two_halves():
    # 2080 tokens go by blocks, 1040 one by one: the last state of the first half is where the second half starts.
    *tokens, S0 = make({"B": 1, "T": 2080, "H": 1, "D": 16}, 3)
    assert REFERENCE.LONG < 2080
    o, S_T = REFERENCE.reference(*tokens, S0)
    first, S = REFERENCE.reference(*(x[:, :1040] for x in tokens), S0)
    second, S = REFERENCE.reference(*(x[:, 1040:] for x in tokens), S)
    torch.testing.assert_close(o, torch.cat([first, second], dim=1), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(S_T, S, rtol=1e-10, atol=1e-13)


def test_work_counted_by_hand():
    shape = {"B": 2, "T": 3, "H": 4, "D": 8}
    # 24 tokens of a head. Each takes part in three products with an 8 x 8 matrix, 64 multiply-adds of 2 flops; and in five
    # of 64 x 64 x 8 per chunk, of which a triangle is half: 64 / 2 tokens, 8 multiply-adds each.
    assert FACTS.flops(shape) == 24 * (3 * 64 * 2 + 5 * 32 * 8 * 2)
    inputs = make(shape, 3)
    assert FACTS.bytes(shape) == sum(t.nbytes for t in inputs) + inputs[2].nbytes + inputs[5].nbytes


def test_hidden_shapes_have_one_token_and_part_of_a_chunk():
    for profile in ("cpu", "gpu"):
        hidden = HIDDEN.EXTRA_SHAPES[profile]
        assert any(shape["T"] == 1 for shape in hidden) and any(shape["T"] % 64 > 1 for shape in hidden)
    assert any(shape["T"] > REFERENCE.LONG for shape in HIDDEN.EXTRA_SHAPES["gpu"])


# ------------------------------------------------------------------ the tolerance


@pytest.mark.parametrize("shape", PUBLIC, ids=words)
def test_an_input_as_an_answer_is_rejected_at_any_scale(drawn, shape):
    inputs, (o, S_T) = drawn(shape, "public", SEEDS[0])
    v, S0 = inputs[2].double(), inputs[5].double()
    for ref, copy, outs in ((o, v, lambda x: (x.bfloat16(), S_T)), (S_T, S0, lambda x: (o, x.float()))):
        for answer in (copy, copy * (copy * ref).sum() / copy.pow(2).sum()):
            assert not IT.accepts(outs(answer), inputs, (o, S_T))


RIGHT_VALUES = {"wrong_state_in_place"}
LATE = {"wrong_warm_up_cpu", "wrong_bf16_state_cpu"}
"""Right on short sequences."""


@pytest.mark.parametrize("stem", [stem for stem in IT.wrong if stem not in RIGHT_VALUES])
def test_wrong_solutions_fail_where_they_should(drawn, stem):
    wrong = solution(stem)
    # The first shape is four whole chunks.
    shapes = [LONG] if stem in LATE else PUBLIC[1:] if stem == "wrong_whole_chunks" else PUBLIC
    input_class = "beta_near_zero" if stem == "wrong_bf16_state_cpu" else "public"
    for shape, seed in itertools.product(shapes, SEEDS):
        inputs, refs = drawn(shape, input_class, seed)
        assert not IT.accepts(wrong(*inputs), inputs, refs), (shape, seed)


def test_subtle_faults_show_only_in_their_input_class(drawn):
    for shape in PUBLIC:
        for stem, input_class in (("wrong_factored_decay", "correlated_keys"), ("wrong_second_order_inverse", "strong_decay")):
            inputs, refs = drawn(shape, input_class, 1)
            assert IT.accepts(solution(stem)(*inputs), inputs, refs), (stem, shape)


def test_the_state_in_place_is_right_but_changes_an_input():
    inputs = make(PUBLIC[1], 1)
    refs, kept = IT.code.outputs(inputs), inputs[5].clone()
    assert IT.accepts(solution("wrong_state_in_place")(*inputs), inputs, refs)
    assert not torch.equal(inputs[5], kept)


CHUNKS = solution("honest_chunks_cpu")
"""Every operand of a product in bf16, and the state in fp32: the arithmetic of oracle_gpu."""


@pytest.mark.slow
@pytest.mark.parametrize("input_class", INPUT_CLASSES)
def test_bf16_operands_take_half_of_the_tolerance(drawn, input_class):
    for shape, seed in [*itertools.product(PUBLIC, SEEDS), *((shape, SEEDS[0]) for shape in SHAPES if shape not in PUBLIC)]:
        inputs, refs = drawn(shape, input_class, seed)
        found = IT.errors(CHUNKS(*inputs), inputs, refs)
        assert IT.within(found, 0.5), (shape, seed, found)


@pytest.mark.slow
@pytest.mark.parametrize("input_class", ["public", "beta_near_zero"])
def test_bf16_operands_pass_on_long_sequences(input_class):
    # The worst of very many rows counts. With betas that spread by a factor of a hundred it reached 2.4e-2 of 2e-2.
    inputs = make({"B": 1, "T": 32768, "H": 4, "D": 128}, 0, input_class)
    found = IT.errors(CHUNKS(*inputs), inputs)
    assert IT.within(found, 0.6), found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_state_in_bf16_has_twice_the_tolerance(seed):
    inputs = make(LONG | {"T": 4096}, seed, "beta_near_zero")
    assert not IT.within(IT.errors(solution("wrong_bf16_state_cpu")(*inputs), inputs), 2)


# ------------------------------------------------------------------ the solutions' own form


@pytest.mark.parametrize(
    "line",
    [
        "from fla.ops.kda import chunk_kda",
        "import fla",
        "import torch\ntorch.linalg.solve_triangular(a, b, upper=False)",
        "def solution(q, k):\n    return q @ k",
    ],
)
def test_ready_made_kernels_are_forbidden_by_name(line):
    assert forbidden.forbidden(line, FACTS.forbidden)
