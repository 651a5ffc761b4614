"""Ranks, groups and gains of made boards: what they claim, what they leave open, and the same bytes from the same records."""

import json
import math
import random
import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from made_board import MADE, PROBLEMS, Agent, acceptance, annotation, rates, records
from records import record, trial

from arena.files import documents
from arena.results import gains, leaderboard
from arena.results.board import Board, Row, Table
from arena.results.ranks import adjusted, tail
from arena.results.render import figure, page, span
from arena.results.stats import stats
from arena.schema import Annotation, BaselineLine

IMPOSSIBLE = re.compile(r"\b(NaN|nan|Infinity|inf)\b")
STEADY = (0.4, 0.42, 0.44)


def agent(name: str, *outcomes: float | None, problems: tuple[str, ...] = PROBLEMS) -> list[Annotation]:
    """An agent with the same outcomes at each problem; None is a failure."""
    return [annotation(name, problem, number, each) for problem in problems for number, each in enumerate(outcomes)]


def naive(*problems: str) -> list[Annotation]:
    return [trial(0.01, model="naive", problem=problem) for problem in problems or PROBLEMS]


def table(*trials: list[Annotation], **more) -> Table:
    [found] = leaderboard.build([each for some_ in trials for each in some_], **more).tables
    return found


def row(found: Table, model: str) -> Row:
    [one] = [each for each in found.rows if each.model == model]
    return one


def test_a_far_better_row_stands_alone() -> None:
    found = table(naive(), agent("good", *STEADY), agent("poor", 0.05, 0.06, 0.055), agent("worse", 0.05, 0.058, 0.054))
    assert [each.model for each in found.rows] == ["good", "poor", "worse", "naive"]
    good, poor, worse, plain = found.rows
    assert good.rank and (good.rank.best, good.rank.worst, good.rank.of, good.rank.group) == (1, 1, 3, 1)
    assert poor.rank and worse.rank and poor.rank.group == worse.rank.group == 2
    assert (poor.rank.best, worse.rank.worst) == (2, 3)
    assert plain.rank is None, "built-in models are not ranked beside agents"
    assert plain.gain and plain.gain.value == 1.0
    assert good.gain and good.gain.value == pytest.approx((40 * 42 * 44) ** (1 / 3), rel=1e-3)
    assert good.gain.on_these and good.gain.on_these.low < good.gain.value < good.gain.on_these.high
    assert good.gain.on_others is None, "all problems are equal"


def test_built_in_models_alone_are_ranked() -> None:
    runs = [
        trial(level + 0.001 * number, number, model=model, problem=problem)
        for model, level in (("oracle", 0.5), ("naive", 0.1))
        for problem in PROBLEMS[:2]
        for number in range(3)
    ]
    ours = table(runs)
    assert [(each.model, each.rank and each.rank.group) for each in ours.rows] == [("oracle", 1), ("naive", 2)]


def test_rows_rank_only_beside_those_that_measure_the_same() -> None:
    def with_budget(trials: list[Annotation]) -> list[Annotation]:
        return [each.model_copy(update={"cell": each.cell.model_copy(update={"budget_s": 60.0})}) for each in trials]

    short = with_budget(agent("short", 0.9, 0.91, 0.92))
    found = table(naive(), agent("a", *STEADY), agent("b", 0.1, 0.2, None), short)
    assert row(found, "short").rank is None
    assert [row(found, name).rank.of for name in "ab"] == [2, 2]  # type: ignore[union-attr]


def test_a_row_without_a_problem_or_a_second_trial_has_no_rank() -> None:
    some_ = agent("some", 0.9, 0.91, 0.92, problems=PROBLEMS[:5])
    once = agent("once", 0.45)
    found = table(naive(), agent("a", *STEADY), agent("b", 0.1, 0.2, None), some_, once)
    assert [each.model for each in found.rows] == ["a", "b", "once", "some", "naive"]
    assert (row(found, "some").rank, row(found, "once").rank) == (None, None)
    assert (len(row(found, "some").over), row(found, "some").problems) == (5, 7)
    alone = row(found, "once").gain
    assert alone and alone.on_these is None and alone.on_others is None, "equal gains at all problems, one trial each"
    text = page(Board(trials=1, tables=(found,)))
    assert "| – | – | made · some | 45 min | ×91.0 over 5 of 7 |" in text
    assert "| – | – | made · once | 45 min | ×45 | – | – | 7/7 |" in text


