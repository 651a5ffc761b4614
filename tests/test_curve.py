"""Scores of snapshots: which are chosen, and that a run's own snapshots are scored."""

import hashlib
import json
from pathlib import Path

import pytest
from records import trial

from arena import catalog, curve
from arena.agents.snapshots import Stored
from arena.errors import UsageError


def snapshots(folder: Path, *texts: bytes) -> list[Stored]:
    found = []
    for number, text in enumerate(texts):
        path = folder / f"{number:08d}_{hashlib.sha256(text).hexdigest()[:8]}.py"
        path.write_bytes(text)
        found.append(Stored(float(number), path))
    return found


@pytest.mark.parametrize(
    ("most", "chosen"), [(1, [6]), (2, [0, 6]), (3, [0, 5, 6]), (4, [0, 2, 5, 6]), (7, [*range(7)]), (9, [*range(7)])]
)
def test_snapshots_are_spread_and_end_with_the_last(tmp_path: Path, most, chosen):
    states = curve.scorable(snapshots(tmp_path, *(b"x = %d\n" % n for n in range(7))))
    assert [int(state.snapshot.at_s) for state in curve.choose(states, [], most)] == chosen


@pytest.mark.parametrize(
    ("most", "chosen"), [(1, [6]), (2, [3, 6]), (3, [3, 5, 6]), (4, [0, 3, 5, 6]), (5, [0, 3, 4, 5, 6]), (7, [*range(7)])]
)
def test_states_whose_own_check_passed_come_first(tmp_path: Path, most, chosen):
    states = curve.scorable(snapshots(tmp_path, *(b"x = %d\n" % n for n in range(7))))
    passed_s = [-1.0, 3.9, 5.2, 5.9]
    assert [int(state.snapshot.at_s) for state in curve.choose(states, passed_s, most)] == chosen


def test_each_text_is_scored_once_at_its_first_time(tmp_path: Path):
    states = curve.scorable(snapshots(tmp_path, b"a = 1\n", b"b = 1\n", b"\xff", b"a = 1\n"))
    assert [state.snapshot.at_s for state in states] == [0.0, 1.0, 3.0]
    assert [state.snapshot.at_s for state in curve.choose(states, [], 5)] == [0.0, 1.0]
    assert [state.snapshot.at_s for state in curve.choose(states, [], 1)] == [0.0]
    assert [state.snapshot.at_s for state in curve.choose(states, [3.5], 2)] == [0.0, 1.0]


def test_passed_checks_are_found_among_any_lines(tmp_path: Path):
    def call(number: int, command: object) -> dict[str, object]:
        return {"at_s": number, "kind": "call", "id": number, "tool": "Bash", "input": {"command": command}}

    def result(number: int, output: object) -> dict[str, object]:
        return {"at_s": number + 0.5, "kind": "result", "id": number, "output": output, "ok": True}

    steps: list[object] = [
        *(call(1, "python check.py"), result(1, "row 3 is off\nFAIL\n")),
        *(call(2, ["python", "check.py"]), result(2, "PASS\n")),
        *(call(3, "echo PASS"), result(3, "PASS\n")),
        *(call(4, "cd /workspace && python check.py | tail -1"), result(4, "PASS")),
        *({"kind": "call", "id": "check.py"}, ["check.py"], "PASS", None),
        {"kind": "result", "id": 2, "output": "PASS", "at_s": "PASS"},
        {"kind": "result", "id": 2, "output": "PASS", "at_s": 10**400},
    ]
    lines = [json.dumps(step) for step in steps]
    (tmp_path / "trajectory.jsonl").write_text("\n".join([*lines, "[" * 9000 + "PASS", "\x00PASS"]))
    assert curve.passed_checks(tmp_path / "trajectory.jsonl") == [2.5, 4.5]
    (tmp_path / "link.jsonl").symlink_to("trajectory.jsonl")
    assert curve.passed_checks(tmp_path / "link.jsonl") == []


def test_a_changed_problem_has_no_curve(tmp_path: Path):
    with pytest.raises(UsageError, match="has changed since"):
        curve.measure(trial(0.5), tmp_path, lambda *_: None, most=3)  # type: ignore[arg-type]


def test_a_run_without_snapshots_has_no_curve(tmp_path: Path):
    run = trial(0.5, problem_digest=catalog.problem_digest("paged_attention"))
    with pytest.raises(UsageError, match="has no snapshots here"):
        curve.measure(run, tmp_path, lambda *_: None, most=3)  # type: ignore[arg-type]
