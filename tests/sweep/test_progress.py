"""What a trial needs next, and what may start: pure functions of what the run folders say."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from sweeping import planned

from arena.errors import UsageError
from arena.results import statistics
from arena.results.board import Naive
from arena.schema import Retry, Sweep
from arena.sweep.eta import SCORE_S, Left, Slots, Took, eta_s
from arena.sweep.grid import Trial, trials
from arena.sweep.limits import Limits, spent_usd, until_s
from arena.sweep.progress import Attempt, next_step, problem_of, sure

RETRY = Retry(provider_error=2, judge_failed=1, interrupted=3)
OUTCOMES = ("interrupted", "unjudged", "judge_failed", "provider_error", "counted", "running")


def made(*outcomes: Any, judged: int = 1) -> list[Attempt]:
    """Attempts with these outcomes; `killed` is an interruption without arena's own error."""
    return [
        Attempt(
            f"run-{number}", "interrupted" if outcome == "killed" else outcome, judged=judged, failed=outcome == "interrupted"
        )
        for number, outcome in enumerate(outcomes)
    ]


@pytest.mark.parametrize(
    ("outcomes", "step"),
    [
        ((), "play"),
        (("interrupted",), "play"),
        (("interrupted",) * 3, "play"),
        (("interrupted",) * 4, "failed"),
        (("killed",) * 99, "play"),
        (("killed",) * 99 + ("unjudged",), "judge"),
        (("provider_error",) * 2, "play"),
        (("provider_error",) * 3, "failed"),
        (("provider_error", "interrupted", "provider_error", "interrupted"), "play"),
        (("unjudged",), "judge"),
        (("interrupted", "unjudged"), "judge"),
        (("judge_failed",), "judge"),
        (("running",), "wait"),
        (("interrupted", "running"), "wait"),
        (("counted",), "done"),
        (("provider_error", "provider_error", "provider_error", "counted"), "done"),
    ],
)
def test_the_kind_of_ending_decides_what_follows(outcomes, step):
    assert next_step(made(*outcomes), RETRY) == step


def test_a_session_is_judged_again_as_often_as_allowed():
    assert next_step(made("judge_failed", judged=1), RETRY) == "judge"
    assert next_step(made("judge_failed", judged=2), RETRY) == "failed"


def test_no_ending_is_played_for_ever_and_a_score_ends_a_trial():
    for outcomes in itertools.product(OUTCOMES, repeat=4):
        step = next_step(made(*outcomes, judged=2), RETRY)
        assert (step == "done") == ("counted" in outcomes), outcomes
        if step == "play":
            assert outcomes.count("interrupted") <= RETRY.interrupted
            assert outcomes.count("provider_error") <= RETRY.provider_error
            assert not {"running", "unjudged", "judge_failed"} & set(outcomes), "nothing is played beside what may still count"


def counted(*fractions: float | None) -> list[Attempt]:
    return [
        Attempt(f"run-{number}", "counted", "incorrect" if fraction is None else "passed", fraction)
        for number, fraction in enumerate(fractions)
    ]


@pytest.mark.parametrize(
    ("half_width", "made", "enough"),
    [
        (0.1, counted(*[0.5] * 15), False),
        (0.1, counted(*[0.5] * 16), True),
        (0.1, counted(*[None] * 16), True),
        (0.1, counted(*[0.5] * 15, None), False),  # half of 0.72 to 0.99
        (0.1, counted(*[0.5, 0.05] * 8), False),  # sure to pass, and the gain is not: 30 %
        (0.1, [*counted(*[None] * 15), Attempt("run-16", "provider_error")], False),
        (0.1, [*counted(*[0.5] * 15), Attempt("run-16", "counted", "passed", figures=False)], False),  # a bug, by its review
        (0.1, [*counted(*[0.5] * 15), Attempt("run-16", "counted", "passed")], False),  # withdrawn: it failed
    ],
)
def test_a_cell_is_sure_by_the_width_of_its_figures(half_width: float, made: list[Attempt], enough: bool):
    cell = planned("a")
    sweep = limits(trials=20, stop={"when": {"half_width": half_width}}).sweep
    attempts = {trial: [attempt] for trial, attempt in zip(trials([cell], 20), made, strict=False)}
    naive = {problem_of(cell.cell): Naive(fraction=0.01, source="runs")}
    assert sure(attempts, sweep, naive) == ({cell} if enough else set())
    assert sure(attempts, sweep, {}) == set(), "without a naive kernel nothing is known of its gain"
    assert sure(attempts, limits().sweep, naive) == set()


@pytest.mark.parametrize("half_width", [0.1, 0.07, 0.05, 0.01])
def test_the_least_trials_are_those_of_a_cell_that_always_passes(half_width: float):
    least = statistics.least_trials(half_width)
    for count in (least, least - 1):
        found = statistics.success(count, count)
        assert found is None or ((found.high - found.low) / 2 < half_width) == (count == least)


@pytest.mark.parametrize("half_width", [0.11, 0.2, 0.3, 0, -1])
def test_a_bound_that_stops_by_luck_is_refused(half_width: float):
    with pytest.raises(ValueError, match=r"above 0\.1: a wider bound stops where trials are alike|greater than 0"):
        limits(stop={"when": {"half_width": half_width}})


def limits(**given) -> Limits:
    return Limits(Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}]} | given))