def test_a_stray_trial_takes_no_rank() -> None:
    """One agent also tried a problem that the others did not: that is outside its ranked gain."""
    some_ = agent("a", *STEADY, problems=PROBLEMS[:6])
    stray = agent("b", 0.9, problems=PROBLEMS[6:])
    others = [agent(name, 0.1, 0.2, None, problems=PROBLEMS[:6]) for name in "bcd"]
    found = table(naive(), some_, stray, *others)
    assert [row(found, name).rank is not None for name in "abcd"] == [True] * 4
    assert (row(found, "b").over, row(found, "b").problems) == (row(found, "c").over, 6)
    assert row(found, "b").gain == row(found, "c").gain and len(row(found, "b").entries) == 7


def test_a_problem_counts_once_with_two_digests() -> None:
    """That of the later runs."""
    old = agent("a", *STEADY, problems=PROBLEMS[:1])
    new = [
        each.model_copy(
            update={
                "run_id": each.run_id + "0",
                "cell": each.cell.model_copy(update={"problem_digest": "0" * 64}),
                "session": each.session.model_copy(update={"started_at": each.session.started_at + timedelta(days=1)}),
            }
        )
        for name in "ab"
        for each in [trial(0.01, model="naive", problem=PROBLEMS[0]), *agent(name, 0.1, 0.2, None, problems=PROBLEMS[:1])]
    ]
    found = table(naive(PROBLEMS[0]), old, list({each.run_id: each for each in new}.values()))
    assert [column.superseded for column in found.columns] == [False, True], "the later one sorts first"
    one = row(found, "a")
    assert (one.over, one.problems, one.passed, one.counted) == ((found.columns[0].key,), 1, 2, 3)
    assert row(found, "b").gain == one.gain
    assert "(older)" in page(Board(trials=1, tables=(found,)))


def test_a_row_of_one_trial_leads_nothing() -> None:
    found = table(naive(), agent("a", *STEADY), agent("b", 0.1, 0.2, None), agent("once", 0.9))
    sealed = [each.model for each in found.rows]
    assert sealed == ["a", "b", "once", "naive"]


def test_a_problem_without_naive_is_left_out() -> None:
    found = table(naive(*PROBLEMS[:6]), agent("a", *STEADY), agent("b", 0.1, 0.2, None))
    assert (len(row(found, "a").over), row(found, "a").problems) == (6, 7)
    assert row(found, "a").rank is not None, "both lack it"
    none = table(agent("a", *STEADY), agent("b", 0.1, 0.2, None))
    assert [(each.gain, each.rank, each.over) for each in none.rows] == [(None, None, ())] * 2
    assert not none.seen


def test_the_naive_kernel_is_looked_up_in_order() -> None:
    line = BaselineLine(name="naive", title="t", verdict="passed", fraction=0.02, reference=True)
    eager, *_ = record().lines
    runs = [trial(0.01, model="naive")]
    ours = agent("a", 0.5, 0.6, problems=("paged_attention",))
    for trials, lines, wanted in (
        (runs, (line, eager), (0.01, "runs")),
        ([], (line, eager), (0.02, "naive")),
        ([], (eager,), (0.25, "eager")),
        ([], (line.model_copy(update={"reference": False}),), None),
        ([], (), None),
    ):
        known = table(trials, ours, baselines=[record(lines=lines)]).naive.get("paged_attention v1")
        assert (known and (known.fraction, known.source)) == wanted
    text = page(Board(trials=1, tables=(table(ours, baselines=[record(lines=(eager,))]),)))
    assert "paged_attention v1 0.25 (**eager**, a library: the problem's own naive kernel was not measured)." in text


@pytest.mark.parametrize(
    "outcomes",
    [(0.5,), (None,), (None, None, None), (0.5, 0.5, 0.5), (0.001, 0.002), (1.0, None), (0.01, 0.01)],
    ids=["one", "one failed", "none passed", "equal", "slower than naive", "one of two", "as naive"],
)
@pytest.mark.parametrize("problems", [1, 2, 7])
def test_no_interval_is_invented_for_a_row(outcomes: tuple[float | None, ...], problems: int) -> None:
    found = table(naive(), *(agent(name, *outcomes, problems=PROBLEMS[:problems]) for name in "ab"))
    for name in "ab":
        one = row(found, name)
        assert one.gain and one.gain.value >= 1
        differs = len({max(0.01, each or 0.01) for each in outcomes}) > 1
        assert (one.gain.on_these is not None) == differs
        assert one.gain.on_others is None, "all problems are equal"
        if one.rank:
            assert (one.rank.best, one.rank.worst, one.rank.group) == (1, 2, 1), "equal rows are not apart"
        assert (one.rank is None) == (len(outcomes) == 1)
    board = Board(trials=1, tables=(found,))
    for text in (documents.to_json(board), page(board), documents.to_json(stats(board))):
        assert not IMPOSSIBLE.search(text)


