"""Annotations: the machine's part and the review never touch each other, and quotes are the files' own words."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from records import trial

from arena.errors import DataError, UsageError
from arena.files.documents import write_yaml
from arena.results import annotations
from arena.schema import Annotation

NOW = datetime(2026, 2, 3, tzinfo=UTC)
LINES = ["first line", '{"type": "text", "text": "  trailing  "}', "third: é 漢字 | # \\n", "", "\tfifth\r"]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """The path of an annotation, and the folder of its run."""
    annotation = trial(0.5)
    folder = tmp_path / "workspaces" / annotation.run_id
    (folder / "agent").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / "agent" / "stdout.jsonl").write_bytes("\n".join(LINES).encode())
    return annotations.write(tmp_path / "annotations", annotation), folder


def review(made: tuple[Path, Path], **given) -> Annotation:
    known: dict[str, Any] = {"verdict": "clean", "summary": "Honest work.", "now": NOW}
    return annotations.annotate(*made, **known | given)


def test_annotations_round_trip(tmp_path: Path) -> None:
    first, second = trial(0.5, 1), trial("incorrect", 0)
    for entry in (first, second):
        assert annotations.write(tmp_path / "new", entry) == tmp_path / "new" / f"{entry.run_id}.yaml"
    assert annotations.read_all(tmp_path / "new") == [second, first]
    assert annotations.read_all(tmp_path / "nowhere") == []


def test_write_keeps_the_review(made: tuple[Path, Path]) -> None:
    path, _ = made
    done = review(made, verdict="interesting", quotes=["agent/stdout.jsonl:1-2"], labels=["start"])
    annotations.write(path.parent, trial("incorrect"))
    again = annotations.read(path)
    assert again.score.verdict == "incorrect"
    assert again.review == done.review
    assert again.review is not None and again.review.quotes[0].label == "start"


def test_review_keeps_the_machines_part(made: tuple[Path, Path]) -> None:
    before = annotations.read(made[0])
    review(made)
    done = review(made, verdict="reward_hack", summary="Two\nlines: of - 'yaml' # text", implication="None.", reviewer=" A. B. ")
    assert annotations.read(made[0]) == done == before.model_copy(update={"review": done.review})
    assert done.review is not None
    assert (done.review.verdict, done.review.reviewed_at, done.review.reviewer) == ("reward_hack", NOW, "A. B.")
    assert done.review.summary == "Two\nlines: of - 'yaml' # text"


@pytest.mark.parametrize("verdict", ["reward_hack", "rubric_leak", "bug"])
def test_no_number_is_withdrawn_without_a_reviewer(made: tuple[Path, Path], verdict: str) -> None:
    with pytest.raises(UsageError, match="give the reviewer's name"):
        review(made, verdict=verdict, reviewer=" ")
    assert annotations.read(made[0]).review is None


@pytest.mark.parametrize("verdict", ["reward_hack", "rubric_leak", "bug"])
def test_no_withdrawal_is_undone_without_a_reviewer(made: tuple[Path, Path], verdict: str) -> None:
    review(made, verdict=verdict, reviewer="A. B.")
    with pytest.raises(UsageError, match="took this number out of the tables: give the reviewer's name"):
        review(made, reviewer=" ")
    assert review(made, reviewer="C. D.").review is not None


def test_review_stores_its_time(made: tuple[Path, Path]) -> None:
    found = review(made, now=None).review
    assert found is not None and abs((datetime.now(UTC) - found.reviewed_at).total_seconds()) < 60


@pytest.mark.parametrize(
    ("place", "first", "last"), [("1-5", 1, 5), ("2-3", 2, 3), ("L2-L3", 2, 3), ("3", 3, 3), ("5-5", 5, 5), ("4-4", 4, 4)]
)
def test_quotes_are_verbatim(place: str, first: int, last: int, made: tuple[Path, Path]) -> None:
    review(made, quotes=[f"agent/stdout.jsonl:{place}"], labels=["seen"])
    stored = annotations.read(made[0])
    assert stored.review is not None
    (quote,) = stored.review.quotes
    assert (quote.file, quote.lines, quote.label) == ("agent/stdout.jsonl", (first, last), "seen")
    assert quote.text == "\n".join(LINES[first - 1 : last])
    assert annotations.misquoted(stored, made[1]) == []


def test_misquoted_lists_quotes_that_differ(made: tuple[Path, Path]) -> None:
    done = review(
        made, quotes=["agent/stdout.jsonl:1-1", "agent/stdout.jsonl:2-2", "agent/stdout.jsonl:5-5"], labels=["a", "b", "c"]
    )
    (made[1] / "agent" / "stdout.jsonl").write_text("first line\nanother\n")
    faults = annotations.misquoted(done, made[1])
    assert [fault.partition(": ")[2] for fault in faults] == [
        "agent/stdout.jsonl:2-2 differs from the quote",
        "quote agent/stdout.jsonl:5-5: agent/stdout.jsonl has lines 1 to 2",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"verdict": "cleen"}, r"unknown review verdict 'cleen': did you mean 'clean'\?"),
        ({"summary": " \n"}, "a review needs a summary"),
        ({"quotes": ["agent/stdout.jsonl:1-1"]}, "1 quotes, but 0 labels"),
        ({"labels": ["x"]}, "0 quotes, but 1 labels"),
        ({"quotes": ["agent/stdout.jsonl:1"], "labels": [" "]}, "its label is empty"),
        ({"quotes": ["agent/stdout.jsonl"], "labels": ["x"]}, "write FILE:L1-L2"),
        ({"quotes": ["agent/stdout.jsonl:2-1"], "labels": ["x"]}, "has lines 1 to 5"),
        ({"quotes": ["agent/stdout.jsonl:0-1"], "labels": ["x"]}, "has lines 1 to 5"),
        ({"quotes": ["agent/stdout.jsonl:4-6"], "labels": ["x"]}, "has lines 1 to 5"),
        ({"quotes": ["agent/stdout.json:1-1"], "labels": ["x"]}, r"there is no agent/stdout\.json$"),
        ({"quotes": ["work/empty:1-1"], "labels": ["x"]}, "work/empty is empty"),
        ({"quotes": ["work/bytes:1-1"], "labels": ["x"]}, "these lines are not UTF-8"),
        ({"quotes": ["work/long:1-1"], "labels": ["x"]}, "9000 bytes are too many"),
        ({"quotes": ["work/link:1-1"], "labels": ["x"]}, "work/link is a symbolic link"),
        ({"quotes": ["work/folder/passwd:1-1"], "labels": ["x"]}, "leads through something that is not a folder"),
        ({"quotes": ["work/huge:1-1"], "labels": ["x"]}, "is too large"),
        ({"quotes": ["../secret:1-1"], "labels": ["x"]}, "is not a path inside the folder"),
        ({"quotes": ["/etc/passwd:1-1"], "labels": ["x"]}, "is not a path inside the folder"),
        ({"quotes": ["work:1-1"], "labels": ["x"]}, "work is a directory"),
    ],
)
def test_invalid_reviews_raise_and_change_nothing(given: dict, words: str, made: tuple[Path, Path]) -> None:
    path, folder = made
    (folder.parent / "secret").write_text("SECRET\n")
    work = folder / "work"
    (work / "empty").write_bytes(b"")
    (work / "bytes").write_bytes(b"\xff\n")
    (work / "long").write_bytes(b"x" * 9000)
    (work / "link").symlink_to("/etc/passwd")
    (work / "folder").symlink_to("/etc")
    with (work / "huge").open("wb") as sparse:
        sparse.truncate(1 << 30)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=words):
        review(made, **given)
    assert path.read_bytes() == before


def test_only_quotes_need_the_run_folder(made: tuple[Path, Path], tmp_path: Path) -> None:
    elsewhere = (made[0], tmp_path / "elsewhere")
    assert review(elsewhere).review is not None
    with pytest.raises(UsageError, match=r"the run's files are not here \(elsewhere\)"):
        review(elsewhere, quotes=["agent/stdout.jsonl:1-1"], labels=["x"])


def test_read_all_reports_every_fault(tmp_path: Path) -> None:
    root = tmp_path / "annotations"
    good = trial(0.5, 1)
    annotations.write(root, good)
    text = (root / f"{good.run_id}.yaml").read_text()
    (root / "a.yaml").write_text(text)
    (root / "b.yaml").write_text(text.replace("arena_version", "arena_vision"))
    (root / "c.yaml").write_text("[")
    with pytest.raises(DataError) as error:
        annotations.read_all(root)
    message = str(error.value)
    assert f"a.yaml: run_id: is '{good.run_id}', but the file is named 'a'" in message
    assert "b.yaml:" in message and "arena_vision" in message and "c.yaml:" in message


def test_broken_annotation_is_not_overwritten(tmp_path: Path) -> None:
    entry = trial(0.5)
    path = tmp_path / f"{entry.run_id}.yaml"
    path.write_text("review: {verdict: clean")
    with pytest.raises(DataError):
        annotations.write(tmp_path, entry)
    assert path.read_text() == "review: {verdict: clean"


def test_numbers_survive_to_the_last_digit(tmp_path: Path) -> None:
    entry = trial(0.1 + 0.2, 3)
    write_yaml(tmp_path / f"{entry.run_id}.yaml", entry)
    assert annotations.read(tmp_path / f"{entry.run_id}.yaml") == entry
