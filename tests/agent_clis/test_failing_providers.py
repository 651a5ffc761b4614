"""Every failure of a provider with every agent CLI: arena separates it from the agent's own failures, and ends in time."""

from pathlib import Path

import pytest
from agents import AGENTS, missing
from command import needs_sandbox
from failing import CANNOT_HAPPEN, EXPECTED, FAILURES, LIMITS, budget_s, run_against_failure

pytestmark = [
    pytest.mark.cli,
    needs_sandbox,
]
SUMMARISES_LAST = {("qwen", "context"), ("qwen", "output"), ("goose", "context")}
"""Their last answer may be the summary of the full context, which arrives whole. Qwen Code then gives up all the same. Goose asks
again and again, hundreds of times, and any of these answers may be the last one before the deadline."""


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("harness", AGENTS)
def test_failing_provider_ends_the_run_as_expected(harness: str, failure: str, tmp_path: Path) -> None:
    if reason := missing(harness):
        pytest.skip(reason)
    if (harness, failure) in CANNOT_HAPPEN:
        pytest.skip("it asks for whole answers, which cannot end early, or its models have no broker")
    outcome = run_against_failure(tmp_path, harness, failure)
    asks_on = {"deadline"} if (harness, failure) in (("mini", "context"), ("goose", "context")) else set()
    assert outcome.status in EXPECTED[failure] | asks_on, outcome
    assert outcome.seconds < budget_s(harness, failure) + 15, outcome
    if failure in LIMITS and outcome.status != "complete" and (harness, failure) not in SUMMARISES_LAST:
        assert outcome.limit == LIMITS[failure], outcome
