"""Every failure of a provider with every agent CLI: arena separates it from the agent's own failures, and ends in time."""

from pathlib import Path

import pytest
from agents import AGENTS, missing
from command import needs_sandbox
from failing import BUDGET_S, BUDGETS_S, CANNOT_HAPPEN, EXPECTED, FAILURES, run_against_failure

pytestmark = [
    pytest.mark.cli,
    needs_sandbox,
]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("harness", AGENTS)
def test_failing_provider_ends_the_run_as_expected(harness: str, failure: str, tmp_path: Path) -> None:
    if reason := missing(harness):
        pytest.skip(reason)
    if (harness, failure) in CANNOT_HAPPEN:
        pytest.skip("it asks for whole answers, and no stream of them can end early")
    outcome = run_against_failure(tmp_path, harness, failure)
    assert outcome.status in EXPECTED[failure], outcome
    assert outcome.seconds < BUDGETS_S.get(failure, BUDGET_S) + 15, outcome