CELLS = some.lists(some.one_of(some.none(), some.floats(1e-6, 1.0)), max_size=4)
BOARDS = some.lists(some.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(BOARDS, some.floats(1e-6, 1.0))
def test_any_board_says_nothing_impossible(rows: list[list[list[float | None]]], level: float) -> None:
    trials = [trial(level, model="naive", problem=problem) for problem in PROBLEMS[:3]]
    for at, cells in enumerate(rows):
        for problem, cell in zip(PROBLEMS, cells, strict=False):
            trials += [annotation(f"agent-{at}", problem, number, each) for number, each in enumerate(cell)]
    board = leaderboard.build(trials)
    [found] = board.tables
    text = page(board)
    assert not IMPOSSIBLE.search(text) and not IMPOSSIBLE.search(documents.to_json(board))
    for one in found.rows:
        if one.gain:
            assert one.gain.value >= 1
            for interval in filter(None, (one.gain.on_these, one.gain.on_others)):
                assert 1 <= interval.low <= one.gain.value * 1.001 + 1e-4 and one.gain.value <= interval.high * 1.001 + 1e-4
        if one.rank:
            assert 1 <= one.rank.best <= one.rank.worst <= one.rank.of
    ranked = [one for one in found.rows if one.rank]
    assert [one.rank.group for one in ranked if one.rank] == sorted(one.rank.group for one in ranked if one.rank)


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    trials = records(1)
    leaderboard.write(tmp_path / "a", trials)
    random.Random(1).shuffle(trials)
    leaderboard.write(tmp_path / "b", trials)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["LEADERBOARD.md", "h200.gain.svg", "h200.svg", "leaderboard.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_stats_name_the_runs_behind_each_figure() -> None:
    trials = records(1)
    board = leaderboard.build(trials)
    [found], [known] = stats(board).tables, board.tables
    named = {each.run_id for one in found.rows for cell in one.cells for each in cell.trials}
    assert named == {each.run_id for each in trials}
    for one in found.rows:
        cells = [[each.gain for each in cell.trials] for cell in one.cells]
        assert gains.over_naive(cells).value == pytest.approx(one.gain.value, rel=1e-3)
        assert known.rows[one.place].gain == one.gain
    assert len(found.pairs) == 12 * 11 / 2
    for pair in found.pairs:
        better = {at: known.rows[at].rank for at in (pair.left, pair.right)}
        assert 0 <= pair.p <= pair.p_of_all <= 1 and 0 <= pair.wins <= 1
        if pair.apart:
            assert better[pair.left].best < better[pair.right].worst  # type: ignore[union-attr]
    assert json.loads(stats(board).model_dump_json())["schema_version"] == 1


def test_holm_adjusts_by_the_pairs_that_are_left() -> None:
    found = adjusted({(0, 1): 0.01, (0, 2): 0.04, (1, 2): 0.03})
    assert found == {(0, 1): pytest.approx(0.03), (1, 2): pytest.approx(0.06), (0, 2): pytest.approx(0.06)}


def test_the_variance_of_a_pair_is_that_of_its_permutations() -> None:
    """And its p is near the share of permutations at least as far apart, which `arena compare` draws."""
    draws = random.Random(7)
    ratios = []
    for _ in range(20):
        shift = draws.uniform(0, 0.6)
        cells = [[[draws.gauss(at, 0.7) for _ in range(3)] for _ in PROBLEMS] for at in (shift, 0.0)]
        found = gains.apart(*cells)
        far, squares, count = 0, 0.0, 2000
        for _ in range(count):
            value = 0.0
            for a, b in zip(*cells, strict=True):
                pool = draws.sample([*a, *b], 6)
                value += (sum(pool[:3]) - sum(pool[3:])) / 3 / len(PROBLEMS)
            squares += value**2
            far += abs(value) >= abs(found.value) - 1e-9
        assert found.variance == pytest.approx(squares / count, rel=0.2)
        ratios.append((2 * min(tail(found), 1 - tail(found)), (1 + far) / (1 + count)))
    assert all(abs(p - permuted) < 0.05 for p, permuted in ratios)
    assert any(p < 0.05 for p, _ in ratios) and any(p > 0.2 for p, _ in ratios)


@pytest.mark.parametrize("count", [3, 5, 10])
def test_a_row_s_intervals_cover_what_they_name(count: int) -> None:
    """2,000 data sets of seven problems: the same ones each time; and seven drawn anew, each with its chance and its speed."""
    draws, agent_, last = random.Random(count), Agent(), len(PROBLEMS) - 1
    chance, speed = 0.5 + 0.45 / 2, 2 + 2.5 / 2
    these = others = 0
    for _ in range(2000):
        found = gains.over_naive(agent_.draw(draws, count)).on_these
        these += found is not None and found.low <= 2 ** agent_.gain() <= found.high
        drawn = [
            Agent(passes=draws.uniform(0, 0.45) - 0.45 * at / last, speed=draws.uniform(0, 2.5) - 2.5 * at / last).draw_at(
                draws, at, count
            )
            for at in range(len(PROBLEMS))
        ]
        found = gains.over_naive(drawn).on_others
        others += found is not None and found.low <= 2 ** (chance * speed) <= found.high
    assert 0.93 <= these / 2000 <= 0.97 and 0.93 <= others / 2000 <= 0.97


def test_groups_keep_equal_agents_together() -> None:
    """The rates of `python -m tests.made_board --all`, on fewer boards; docs/statistics.md has its table."""
    found = rates(MADE, 60)
    assert found.twins_together >= 0.95 and found.best_alone >= 0.8 and found.false_rank <= 0.05
    equal = rates([Agent()] * 12, 60)
    assert equal.any_alone <= 0.05 and equal.false_rank <= 0.06


@pytest.mark.parametrize("spread", [0.2, 0.4, 0.7])
def test_a_problem_passed_by_luck_parts_no_equal_agents(spread: float) -> None:
    """Three that passed and three that failed are no sign of a problem without noise."""
    found = rates([Agent(spread=spread, coin=True)] * 12, 60)
    assert found.false_rank <= 0.06 and found.false_line <= 0.06


@pytest.mark.slow
def test_four_hundred_rendered_boards_keep_both_promises() -> None:
    together, alone = acceptance(400)
    assert together >= 0.95 and alone >= 0.8


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (6.13, (3.2, 17.4), "6 (3.2–17)"),
        (64.2, (20.0, 210.0), "60 (20–210)"),
        (8.0, (1.0, 90.0), "8 (1.0–90)"),
        (0.6137, (0.58, 0.64), "0.61 (0.58–0.64)"),
        (0.6137, (0.6131, 0.6142), "0.614 (0.61–0.61)"),
        (1.0, (1.0, 1.0), "1.0 (1.0–1.0)"),
        (60.0, (1.0, 54321.0), "60 (1.0–>1000)"),
    ],
)
def test_figures_show_what_their_interval_supports(value: float, interval: tuple[float, float], text: str) -> None:
    from arena.results.board import Interval

    given_ = Interval(low=interval[0], high=interval[1], level=0.95)
    assert f"{figure(value, given_)} ({span(given_)})" == text
    assert math.isclose(float(figure(value)), value, rel_tol=0.05)


def test_costs_and_lost_runs_are_shown() -> None:
    def paid(trials: list[Annotation], cost_usd: float | None) -> list[Annotation]:
        usage = {"source": "gateway", "requests": 1, "cost_usd": cost_usd}
        return [
            each.model_validate(each.model_dump() | {"session": each.session.model_dump() | {"usage": usage}}) for each in trials
        ]

    lost = [trial("missing", 90 + number, None, "provider_error", harness="made", model="a") for number in range(2)]
    found = table(naive("paged_attention"), paid([*agent("a", 0.5, None, problems=("paged_attention",)), *lost], 3.0))
    one = row(found, "a")
    assert (one.runs, one.counted, one.passed, one.cost_usd) == (4, 2, 1, 12.0)
    text = page(Board(trials=4, tables=(found,)))
    assert "| 1/2 | 2/4 ▲ (2.0 runs a trial) | 6.00 | 12.00 |" in text
    failed = table(paid(agent("a", None, problems=("paged_attention",)), 3.0))
    assert "| 0/1 | 0/1 | 3.00 | none passed |" in page(Board(trials=1, tables=(failed,)))
    unknown = table(paid(agent("a", 0.5, problems=("paged_attention",)), None))
    assert row(unknown, "a").cost_usd is None
