"""What the agents' programs printed against the stub (`tests/events/`), read as steps; and that no odd line breaks a reader."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena import catalog, paths
from arena.agents.trajectory import FIELDS, reader

EVENTS = Path(__file__).parents[1] / "events"
NAMES = sorted(path.stem for path in EVENTS.glob("*.jsonl") if not path.stem.endswith("-failed"))
READ = {name: reader(paths.harnesses() / f"{name}.py", None) for name in NAMES}
THINKS = {"claude": True, "codex": True, "opencode": True, "kimi": False, "gemini": False, "copilot": True, "goose": True}
"""Whether the program tells of its model's thinking."""
each = pytest.mark.parametrize("name", NAMES)


def events(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EVENTS / f"{name}.jsonl").read_text().splitlines()]


def steps(name: str, file: str | None = None) -> list[dict[str, Any]]:
    return [step for event in events(file or name) for step in READ[name](event)]


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [step for step in found if step["kind"] == kind]


@each
def test_every_step_has_its_fields_and_is_json(name):
    for step in [*steps(name), *steps(name, f"{name}-failed")]:
        assert FIELDS[step["kind"]] == step.keys() - {"kind"}
        json.dumps(step)


@each
def test_a_run_of_three_turns(name):
    found = steps(name)
    assert bool(of(found, "thinking")) == THINKS[name]
    assert "Done: solution.py is written, and check.py has been run." in "".join(step["text"] for step in of(found, "text"))
    calls, results = of(found, "call"), of(found, "result")
    assert sorted(call["id"] for call in calls) == sorted(result["id"] for result in results)
    assert len(calls) == 3
    assert "solution.py" in str(calls[0]["input"])
    assert any("CHECK PASS" in result["output"] for result in results)
    assert len({step["id"] for step in of(found, "session")}) == (name != "goose")  # that one names none
    (end,) = of(found, "end")
    assert end["ok"] and found[-1] == end
    assert not of(found, "error")


@each
def test_a_command_that_failed(name):
    by_id = {step["id"]: step["ok"] for step in of(steps(name), "result")}
    failed = [by_id[step["id"]] for step in of(steps(name), "call") if "exit 3" in str(step["input"])]
    assert failed == [name in ("kimi", "gemini")]  # these tell a command's exit code in words only


@each
def test_usage_in_disjoint_parts(name):
    told = [
        sum(step[f"{part}_tokens"] for step in of(steps(name), "usage"))
        for part in ("input", "cache_read", "cache_write", "output", "reasoning")
    ]
    assert (
        told
        == {
            "claude": [1300, 2200, 96, 120, 0],
            "codex": [1396, 2200, 0, 105, 15],
            "opencode": [1300, 2200, 96, 105, 15],
            "kimi": [0, 0, 0, 0, 0],
            "gemini": [1396, 2200, 0, 105, 15],
            "copilot": [0, 0, 0, 0, 0],
            "goose": [1250, 2400, 112, 118, 0],  # it answers parallel calls one by one, which is one turn more
        }[name]
    )


@each
def test_unknown_models_are_refused(name):
    found = steps(name, f"{name}-failed")
    assert bool([step for step in of(found, "end") if step["ok"]]) == (
        name == "goose"
    )  # only the gateway tells that one's failures
    if name != "kimi":  # tells it on standard error
        assert "model" in of(found, "error")[0]["text"]


def test_retries_are_reported():
    retry = {"role": "meta", "type": "turn.step.retrying", "error_message": "500 it failed", "status_code": 500}
    assert READ["kimi"](retry) == [{"kind": "error", "text": "500 it failed", "status": 500}]
    retry = {"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"}
    assert READ["claude"](retry) == [{"kind": "error", "text": "asks again: authentication_failed", "status": 401}]
    (step,) = READ["codex"]({"type": "error", "message": "unexpected status 429 Too Many Requests: slowly"})
    assert step["status"] == 429


def test_denied_tools_are_not_a_good_end():
    """Without its permission flag the program ends with exit code 0, and `is_error` is false."""
    result = next(event for event in events("claude") if event["type"] == "result")
    assert READ["claude"](result)[-1]["ok"]
    assert not READ["claude"](result | {"permission_denials": [{"tool_name": "Write"}]})[-1]["ok"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoilt(draw, event: Any) -> Any:
    """A real event with something else in one place."""
    if isinstance(event, dict) and event and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(event)))
        return event | {key: draw(spoilt(event[key]))}
    if isinstance(event, list) and event and draw(st.booleans()):
        return [draw(spoilt(event[0])), *event[1:]]
    return draw(ODD)


@each
@given(data=st.data())
def test_an_odd_event_breaks_nothing(name, data):
    event = data.draw(st.sampled_from(events(name) + events(f"{name}-failed")))
    key = data.draw(st.sampled_from(sorted(event)))
    for step in READ[name](event | {key: data.draw(spoilt(event[key]))}):
        assert FIELDS[step["kind"]] == step.keys() - {"kind"}
        if step["kind"] == "usage":
            assert all(isinstance(step[field], int) for field in FIELDS["usage"])


def test_every_program_has_its_record():
    with_a_reader = {
        harness.events.removesuffix(".py") for harness in catalog.harnesses().values() if harness.cli and harness.events
    }
    assert sorted(with_a_reader) == NAMES
