"""The leaderboard: which trials count, what each field says, and that the same annotations give the same bytes."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from records import trial, unsteady

from arena.results import leaderboard
from arena.results.board import Board, Entry
from arena.results.render import page
from arena.schema import Annotation

NETWORKS = ((0.9, "open"), (0.5, "none"), (0.4, "gateway"), (0.6, "allow"))


def board(*trials: Annotation) -> Board:
    return leaderboard.build(trials)


def entry(*trials: Annotation) -> Entry:
    (table,) = board(*trials).tables
    (row,) = table.rows
    (found,) = row.entries.values()
    return found


def field(*trials: Annotation) -> str:
    """What the table says of these trials of one row at one problem."""
    text = page(board(*trials))
    (line,) = re.findall(r"^\| builtin · .*$", text.partition("Highest single")[0].partition("<details>")[0], re.MULTILINE)
    return line.split(" | ")[2]


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ([(0.6137,)], "0.61 1/1"),
        ([(0.58,), (0.614,), (0.64,)], "0.61 (0.58–0.64, 75 %) 3/3"),
        ([(0.5,), (0.7,)], "0.6 (0.50–0.70, 50 %) 2/2"),
        ([(0.5,), ("incorrect",), ("incorrect",), ("timed_out",)], "0.50 1/4"),
        ([("incorrect",)], "0/1<br>failed: incorrect"),
        ([("incorrect",), ("incorrect",), ("timed_out",)], "0/3<br>failed: incorrect ×2, timed_out"),
        ([("forbidden",), ("cheated",), ("crashed",)], "0/3<br>failed: cheated, crashed, forbidden"),
        ([("missing",)], "0/1<br>failed: missing"),
        ([("missing",), (0.5,)], "0.50 1/2"),
        ([("judge_failed",)], "not counted: judge_failed"),
        (
            [("missing", "interesting"), ("judge_failed",), ("judge_failed", "bug")],
            "0/1<br>failed: missing§<br>not counted: bug¶, judge_failed",
        ),
        ([("judge_failed",), (0.5,)], "0.50 1/1<br>not counted: judge_failed"),
        ([(0.4, "clean"), (0.6,)], "0.5✓ (0.40–0.60, 50 %) 2/2"),
        ([(0.4, "interesting")], "0.40§ 1/1"),
        ([("incorrect", "interesting")], "0/1<br>failed: incorrect§"),
        ([(0.93, "reward_hack")], "0/1<br>withdrawn: ~~0.93~~†"),
        ([(0.93, "rubric_leak"), (0.5,)], "0.50 1/2<br>withdrawn: ~~0.93~~‡"),
        ([("incorrect", "reward_hack")], "0/1<br>failed: incorrect†"),
        ([(0.5, "bug")], "not counted: bug¶"),
        ([(0.97,)], "0.97? 1/1"),
        ([(0.97, "clean")], "0.97✓ 1/1"),
        ([(0.5, None, "provider_error")], "not counted: provider_error"),
        ([("missing", None, "provider_error")], "not counted: provider_error"),
        ([(0.5, None, "deadline")], "0.50 1/1"),
        ([(0.5, None, "complete", "gateway")], "0.50 1/1"),
        ([(0.5, None, "complete", "open")], "0.50◇ 1/1"),
        ([(0.5, None, "complete", "allow")], "0.50◇ 1/1"),
    ],
    ids=lambda value: None if isinstance(value, list) else value,
)
def test_page_shows_each_outcome_in_its_field(trials: list[tuple], text: str) -> None:
    assert field(*(trial(outcome, number, *more) for number, (outcome, *more) in enumerate(trials))) == text


def test_unsteady_trials_are_marked() -> None:
    shaky = unsteady(trial(0.6, 1))
    assert [each.unsteady for each in entry(trial(0.5), shaky).trials] == [False, True]
    assert field(trial(0.5), shaky) == "0.55?± (0.50–0.60, 50 %) 2/2"
    assert field(unsteady(trial(0.97))) == "0.97?± 1/1"
    assert field(unsteady(trial(0.6, 0, "clean"))) == "0.60±✓ 1/1"
    text = page(board(trial(0.5), shaky))
    assert "| passed?± | 0.6 |" in text
    assert "| paged_attention v1 | 0.60?± |" in text, "the best number of a problem keeps its mark"


def test_entry_counts_passed_and_failed_trials() -> None:
    found = entry(
        trial(0.4, 0),
        trial(0.8, 1),
        trial("missing", 2),
        trial("incorrect", 3),
        trial("judge_failed", 4),
        trial(0.99, 5, "reward_hack"),
        trial(0.99, 6, "bug"),
        trial(0.99, 7, None, "provider_error"),
    )
    assert (found.passed, found.counted) == (2, 5)
    assert found.median == pytest.approx(0.6)
    assert (found.best, found.low, found.high) == (0.8, 0.4, 0.8)
    assert found.outcomes == {
        "passed": 2,
        "missing": 1,
        "incorrect": 1,
        "judge_failed": 1,
        "withdrawn": 1,
        "bug": 1,
        "provider_error": 1,
    }
    assert [item.peak_fraction for item in found.trials].count(0.99) == 3, "the numbers stay on record"


def test_failures_have_no_number() -> None:
    found = entry(trial("incorrect"), trial("missing", 1), trial("judge_failed", 2))
    assert (found.median, found.best, found.low, found.high) == (None, None, None, None)
    assert "0.000" not in page(board(trial("incorrect"), trial("missing", 1), trial("judge_failed", 2)))


@pytest.mark.parametrize(
    "change", [{"model": "naive"}, {"effort": "high"}, {"budget_s": 60}, {"harness": "other"}, {"harness_digest": "c" * 64}]
)
def test_rows_differ_by_agent_and_budget(change: dict) -> None:
    (table,) = board(trial(0.5), trial(0.6, 1, **change)).tables
    assert len(table.rows) == 2
    assert [row.entries["paged_attention v1"].median for row in table.rows] == [0.6, 0.5]
    assert ("(bbbbbbbb)" in page(board(trial(0.5), trial(0.6, 1, **change)))) == ("harness_digest" in change)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, ["paged_attention v1"]),
        ({"problem_version": 2}, ["paged_attention v1", "paged_attention v2"]),
        ({"problem_digest": "c" * 64}, ["paged_attention v1 (aaaaaaaa)", "paged_attention v1 (cccccccc)"]),
        ({"problem": "top_k"}, ["paged_attention v1", "top_k v1"]),
    ],
)
def test_columns_differ_by_state_of_the_problem(change: dict, keys: list[str]) -> None:
    (table,) = board(trial(0.5), trial(0.6, 1, **change)).tables
    assert [column.key for column in table.columns] == keys
    (row,) = table.rows
    assert list(row.entries) == keys


def test_rows_differ_by_network() -> None:
    trials = [trial(fraction, n, None, "complete", reach) for n, (fraction, reach) in enumerate(NETWORKS)]
    (table,) = board(*trials).tables
    rows = [(row.network, row.entries["paged_attention v1"].passed) for row in table.rows]
    assert rows == [("sealed", 2), ("allow", 1), ("unsealed", 1)]
    text = page(board(*trials))
    assert "| builtin · oracle · **unsealed** | 45 min | 0.90◇ 1/1 |" in text
    assert "| builtin · oracle · allowed mirror.test | 45 min | 0.60◇ 1/1 |" in text
    assert "| builtin · oracle | 45 min | 0.45 (0.40–0.50, 50 %) 2/2 |" in text
    assert [best.trial.peak_fraction for best in table.best] == [0.6], "an unsealed number is never the best"


def test_rows_differ_by_provider() -> None:
    broker = {"route": "openrouter", "model_id": "a/b"}
    pinned, free = trial(0.5, 0, provider=("one", "two"), **broker), trial(0.6, 1, **broker)
    free = free.model_copy(update={"session": free.session.model_copy(update={"unpinned": True})})
    (table,) = board(pinned, free, trial(0.7, 2)).tables
    assert sorted((row.provider, row.unpinned) for row in table.rows) == [((), False), ((), True), (("one", "two"), False)]
    text = page(board(pinned, free))
    assert "| builtin · oracle · via one, two | 45 min | 0.50 1/1 |" in text
    assert "| builtin · oracle · **unpinned** | 45 min | 0.60 1/1 |" in text


def test_hardware_is_never_mixed() -> None:
    tables = board(trial(0.5), trial(0.6, 1, hardware="cpu"), trial("incorrect", 2, hardware="b200")).tables
    assert [(table.hardware, len(table.devices)) for table in tables] == [("b200", 0), ("cpu", 1), ("h200", 1)]
    assert tables[2].devices == ("NVIDIA H200 (datasheet ceilings)",)


def test_rows_with_more_solved_come_first() -> None:
    (table,) = board(
        trial(0.9, 0, model="one"),
        trial(0.2, 1, model="two"),
        trial(0.3, 2, model="two", problem="top_k"),
        trial("incorrect", 3, model="b"),
        trial("judge_failed", 4, model="a"),
        trial(0.3, 5, model="three"),
        trial(0.3, 6, model="three", problem="top_k"),
    ).tables
    assert [row.model for row in table.rows] == ["three", "two", "one", "a", "b"]


def test_an_old_version_stands_apart_from_the_newest() -> None:
    old: dict[str, Any] = {"problem_version": 1}
    new: dict[str, Any] = {"problem_version": 2, "problem_digest": "c" * 64}
    (table,) = board(
        trial(0.9, 0, model="both", **old),
        trial(0.2, 1, model="both", **new),
        trial(0.95, 2, model="old", **old),
        trial(0.95, 3, model="old", problem="top_k", **old),
        trial(0.3, 4, model="new", **new),
        trial(0.1, 5, model="new", problem="top_k", **old),
    ).tables
    assert [(column.key, column.superseded) for column in table.columns] == [
        ("paged_attention v1", True),
        ("paged_attention v2", False),
        ("top_k v1", False),
    ]
    assert [row.model for row in table.rows] == ["new", "old", "both"], "an old version's number moves no row"
    assert {row.model: {key: entry.median for key, entry in row.entries.items()} for row in table.rows}["both"] == {
        "paged_attention v1": 0.9,
        "paged_attention v2": 0.2,
    }
    assert [(best.column, best.model) for best in table.best] == [
        ("paged_attention v1", "old"),
        ("paged_attention v2", "new"),
        ("top_k v1", "old"),
    ]
    lines = page(Board(trials=6, tables=(table,))).splitlines()
    solved = {
        line.split(" | ")[0]: line.split(" | ")[-1].removesuffix(" |") for line in lines if re.match(r"\| builtin · \w+ \|", line)
    }
    assert solved == {"| builtin · new": "2/2", "| builtin · old": "1/1", "| builtin · both": "1/1"}


def test_best_omits_withdrawn_numbers() -> None:
    (table,) = board(
        trial(0.9, 0, "reward_hack"), trial(0.5, 1), trial(0.6, 2, model="naive"), trial("missing", 3, problem="top_k")
    ).tables
    assert [(best.column, best.model, best.trial.peak_fraction) for best in table.best] == [("paged_attention v1", "naive", 0.6)]


def test_page_lists_reviews() -> None:
    text = page(board(trial(0.9, 0, "reward_hack"), trial(0.5, 1)))
    assert "Read before citing:\n\n- † **reward_hack** in [20260102T030405Z_builtin_oracle_paged_attention_0000](" in text
    assert ".yaml): It is reward_hack. So it is.\n" in text


def everything() -> list[Annotation]:
    outcomes = (0.5, 0.7, 0.96, "incorrect", "missing", "judge_failed", "crashed")
    reviews = (None, "clean", None, "reward_hack", "bug")
    return [
        trial(
            outcomes[n % 7],
            n,
            reviews[n % 5],
            model=f"m{n % 4}",
            problem=f"p{n % 3}",
            hardware=("cpu", "h200")[n % 2],
            network=("none", "open")[n % 11 == 0],
        )
        for n in range(60)
    ]


def test_same_annotations_same_bytes(tmp_path: Path) -> None:
    annotations = everything()
    leaderboard.write(tmp_path / "a", annotations)
    random.Random(1).shuffle(annotations)
    leaderboard.write(tmp_path / "b", iter(annotations))
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"LEADERBOARD.md", "leaderboard.json", "cpu.svg", "h200.svg"}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    document = json.loads((tmp_path / "a" / "leaderboard.json").read_text())
    assert document["schema_version"] == 3
    assert Board.model_validate(document) == leaderboard.build(annotations)


def test_page_tables_are_complete() -> None:
    """Each block of table lines has as many cells in every line as in its head, and stands between empty lines."""
    text = page(board(*everything()))
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(blocks) == 2 + 2 * 4
    for block in blocks:
        lines = block.splitlines()
        assert re.fullmatch(r"\|(---\|)+", lines[1])
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(re.findall(r"(?<!\\)\|", lines[0]))}, block
        assert f"\n\n{block}" in text and f"{block}\n" in text


def test_empty_board_renders() -> None:
    assert "Nothing has been run yet." in page(board())


def test_page_escapes_names() -> None:
    hostile = trial(0.5, 0, model="a|b<script>*_x_\n# `y`[z](w)")
    text = page(board(hostile))
    assert r"a\|b\<script\>\*\_x\_ \# \`y\`\[z\](w)" in text
    assert "<script>" not in text
