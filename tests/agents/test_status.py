"""What a session's end is called: one row of the table each."""

from dataclasses import replace

import pytest

from arena.agents.status import Seen, decide

WORKED = Seen(exit_code=0, done=True, events=9, changed=True, told="agent/stderr.log ends: empty", asked=5)
CUT = {"failed": "the answer ended without a finish reason"}
OVER = ("budget_exhausted", "2000 requests were made")


@pytest.mark.parametrize(
    ("seen", "status", "words"),
    [
        ({}, "complete", "said that it is done"),
        ({"exit_code": 1}, "complete", "exit code 1"),
        ({"exit_code": None}, "complete", "was killed"),
        ({"asked": None}, "complete", ""),
        ({"cause": "gateway", "stop": OVER}, "budget_exhausted", "2000 requests"),
        ({"cause": "gateway", "stop": ("provider_error", "401"), "exit_code": 143, "done": None}, "provider_error", "401"),
        ({"stop": OVER, "exit_code": 1, "done": None}, "budget_exhausted", "2000 requests"),
        ({"cause": "budget", "stop": OVER, "done": None}, "deadline", "the budget ended"),
        ({"cause": "silence", "done": None, "exit_code": None}, "crashed", "nothing was heard"),
        ({"cause": "budget", "done": None, "exit_code": 143}, "deadline", "exit code 143"),
        ({"cause": "budget", "done": None, **CUT}, "deadline", "without a finish reason"),
        (CUT, "provider_error", "without a finish reason"),
        ({"exit_code": 1, "done": None, "failed": "500"}, "provider_error", "500"),
        ({"exit_code": 1, "done": False, "failed": "500"}, "provider_error", "500"),
        ({"asked": 0}, "no_activity", "asked its model for nothing"),
        ({"asked": 0, "done": None}, "no_activity", "asked its model for nothing"),
        ({"asked": 0, "done": None, "exit_code": 41, "told": "it told: no auth"}, "crashed", "no auth"),
        ({"refused": True}, "refused", "refused"),
        ({"done": None, "exit_code": 1}, "crashed", "agent/stderr.log ends: empty"),
        ({"done": False}, "crashed", "agent/stderr.log ends: empty"),
        ({"done": None}, "crashed", "without saying"),
        ({"done": None, "asked": None, "events": 0, "changed": False}, "no_activity", "without an event"),
        ({"done": None, "asked": None, "events": 0}, "crashed", "without saying"),
        ({"done": None, "says_when_done": False}, "complete", "exit code 0"),
        ({"done": None, "says_when_done": False, "exit_code": 3}, "crashed", "exit code 3"),
    ],
)
def test_decide(seen, status, words):
    found, message = decide(replace(WORKED, **seen))
    assert found == status
    assert words in message