def test_one_trial_of_each_cell_comes_before_the_second_of_any():
    cells = [planned("a"), planned("b")]
    assert [(trial.planned.label, trial.number) for trial in trials(cells, 2)] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_sessions_at_once_are_limited_by_route():
    on_route, other, free = (Trial(planned(route=route), 1) for route in ("r", "s", None))
    given = limits(providers={"r": 1})
    assert given.blocks(on_route, [on_route], 0, 0) == "route"
    assert given.blocks(other, [on_route], 0, 0) == given.blocks(free, [on_route] * 9, 0, 0) == ""
    assert given.blocks(other, [other] * 4, 0, 0) == "route"


def test_a_failing_route_is_paused_then_tried_by_one_session():
    trial, other = Trial(planned(), 1), Trial(planned(), 2)
    given = limits(stop={"route_failures": 2, "pause": "10m"}, retry={"after": "1m"})
    failed = Attempt("run", "provider_error")
    assert given.ended(trial, failed, 0, 100.0) == ""
    assert given.blocks(trial, [], 0, 159) == "wait" and given.blocks(trial, [], 0, 161) == ""
    assert given.blocks(other, [], 0, 101) == ""
    assert "paused for 10m: 2 sessions in a row" in given.ended(trial, failed, 1, 200.0)
    assert given.blocks(other, [], 0, 201) == given.blocks(other, [], 0, 799) == "wait"
    assert given.next_s([other]) == 800 and given.next_s([trial]) == 800
    assert given.blocks(other, [], 0, 801) == "" and given.blocks(trial, [other], 0, 801) == "route", "one probe"
    assert given.ended(other, Attempt("run", "counted", "passed"), 0, 900.0) == ""
    assert given.blocks(trial, [other], 0, 901) == ""


def test_waits_grow_by_four():
    trial, given = Trial(planned(), 1), limits(stop={"route_failures": 9})
    for before, wait_s in enumerate((60, 240, 960)):
        given.ended(trial, Attempt("run", "provider_error"), before, 0.0)
        assert given.blocks(trial, [], 0, wait_s - 1) == "wait" and given.blocks(trial, [], 0, wait_s + 1) == ""


def test_an_account_at_fault_closes_its_route():
    trial, elsewhere, given = Trial(planned(), 1), Trial(planned(route="s"), 1), limits()
    assert "add credit" in given.ended(trial, Attempt("run", "provider_error", account_fault="add credit"), 0, 0.0)
    assert given.blocks(trial, [], 0, 1e9) == "closed" and given.blocks(elsewhere, [], 0, 0) == ""


def test_what_sessions_at_work_may_use_is_reserved():
    trial = Trial(planned(max_cost=2.0), 1)
    given = limits(stop={"cost_usd": 5.0})
    assert given.blocks(trial, [], 3.0, 0) == "" and given.blocks(trial, [], 3.1, 0) == "cost"
    assert given.blocks(trial, [trial], 1.0, 0) == "" and given.blocks(trial, [trial], 1.1, 0) == "cost"
    assert given.blocks(Trial(planned(route=None), 1), [], 9.0, 0) == "", "a built-in model costs nothing"


def test_an_unknown_cost_counts_with_all_that_was_allowed():
    trial = Trial(planned(max_cost=2.0), 1)
    known, unknown, running = (Attempt("run", "counted", cost_usd=cost) for cost in (0.5, None, 0.0))
    assert spent_usd({trial: [known, unknown, running]}) == 2.5


def test_the_time_left_is_by_the_medians_so_far() -> None:
    took = [Took("m", "p", s, 10.0) for s in (60.0, 100.0, 900.0)] + [Took("m", "q", 300.0, 50.0), Took("n", "p", 7.0, 10.0)]
    left = [Left("m", "p", 1000.0, True, True)] * 8

    def hours(*left: Left, sessions: int = 4, scores: int = 1, waves: bool = True) -> float | None:
        return eta_s(left, took, Slots(sessions, scores, waves))

    assert hours(*left) == 8 * 100 / 4 + 8 * 10
    assert hours(*left, waves=False) == 8 * 100 / 4 + 10, "scores are taken meanwhile, all but the last"
    assert hours(*left, sessions=100, scores=9, waves=False) == 110, "no session is cut in parts"
    assert hours(left[0]._replace(budget_s=80.0)) == 90 and hours(left[0]._replace(at_work_s=30.0)) == 80
    assert hours(left[0]._replace(session=False, at_work_s=4.0)) == 6, "it is being scored"
    assert hours(Left("m", "new", 1000.0, True, True)) == 200 + 10, "its model's on other problems"
    assert hours(Left("new", "q", 1000.0, True, True)) == 100 + 50, "any model's"
    assert hours() == 0 and eta_s(left, [Took("m", "p", None, None)], Slots(1, 1, True)) is None
    assert eta_s(left[:1], [Took("m", "p", 60.0, None)], Slots(1, 1, True)) == 60 + SCORE_S


@pytest.mark.parametrize(
    ("at", "left_s"),
    [
        ("08:00", 3600),
        ("06:59", 86400 - 60),
        ("07:00", 86400),
        ("2026-12-01T08:00Z", 3600),
        ("2026-12-01T06:00+02:00", -3 * 3600),
    ],
)
def test_a_time_to_stop_is_the_next_or_has_a_date(at: str, left_s: float) -> None:
    assert until_s(at, datetime(2026, 12, 1, 7, 0, tzinfo=UTC)) == left_s


def test_no_session_starts_after_the_time_to_stop() -> None:
    limits = Limits(Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}]}), stop_at_s=100.0)
    trial = Trial(planned(), 1)
    assert [limits.blocks(trial, (), 0.0, now_s) for now_s in (99.0, 100.0)] == ["", "at"]
    with pytest.raises(UsageError, match="is no time"):
        until_s("25:00", datetime.now(UTC))
