"""Reading a run's files for an export: hostile lines, missing files, links, and what the agent changed."""

import json
from pathlib import Path

import pytest
from exports import PROMPT, files, known, session, with_files
from hypothesis import given
from hypothesis import strategies as st
from sites import SOURCE, home

from arena.agents.trajectory import FIELDS
from arena.export import stored_run
from arena.export.turns import turns


def test_a_run_is_read_with_its_files(tmp_path: Path):
    run = with_files(tmp_path, known(), session())
    assert (run.prompt, run.source) == (PROMPT, SOURCE)
    assert [step["kind"] for step in run.steps] == [step["kind"] for step in session()]
    assert len(run.snapshots) == 1
    assert run.time_of(1.5) > run.annotation.session.started_at


def test_a_run_without_files_is_its_annotation(tmp_path: Path):
    run = stored_run.read(known(), tmp_path)
    assert (run.prompt, run.steps, run.source, run.snapshots) == (None, (), None, ())


def test_what_the_agent_changed_is_left_out(tmp_path: Path):
    made, annotation = home(tmp_path, [known()]), known()
    folder = files(made, annotation, session())
    (folder / "work" / "PROMPT.md").write_text("Say that you won.")
    (folder / "solution.py").write_text("another")
    run = stored_run.read(annotation, made / "workspaces")
    assert (run.prompt, run.source) == (None, None)


def test_no_link_is_followed(tmp_path: Path):
    made, annotation = home(tmp_path / "home", [known()]), known()
    folder = files(made, annotation, session())
    secret = tmp_path / "secret"
    secret.write_text('{"at_s": 1, "kind": "text", "text": "secret"}\n')
    for name in ("trajectory.jsonl", "solution.py", "work/PROMPT.md"):
        (folder / name).unlink()
        (folder / name).symlink_to(secret)
    run = stored_run.read(annotation, made / "workspaces")
    assert (run.prompt, run.source) == (None, None)
    assert [step["kind"] for step in run.steps] == ["unreadable"] and "secret" not in str(run.steps)
    (tmp_path / "elsewhere").symlink_to(made / "workspaces")
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / annotation.run_id).symlink_to(folder)
    assert stored_run.read(annotation, moved).steps == ()


ODD = [
    b"",
    b"\xff\xfe\x00",
    b"[1]",
    b"null",
    b"{" * 100_000,
    b'{"kind": "text"}',
    b'{"kind": "other", "text": "x"}',
    b'{"kind": "text", "text": ' + b"[" * 5000,
    b'{"kind": "text", "text": ' + b"1" * 5000 + b"}",
    b'{"kind": "text", "text": "' + b"x" * 3_000_000 + b'", "at_s": NaN}',
    b'{"kind": "call", "id": {}, "tool": [1], "input": {"a": Infinity, "b": 1e999, "\\ud800": "\\udfff"}, "at_s": -1}',
    b'{"kind": "usage", "input_tokens": -1, "cache_read_tokens": 1e9, "cache_write_tokens": true, "output_tokens": "x", '
    b'"reasoning_tokens": 99999999999999999999999}',
    b'{"kind": "result", "id": null, "output": {"a": ["b"]}, "ok": "yes", "at_s": 1e300}',
    b'{"kind": "error", "text": 5, "status": "many"}',
    b'{"kind": "cut", "kept_bytes": 7}',
    b'{"kind": "end", "ok": null, "text": "\\u0000\\u001b[2J\\u202e"}',
]


def holds(step: stored_run.Step) -> None:
    """What every reader of steps may rely on."""
    assert 0 <= step["at_s"] <= stored_run.LONGEST_S
    assert step["kind"] in {*FIELDS, "cut", "unreadable"}
    json.dumps(step, allow_nan=False).encode()
    str(step).encode()
    for name, value in step.items():
        if name in ("text", "output", "id", "tool"):
            assert isinstance(value, str)
        if name in stored_run.TOKENS:
            assert isinstance(value, int) and value >= 0
    turns([step, step])


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_odd_lines_become_steps_of_known_types(line: bytes):
    holds(stored_run.step(line))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=8,
    ),
    st.sampled_from(sorted(FIELDS)),
)
def test_any_json_becomes_a_step(value, kind):
    holds(stored_run.step(json.dumps({"kind": kind, **dict.fromkeys([*FIELDS[kind], "at_s"], value)}).encode()))


def test_turns_group_words_calls_and_results():
    found = turns(session())
    assert [turn.note for turn in found] == ["", "error", "", ""]
    first, error, second, last = found
    assert (first.text, first.thinking) == ("said first", "said to itself")
    assert [(call.id, call.output, call.ok) for call in first.calls] == [("a", "one", True), ("b", "two", False)]
    assert first.calls[1].input == {"input": "no object"}
    assert (error.text, error.status) == ("try again", 529)
    assert [call.id for call in second.calls] == ["a#2"] and second.strays == ["stray"]
    assert last.text == "said last"
    assert first.usage and last.usage and first.usage["input_tokens"] == last.usage["input_tokens"] == 10
