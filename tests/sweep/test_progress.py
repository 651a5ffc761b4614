"""What a trial needs next, and what may start: pure functions of what the run folders say."""

import itertools
from typing import Any

import pytest
from sweeping import planned

from arena.results import statistics
from arena.results.board import Naive
from arena.schema import Retry, Sweep
from arena.sweep.grid import Trial, trials
from arena.sweep.limits import Limits, spent_usd
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
