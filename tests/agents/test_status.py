"""The status of a session: one case for each row of the table."""

from dataclasses import replace

import pytest

from arena.agents.status import Observed, decide

WORKED = Observed(exit_code=0, done=True, events=9, changed=True, last_words="agent/stderr.log ends: empty", requests=5)
CUT = {"failed": "the answer ended without a finish reason"}
OVER = ("budget_exhausted", "2000 requests were made")


@pytest.mark.parametrize(
    ("observed", "status", "words"),
    [
        ({}, "complete", "reported that it is done"),
        ({"exit_code": 1}, "complete", "exit code 1"),
        ({"exit_code": None}, "complete", "was killed"),
        ({"requests": None}, "complete", ""),
        ({"cause": "gateway", "stop": OVER}, "budget_exhausted", "2000 requests"),
        ({"cause": "gateway", "stop": ("provider_error", "401"), "exit_code": 143, "done": None}, "provider_error", "401"),
        ({"stop": OVER, "exit_code": 1, "done": None}, "budget_exhausted", "2000 requests"),
        ({"cause": "budget", "stop": OVER, "done": None}, "deadline", "the budget ended"),
        ({"cause": "silence", "done": None, "exit_code": None}, "crashed", "was silent for too long"),
        ({"cause": "budget", "done": None, "exit_code": 143}, "deadline", "exit code 143"),
        ({"cause": "budget", "done": None, **CUT}, "deadline", "without a finish reason"),
        ({"cause": "budget", "done": None, "refused": True}, "refused", "until the budget ended"),
        ({"cause": "budget", "done": None, "refused": True, **CUT}, "deadline", "without a finish reason"),
        (CUT, "provider_error", "without a finish reason"),
        ({"exit_code": 1, "done": None, "failed": "500"}, "provider_error", "500"),
        ({"exit_code": 1, "done": False, "failed": "500"}, "provider_error", "500"),
        ({"cause": "loop", "done": None, "exit_code": 143}, "crashed", "changed nothing in the workspace"),
        ({"cause": "loop", "done": None, "exit_code": 143, **CUT}, "crashed", "changed nothing in the workspace"),
        ({"cause": "unasked", "requests": 0, "arrived": 0, "exit_code": 143}, "no_activity", "calls another address"),
        ({"requests": 0, "arrived": 0, "done": None, "exit_code": 1}, "crashed", "nothing of the agent reached the gateway"),
        ({"requests": 0, "arrived": 3, "last_refusal": "no such path"}, "no_activity", "the last because: no such path"),
        ({"requests": 0}, "no_activity", "sent no request to its model"),
        ({"requests": 0, "done": None}, "no_activity", "sent no request to its model"),
        ({"requests": 0, "done": None, "exit_code": 41, "last_words": "its last error: no auth"}, "crashed", "no auth"),
        ({"refused": True}, "refused", "refused"),
        ({"done": None, "exit_code": 1}, "crashed", "agent/stderr.log ends: empty"),
        ({"done": False}, "crashed", "agent/stderr.log ends: empty"),
        ({"done": None}, "crashed", "without reporting"),
        ({"done": None, "requests": None, "events": 0, "changed": False}, "no_activity", "without an event"),
        ({"done": None, "requests": None, "events": 0}, "crashed", "without reporting"),
        ({"done": None, "reports_its_end": False}, "complete", "exit code 0"),
        ({"done": None, "reports_its_end": False, "exit_code": 3}, "crashed", "exit code 3"),
    ],
)
def test_decide(observed, status, words):
    found, message = decide(replace(WORKED, **observed))
    assert found == status
    assert words in message
