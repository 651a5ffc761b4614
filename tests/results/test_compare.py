"""`arena compare`: what two rows may be said to differ in, and what not."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from command import Arena, copy
from records import record, trial

from arena.errors import UsageError
from arena.results import annotations, compare, gains, leaderboard
from arena.schema import Annotation

PROBLEMS = ("fp8_gemm", "kahan_softmax", "kda_cutlass", "paged_attention", "sonic_moe_swiglu", "topk_bitonic", "w4a16_gemm")


def trials(model: str, outcomes: dict[str, list[str | float]], **cell: Any) -> list[Annotation]:
    """Annotations of a row: its outcomes by problem."""
    return [
        trial(outcome, number, model=model, problem=problem, **cell)
        for problem, found in outcomes.items()
        for number, outcome in enumerate(found)
    ]


def table(*rows: list[Annotation], **given):
    [found] = leaderboard.build([each for row in rows for each in row], **given).tables
    return found


NAIVE = trials("naive", {problem: [0.01] for problem in PROBLEMS})
GOOD = trials("good", {problem: [0.4, 0.42, 0.44] for problem in PROBLEMS})
POOR = trials("poor", {problem: [0.1, 0.11, "incorrect"] for problem in PROBLEMS})


def test_rows_far_apart_are_apart():
    both = table(NAIVE, GOOD, POOR)
    found = compare.compare(both, compare.find_row(both, "good"), compare.find_row(both, "builtin/poor"))
    assert (found.passed, found.counted, len(found.problems)) == ((21, 14), (21, 21), 7)
    gains = [math.log2(value) for value in (40, 42, 44)], [math.log2(10), math.log2(11), 0.0]
    assert found.gain is not None and found.given_pass is not None and found.gain.on_these is not None
    assert found.gain.value == pytest.approx(2 ** (sum(gains[0]) / 3 - sum(gains[1]) / 3), rel=1e-3)
    assert found.given_pass.value == pytest.approx(4.0, rel=0.02)
    assert found.gain.on_these.low > 1 and found.p == pytest.approx(1e-5) and found.needed is None
    assert found.pass_difference.low > 0


def test_more_trials_of_an_easy_problem_favour_nobody():
    """Both pass always at one problem and never at the other; pooled, the first would pass 5 of 6 and the second 2 of 4."""
    easy: dict[str, list[str | float]] = {"fp8_gemm": [0.5] * 5, "kda_cutlass": ["incorrect"]}
    both = table(NAIVE, trials("a", easy), trials("b", {"fp8_gemm": [0.5] * 2, "kda_cutlass": ["incorrect"] * 2}))
    found = compare.compare(both, compare.find_row(both, "a"), compare.find_row(both, "b"))
    assert found.pass_difference.low < 0 < found.pass_difference.high
    assert (found.passed, found.counted) == ((5, 2), (6, 4))
    hard = trials("c", {"fp8_gemm": [0.5] * 2, "kda_cutlass": [0.5, "incorrect"]})
    both = table(NAIVE, hard, trials("d", {"fp8_gemm": [0.5] * 2, "kda_cutlass": ["incorrect"] * 2}))
    more = compare.compare(both, compare.find_row(both, "c"), compare.find_row(both, "d"))
    assert more.pass_difference.low < 0.25 < more.pass_difference.high


def test_a_row_against_itself_is_not_apart():
    both = table(NAIVE, POOR)
    row = compare.find_row(both, "poor")
    found = compare.compare(both, row, row)
    assert (found.p, found.gain and found.gain.value, found.needed) == (1.0, 1.0, None)
    assert found.seen is not None and found.seen > 1
    assert found.pass_difference.low == -found.pass_difference.high


def test_the_order_of_the_records_changes_nothing():
    shuffled = [*NAIVE, *GOOD, *POOR]
    random.Random(1).shuffle(shuffled)
    one, other = table(NAIVE, GOOD, POOR), table(shuffled)
    found = [compare.compare(each, compare.find_row(each, "good"), compare.find_row(each, "poor")) for each in (one, other)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("outcomes", "gain"),
    [
        ({"fp8_gemm": [0.5]}, True),
        ({"fp8_gemm": ["incorrect"]}, True),
        ({"fp8_gemm": [0.5, 0.5, 0.5], "kda_cutlass": [0.5, 0.5, 0.5]}, True),
        ({"fp8_gemm": ["incorrect", "crashed"]}, True),
        ({"fp8_gemm": [0.001, 0.002]}, True),  # slower than naive: no gain, and no loss
        ({"topk_bitonic": [0.5, 0.4]}, False),  # without a naive kernel
    ],
)
def test_no_interval_is_invented(outcomes, gain):
    naive = [each for each in NAIVE if each.cell.problem != "topk_bitonic"]
    both = table(naive, trials("a", outcomes), trials("b", outcomes))
    found = compare.compare(both, compare.find_row(both, "a"), compare.find_row(both, "b"))
    assert (found.gain is not None) == gain == (found.p is not None)
    assert "NaN" not in found.model_dump_json() and "nan" not in found.model_dump_json()
    if found.gain:
        assert found.gain.value == 1.0 and found.gain.on_these is None and found.gain.on_others is None
        assert found.p == 1.0 and found.seen is None and found.needed is None


def test_the_baseline_eager_stands_in_for_naive():
    rows = trials("a", {"paged_attention": [0.5, 0.5]}), trials("b", {"paged_attention": [0.25, 0.25]})
    both = table(*rows, baselines=[record()])
    found = compare.compare(both, compare.find_row(both, "a"), compare.find_row(both, "b"))
    assert found.gain is not None and found.gain.value == 2.0  # eager reaches 0.25


def test_rows_that_cannot_be_compared_say_why():
    both = table(GOOD, trials("short", {"fp8_gemm": [0.5]}, budget_s=60), trials("other", {"new": [0.5]}))
    good = compare.find_row(both, "good")
    with pytest.raises(UsageError, match=r"cannot be compared: they differ in budget_s \(2700.0 and 60.0\)"):
        compare.compare(both, good, compare.find_row(both, "short"))
    with pytest.raises(UsageError, match="no counted trial at one problem in common on h200"):
        compare.compare(both, good, compare.find_row(both, "other"))
    with pytest.raises(UsageError, match="unknown problem 'fp8': did you mean 'fp8_gemm'"):
        compare.compare(both, good, good, ["fp8"])
    with pytest.raises(UsageError, match="unknown row 'goood': did you mean 'good'"):
        compare.find_row(both, "goood")


def test_rows_of_changed_files_are_refused():
    changed = [trial(0.5, 9, model="poor", problem="fp8_gemm", harness_digest="c" * 64)]
    both = table(GOOD, changed)
    with pytest.raises(UsageError, match=r"cannot be compared: harness builtin changed between them \(bbbbbbbb and cccccccc\)"):
        compare.compare(both, compare.find_row(both, "good"), compare.find_row(both, "poor"))
    both = table(trials("a", {"fp8_gemm": [0.5]}), trials("b", {"fp8_gemm": [0.5]}, problem_digest="d" * 64))
    with pytest.raises(UsageError, match="cannot be compared: fp8_gemm changed, to another version or digest, and they share no"):
        compare.compare(both, compare.find_row(both, "a"), compare.find_row(both, "b"))


def test_a_name_of_several_rows_is_refused():
    both = table(GOOD, trials("good", {"fp8_gemm": [0.5]}, budget_s=60))
    with pytest.raises(UsageError, match=r"2 rows are called 'good' on h200, apart in budget_s 2700.0, 60.0: add harness"):
        compare.find_row(both, "good")
    assert compare.find_row(both, "good", 60.0).budget_s == 60


@pytest.mark.parametrize("count", [3, 5, 10])
def test_both_intervals_cover_what_they_name(count):
    """2,000 data sets of 7 problems with the chances to pass and the gains that the design assumes, seeded."""
    draws = random.Random(count)
    chances = [0.5 + 0.45 * index / 6 for index in range(7)]
    means = [2 + 2.5 * index / 6 for index in range(7)]

    def cell(chance: float, mean: float) -> list[float]:
        return [max(0.0, draws.gauss(mean, 0.7)) if draws.random() < chance else 0.0 for _ in range(count)]

    def expected(chance: float, mean: float) -> float:
        known = random.Random(0)
        return chance * sum(max(0.0, known.gauss(mean, 0.7)) for _ in range(4000)) / 4000

    covered_these = covered_others = 0
    for _ in range(2000):
        shift = [draws.gauss(0.3, 0.5) for _ in means]  # another agent: better by 0.3, by its own amount at each problem
        left = [cell(*each) for each in zip(chances, [m + s for m, s in zip(means, shift, strict=True)], strict=True)]
        right = [cell(*each) for each in zip(chances, means, strict=True)]
        ratio = gains.between(left, right)
        # Means are far above 0, so that the cut at 0 hardly moves them: a gain is worth chance x mean.
        these = sum(c * s for c, s in zip(chances, shift, strict=True)) / 7
        others = sum(c * 0.3 for c in chances) / 7
        assert ratio.on_these is not None and ratio.on_others is not None
        covered_these += ratio.on_these.low <= 2**these <= ratio.on_these.high
        covered_others += ratio.on_others.low <= 2**others <= ratio.on_others.high
    assert 0.93 <= covered_these / 2000 <= 0.97
    assert 0.93 <= covered_others / 2000 <= 0.97


@pytest.mark.slow
def test_the_command_says_what_is_known(tmp_path: Path):
    arena: Arena = copy(tmp_path)
    for each in (*NAIVE, *GOOD, *POOR):
        annotations.write(arena.home / "annotations", each)
    done = arena("compare", "good", "poor")
    assert done.code == 0 and not done.err, done.err
    assert "builtin/good against builtin/poor on h200, 7 problems: fp8_gemm," in done.out
    assert "passed      21 of 21 against 14 of 21; by problem +" in done.out
    assert done.out.splitlines()[-1] == "Apart on these problems (p 1e-05)."
    alike = arena("compare", "poor", "poor").out
    assert "gain        ratio 1.00; on these problems 0." in alike and "Not apart on these problems (p 1). With 80 % so" in alike
    assert json.loads(arena("compare", "good", "poor", "-p", "fp8_gemm", "--json").out)["problems"] == ["fp8_gemm"]
    assert arena.refused("compare", "good", "nop").startswith("unknown row 'nop'")
    assert arena("leaderboard", "--stats", str(tmp_path / "stats.json")).code == 0
    [found] = json.loads((tmp_path / "stats.json").read_text())["tables"]
    assert len(found["rows"]) == 3 and len(found["pairs"]) == 1 and found["pairs"][0]["apart"]
    annotations.write(arena.home / "annotations", trial(0.5, model="elsewhere", hardware="cpu"))
    there = arena.refused("compare", "good", "elsewhere")
    assert there.startswith("good and elsewhere cannot be compared: good ran on h200 and elsewhere ran on cpu, and scores on")
    assert arena("compare", "good", "poor").out == done.out, "only one hardware has both"
    assert arena.refused("compare", "good", "poor", "--hardware", "b200").startswith("unknown hardware with runs 'b200'")


@pytest.mark.slow
def test_the_oracle_is_apart_from_naive_and_not_from_itself(tmp_path: Path):
    """As runs of the built-in models are stored: no two are equal."""
    arena: Arena = copy(tmp_path)
    draws = random.Random(1)
    for model, level in (("oracle", 0.6), ("naive", 0.02)):
        for each in trials(model, {problem: [level * draws.uniform(0.97, 1.03) for _ in range(3)] for problem in PROBLEMS}):
            annotations.write(arena.home / "annotations", each)
    assert (
        arena("compare", "builtin/oracle", "builtin/naive").out.splitlines()[-1].startswith("Apart on these problems (p 1e-05)")
    )
    assert "Not apart on these problems (p 1)." in arena("compare", "builtin/oracle", "builtin/oracle").out


@pytest.mark.slow
def test_sweeps_are_compared_by_their_own_runs(tmp_path: Path):
    arena: Arena = copy(tmp_path)
    for each in (*NAIVE, *GOOD, *POOR):
        annotations.write(arena.home / "annotations", each)
        model, number = each.cell.model, int(each.run_id[-4:], 16)
        if model == "naive":
            continue
        folder = arena.home / "workspaces" / each.run_id
        folder.mkdir(parents=True)
        place = {"name": "first" if number < 2 else "second", "trial": number + 1, "attempt": 1}
        manifest = {"schema_version": 1, "run_id": each.run_id, "cell": each.cell.model_dump(mode="json"), "sweep": place}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    found = arena.json("compare", "sweep:first/good", "sweep:second/good")
    assert (found["left"], found["right"]) == ("sweep:first/builtin/good", "sweep:second/builtin/good")
    assert (found["counted"], found["gain"]["value"]) == ([14, 7], pytest.approx(41 / 44, rel=1e-3))
    assert "cannot be compared: 14 runs are in both" in arena.refused("compare", "sweep:first/good", "good")
    assert "unknown sweep 'frist': did you mean 'first'" in arena.refused("compare", "sweep:frist/good", "good")
    assert "name a row too, as in sweep:first/MODEL" in arena.refused("compare", "sweep:first", "good")
