"""What a sweep will cost and be able to show, by the records."""

import itertools
from dataclasses import replace

import pytest
from records import trial
from sweeping import planned

from arena.results import statistics
from arena.schema import Sweep, Usage
from arena.sweep import forecast
from arena.sweep.grid import Trial

PROBLEMS = ("fp8_gemm", "kahan_softmax", "paged_attention")


def sweep(trials: int = 3) -> Sweep:
    return Sweep.model_validate({"name": "s", "trials": trials, "cells": [{"models": ["m"], "problems": "all"}]})


def cells(**problems: tuple[str, ...]):
    return [planned(model, problem) for model, some in problems.items() for problem in some]


def test_without_records_the_spread_is_assumed():
    found = forecast.shows(sweep(), cells(a=PROBLEMS, b=PROBLEMS), [])
    assert found is not None and (found.problems, found.spread, found.measured) == (3, statistics.SPREAD, False)
    assert found.ratio == statistics.least_ratio(3, 3, statistics.SPREAD)
    assert found.pass_difference == statistics.least_pass_difference(3, 3)


def test_the_spread_is_of_passed_trials_of_a_cell():
    agent = {"harness": "claude-code", "model": "m", "hardware": "cpu"}
    elsewhere = [trial(fraction, number, **agent | {"hardware": "h200"}) for number, fraction in enumerate((0.1, 0.9), start=6)]
    records = [trial(fraction, number, **agent) for number, fraction in enumerate((0.2, 0.4))]
    other = [trial(0.9, 2, problem="fp8_gemm", **agent), trial("incorrect", 3, **agent)]
    builtin = [trial(0.8, number, hardware="cpu") for number in (4, 5)]
    found = forecast.shows(sweep(), cells(a=PROBLEMS, b=PROBLEMS), [*records, *other, *builtin, *elsewhere])
    assert found is not None and found.measured
    assert found.spread == pytest.approx(0.5**0.5), "one step of log2 in one cell; built-in kernels do not count"


def test_what_two_rows_do_not_share_shows_nothing():
    assert forecast.shows(sweep(), cells(a=PROBLEMS), []) is None
    assert forecast.shows(sweep(), cells(a=PROBLEMS[:1], b=PROBLEMS[1:]), []) is None
    found = forecast.shows(sweep(), cells(a=PROBLEMS, b=PROBLEMS[1:]), [])
    assert found is not None and found.problems == 2


def test_more_trials_show_less():
    shown = [forecast.shows(sweep(trials), cells(a=PROBLEMS, b=PROBLEMS), []) for trials in (1, 2, 3, 10)]
    first, *ratios = [found.ratio for found in shown if found]
    assert first is None and len(ratios) == 3
    assert all(more and less and more < less for less, more in itertools.pairwise(ratios))


def test_several_budgets_do_not_compare():
    first, second = cells(a=PROBLEMS[:1], b=PROBLEMS[:1])
    longer = replace(second, cell=second.cell.model_copy(update={"budget_s": 120.0}))
    assert forecast.shows(sweep(), [first, longer], []) is None


def test_the_cost_is_the_median_of_each_model_s_runs():
    usage = {"source": "gateway", "requests": 1}
    records = []
    for number, (model, cost_usd) in enumerate((("a", 1.0), ("a", 2.0), ("a", 9.0), ("b", 0.5))):
        found = trial("incorrect", number, model=model)
        spent = Usage.model_validate(usage | {"cost_usd": cost_usd})
        records.append(found.model_copy(update={"session": found.session.model_copy(update={"usage": spent})}))
    left = [Trial(planned("a"), 1), Trial(planned("a"), 2), Trial(planned("b"), 1), Trial(planned("free", route=None), 1)]
    assert forecast.cost_usd(left, records) == 4.5


def test_a_model_without_records_has_no_cost():
    left = [Trial(planned("a"), 1), Trial(planned("free", route=None), 1)]
    assert forecast.cost_usd(left, []) is None
    assert forecast.cost_usd(left[1:], []) == 0
