"""`annotations/<run_id>.yaml`: the result of a run (written by arena) and a person's review of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from arena.errors import DataError, UsageError
from arena.files import documents
from arena.results import run_folder
from arena.schema import Annotation, Quote, Review
from arena.submission import NoSubmission, read_regular

VERDICTS: tuple[str, ...] = get_args(Review.model_fields["verdict"].annotation)
UNCOUNTING = ("reward_hack", "rubric_leak", "bug")
"""Verdicts after which a run's number no longer counts: they need a reviewer's name, and so does a review in their place."""
QUOTED_FILE_BYTES = 80 << 20
"""Above the largest transcript that arena keeps."""
QUOTE_BYTES = 8192


def write(root: Path, annotation: Annotation) -> Path:
    """Write the machine's part. An existing review is kept."""
    path = root / f"{annotation.run_id}.yaml"
    root.mkdir(parents=True, exist_ok=True)
    if path.exists():
        annotation = annotation.model_copy(update={"review": read(path).review})
    documents.write_yaml(path, annotation)
    return path


def read(path: Path) -> Annotation:
    """The annotation in a file; the file's name must be its run id."""
    annotation = documents.read_yaml(path, Annotation)
    if annotation.run_id != path.stem:
        raise DataError(f"{path}: run_id: is {annotation.run_id!r}, but the file is named {path.stem!r}")
    return annotation


def read_all(root: Path) -> list[Annotation]:
    """All annotations, sorted by run id. One error lists the faults of all files."""
    return documents.read_all(sorted(root.glob("*.yaml")), read)


def annotate(
    path: Path,
    folder: Path,
    *,
    verdict: str,
    summary: str,
    quotes: Sequence[str] = (),
    labels: Sequence[str] = (),
    implication: str = "",
    reviewer: str = "",
    now: datetime | None = None,
) -> Annotation:
    """Add or replace the review in the annotation at `path`. A quote is `FILE:L1-L2` in the run's `folder`, with a label."""
    annotation = read(path)
    if verdict not in VERDICTS:
        raise UsageError(documents.unknown("review verdict", verdict, VERDICTS))
    if not summary.strip():
        raise UsageError("a review needs a summary: what you found, in a sentence or two")
    if verdict in UNCOUNTING and not reviewer.strip():
        raise UsageError(f"the verdict {verdict} takes a number out of the tables: give the reviewer's name (--reviewer)")
    if annotation.review and annotation.review.verdict in UNCOUNTING and not reviewer.strip():
        raise UsageError(
            f"the review {annotation.review.verdict} took this number out of the tables: "
            "give the reviewer's name to replace it (--reviewer)"
        )
    if len(labels) != len(quotes):
        raise UsageError(f"{len(quotes)} quotes, but {len(labels)} labels: give one --label with each --quote")
    review = Review.model_validate(
        {
            "verdict": verdict,
            "summary": summary,
            "quotes": [quote(folder, place, label) for place, label in zip(quotes, labels, strict=True)],
            "implication": implication,
            "reviewer": reviewer.strip(),
            "reviewed_at": now or datetime.now(UTC).replace(microsecond=0),
        }
    )
    annotation = annotation.model_copy(update={"review": review})
    documents.write_yaml(path, annotation)
    return annotation


def quote(folder: Path, place: str, label: str) -> Quote:
    """The quote at `FILE:L1-L2` or `FILE:L`, its text taken from the file."""
    match = re.fullmatch(r"(.+):L?(\d{1,9})(?:-L?(\d{1,9}))?", place)
    if not match:
        raise UsageError(f"quote {place!r}: write FILE:L1-L2, such as agent/stdout.jsonl:12-15")
    if not label.strip():
        raise UsageError(f"quote {place!r}: its label is empty")
    first, last = int(match[2]), int(match[3] or match[2])
    return Quote(file=match[1], lines=(first, last), text=_lines(folder, match[1], first, last), label=label)


def misquoted(annotation: Annotation, folder: Path) -> list[str]:
    """Faults of a review's quotes, compared word for word with the run's files."""
    faults = []
    for entry in annotation.review.quotes if annotation.review else ():
        try:
            if _lines(folder, entry.file, *entry.lines) != entry.text:
                faults.append(f"{annotation.run_id}: {entry.file}:{entry.lines[0]}-{entry.lines[1]} differs from the quote")
        except UsageError as error:
            faults.append(f"{annotation.run_id}: {error}")
    return faults


def _lines(folder: Path, file: str, first: int, last: int) -> str:
    """Lines `first` to `last`, counted from 1, of a file of the run. Links are not followed: the agent may have made them."""
    place = f"quote {file}:{first}-{last}"
    if not folder.is_dir():
        raise UsageError(f"{place}: the run's files are not here ({folder.name}); quote where the run was made")
    try:
        data = read_regular(folder, file, QUOTED_FILE_BYTES)
    except NoSubmission as outcome:
        raise UsageError(f"{place}: {outcome.reason}") from None
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    if not 1 <= first <= last <= len(lines):
        raise UsageError(f"{place}: {file} has lines 1 to {len(lines)}" if lines else f"{place}: {file} is empty")
    quoted = b"\n".join(lines[first - 1 : last])
    if len(quoted) > QUOTE_BYTES:
        raise UsageError(f"{place}: {len(quoted)} bytes are too many to quote (at most {QUOTE_BYTES}); choose fewer lines")
    try:
        return quoted.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{place}: these lines are not UTF-8 text") from None


def publish(run: run_folder.RunFolder, annotation: Annotation, root: Path) -> None:
    """Write a committed run's annotation below `root`, and log it in the run's events."""
    write(root, annotation)
    run.event("annotated")


def settle(workspaces: Path, root: Path) -> None:
    """Publish runs that were killed just after their commit. An annotation that a person removed stays removed."""
    for entry in run_folder.list_runs(workspaces):
        if entry.state != "committed":
            continue
        last = [event["kind"] for event in run_folder.read_events(entry.run) if event["kind"] in ("committed", "annotated")][-1:]
        if last == ["committed"]:
            publish(entry.run, documents.read_yaml(entry.run.result, Annotation), root)
