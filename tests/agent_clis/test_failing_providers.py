"""Every way in which a provider fails, with every agent's program: told from the agent's own failures, and in time."""

from pathlib import Path

import pytest
from agents import AGENTS, missing
from failing import BUDGET_S, BUDGETS_S, EXPECTED, WAYS, attempt

from arena.sandboxes import bwrap

pytestmark = [
    pytest.mark.cli,
    pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("harness", AGENTS)
def test_outcome(harness: str, way: str, tmp_path: Path) -> None:
    if reason := missing(harness):
        pytest.skip(reason)
    outcome = attempt(tmp_path, harness, way)
    assert outcome.status == EXPECTED[way], outcome
    assert outcome.seconds < BUDGETS_S.get(way, BUDGET_S) + 15, outcome
