"""A trajectory as steps."""

import hashlib
import json
import time
from pathlib import Path

from arena.agents.snapshots import Stored
from arena.site import steps
from arena.site.text import CHARACTERS


def read(tmp_path: Path, *lines: object, snapshots: tuple[Stored, ...] = (), offset_s: float = 0.0) -> steps.Steps:
    path = tmp_path / "trajectory.jsonl"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
    return steps.read(path, snapshots, offset_s)


def call(at_s: float, name: object, **given: object) -> dict:
    return {"at_s": at_s, "kind": "call", "id": name, "tool": "write", "input": given}


def snapshot(at_s: float, text: str) -> Stored:
    return Stored(at_s, Path(f"{at_s * 1000:08.0f}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.py"))


def test_a_result_belongs_to_its_call(tmp_path):
    found = read(
        tmp_path, call(1.0, "a", path="x"), call(2.0, "b"), {"at_s": 4.0, "kind": "result", "id": "a", "output": "o", "ok": True}
    )
    assert [(step.line, step.ok, step.took_s) for step in found.steps] == [(1, True, 3.0), (2, None, None)]
    assert found.steps[0].output == steps.Excerpt("o", 0)


def test_a_result_without_a_call_is_a_step(tmp_path):
    [step] = read(tmp_path, {"at_s": 1.0, "kind": "result", "id": ["odd"], "output": "o", "ok": True}).steps
    assert (step.kind, step.fields[0][1].text) == ("result", "o")


def test_tokens_add_up(tmp_path):
    usage = {"kind": "usage", "at_s": 2.0, "input_tokens": 10, "cache_read_tokens": 1, "output_tokens": 5, "reasoning_tokens": -3}
    found = read(tmp_path, call(1.0, "a"), usage, usage | {"cache_write_tokens": "many"})
    assert found.tokens == ((2.0, 16), (2.0, 32))
    assert found.steps[0].tokens == 32


def test_a_snapshot_is_at_the_call_that_holds_its_text(tmp_path):
    snapshots = (snapshot(5.0, "one"), snapshot(9.0, "two"))
    found = read(tmp_path, call(1.0, "a", text="one"), call(3.0, "b", text="x"), call(8.0, "c", old="p"), snapshots=snapshots)
    digests = [stored.path.stem.partition("_")[2] for stored in snapshots]
    assert [step.snapshots for step in found.steps] == [(digests[0],), (), (digests[1],)]


def test_the_clock_offset_decides_which_call_came_before(tmp_path):
    lines = (call(1.0, "a"), call(4.5, "b"))
    assert read(tmp_path, *lines, snapshots=(snapshot(5.0, "x"),)).steps[1].snapshots
    assert read(tmp_path, *lines, snapshots=(snapshot(5.0, "x"),), offset_s=1.0).steps[0].snapshots


def test_odd_lines_are_steps_too(tmp_path):
    found = read(tmp_path, b"not json \xff", b"[1]", b"[" * 100_000, {"kind": "call", "at_s": "x", "input": 3}, {"kind": "odd"})
    assert [step.kind for step in found.steps] == ["unreadable", "unreadable", "unreadable", "call"]


def test_deep_inputs_are_no_error(tmp_path):
    for depth in range(100, 4000, 100):
        line = b'{"kind": "call", "at_s": 1, "id": 1, "tool": "t", "input": {"x": ' + b"[" * depth + b"]" * depth + b"}}"
        [step] = read(tmp_path, line).steps
        assert step.kind in ("call", "unreadable") and step.line == 1


def test_nested_json_costs_no_more_than_its_size(tmp_path):
    many = [[[[[0]]]]] * 90_000
    start_s = time.process_time()
    [step] = read(tmp_path, call(1.0, "a", x=many)).steps
    assert time.process_time() - start_s < 2 and len(step.fields[0][1].text) == CHARACTERS


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text('{"kind": "text", "at_s": 1, "text": "hidden"}\n')
    (tmp_path / "trajectory.jsonl").symlink_to("secret")
    [step] = steps.read(tmp_path / "trajectory.jsonl").steps
    assert step.kind == "unreadable" and "is a symbolic link" in step.fields[0][1].text


def test_long_texts_and_many_inputs_are_cut(tmp_path):
    [step] = read(tmp_path, call(0.0, "a", **{f"k{n}": "x" * 5000 for n in range(20)})).steps
    assert step.fields[0][1] == steps.Excerpt("x" * CHARACTERS, 1000)
    assert len(step.fields) == steps.MOST_FIELDS + 1 and step.fields[-1][1].text == "8"


def test_steps_beyond_the_most_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "MOST_STEPS", 2)
    found = read(tmp_path, *[{"kind": "text", "text": "x", "at_s": 0}] * 5)
    assert (len(found.steps), found.left_out) == (2, 3)
