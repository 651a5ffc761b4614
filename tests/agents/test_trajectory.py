"""Steps of all harnesses in one form."""

import json
from pathlib import Path

import pytest

from arena.agents import trajectory
from arena.agents.trajectory import Trajectory, reader
from arena.errors import DataError

CALL = {"kind": "call", "id": "1", "tool": "Write", "input": {"path": "solution.py"}}
END = {"kind": "end", "ok": True, "text": "done"}


def kept(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def taken(tmp_path: Path, *events, read=lambda event: event["steps"]):
    steps = Trajectory(tmp_path / "trajectory.jsonl", read)
    for event in events:
        steps.take(event)
    steps.close()
    return steps


def test_steps_are_kept_in_order_with_their_time(tmp_path):
    steps = taken(tmp_path, {"steps": [{"kind": "text", "text": "I begin"}, CALL]}, {"steps": []}, {"steps": [END]})
    found = kept(tmp_path / "trajectory.jsonl")
    assert [step["kind"] for step in found] == ["text", "call", "end"]
    assert [step["at_s"] for step in found] == sorted(step["at_s"] for step in found)
    assert (steps.ended_well, steps.last) == (True, "done")
    assert steps.ended_s is not None


def test_steps_after_an_end_undo_it(tmp_path):
    steps = taken(tmp_path, {"steps": [END]}, {"steps": [CALL]})
    assert (steps.ended_s, steps.ended_well) == (None, False)


def test_usage_after_the_end_does_not_undo_it(tmp_path):
    usage = dict.fromkeys(trajectory.FIELDS["usage"], 1) | {"kind": "usage"}
    assert taken(tmp_path, {"steps": [END]}, {"steps": [usage]}).ended_s is not None


def test_ends_with_errors_are_not_well(tmp_path):
    error = {"kind": "error", "text": "401", "status": 401}
    steps = taken(tmp_path, {"steps": [error, END | {"ok": False}]})
    assert steps.ended_s is not None
    assert (steps.ended_well, steps.error) == (False, "401")


@pytest.mark.parametrize("event", [{}, {"steps": 3}, {"steps": [3]}, {"steps": [{}]}, {"steps": [CALL | {"input": {1, 2}}]}])
def test_an_event_that_cannot_be_read_is_counted(tmp_path, event):
    steps = taken(tmp_path, event, {"steps": [END]})
    assert steps.misread == 1
    assert steps.ended_well


def test_unknown_and_unfinished_steps_are_left_out(tmp_path):
    taken(tmp_path, {"steps": [{"kind": "dance"}, {"kind": "call", "id": "1"}, CALL]})
    assert [step["kind"] for step in kept(tmp_path / "trajectory.jsonl")] == ["call"]


def test_a_flood_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(trajectory, "KEPT_BYTES", 1000)
    taken(tmp_path, *[{"steps": [{"kind": "text", "text": "x" * 100}]}] * 20)
    found = kept(tmp_path / "trajectory.jsonl")
    assert found[-1] == {"kind": "cut", "kept_bytes": 1000}
    assert len(found) < 10


def test_a_terminal_event_needs_no_python():
    read = reader(None, {"type": "result", "subtype": "success"})
    assert read({"type": "result"}) == []
    assert read({"type": "result", "subtype": "success", "more": 1})[0]["ok"] is True
    assert reader(None, None)({"type": "end"}) == []


def test_a_file_without_read(tmp_path):
    (tmp_path / "odd.py").write_text("x = 1\n")
    with pytest.raises(DataError, match="no function `read`"):
        reader(tmp_path / "odd.py", None)


def test_usage_is_added_up(tmp_path):
    usage = dict.fromkeys(trajectory.FIELDS["usage"], 2) | {"kind": "usage"}
    steps = taken(tmp_path, {"steps": [usage, usage]}, {"steps": [usage | {"input_tokens": "9"}]})
    assert (steps.usage.source, steps.usage.requests, steps.usage.input_tokens, steps.misread) == ("cli", 2, 4, 1)


@pytest.mark.parametrize("count", [-1, 1 << 41, 1.5, True])
def test_usage_that_makes_no_sense_counts_nothing(tmp_path, count):
    usage = dict.fromkeys(trajectory.FIELDS["usage"], 1) | {"kind": "usage", "input_tokens": count}
    steps = taken(tmp_path, {"steps": [usage]})
    assert steps.usage.input_tokens == (1 if count is True else 0)


def test_values_beyond_json_are_left_out(tmp_path):
    steps = taken(tmp_path, {"steps": [CALL | {"input": {"n": float("nan")}}]}, read=lambda event: event["steps"])
    assert (steps.misread, kept(tmp_path / "trajectory.jsonl")) == (1, [])


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("Bash", {"command": "python check.py", "description": "try it"}, "Bash: python check.py"),
        ("shell", {"command": ["python", "check.py"]}, "shell: python check.py"),
        ("Write", {"file_path": "/workspace/solution.py", "content": "x"}, "Write: /workspace/solution.py"),
        ("file_change", {"changes": [{"path": "solution.py", "kind": "add"}, "odd"]}, "file_change: solution.py"),
        ("todo", {"items": []}, "todo"),
        ("odd", ["python"], "odd"),
    ],
)
def test_a_call_is_shown_with_its_command_or_file(tmp_path, tool, given, words):
    steps = taken(tmp_path, {"steps": [CALL | {"tool": tool, "input": given}]})
    assert (steps.last, steps.calls) == (words, 1)


def checked(number: str, output: str):
    call = {"kind": "call", "id": number, "tool": "Bash", "input": {"command": "python check.py | tail"}}
    return {"steps": [call, {"kind": "result", "id": number, "output": output, "ok": True}]}


def test_the_last_result_of_the_agents_own_check_is_kept(tmp_path):
    other = {"kind": "result", "id": "9", "output": "PASS", "ok": True}  # of another command
    assert taken(tmp_path, checked("1", "ok  N=8\nFAIL\n"), {"steps": [other]}).check == "failed"
    assert taken(tmp_path, checked("1", "FAIL"), checked("2", "FAIL  N=8\nPASS\n")).check == "passed"
    assert taken(tmp_path, checked("1", "PASS"), checked("2", "no such file")).check == "passed"
    assert taken(tmp_path, checked("1", "no such file")).check == ""
