"""Write the site: all pages into a temporary folder, which then takes the place of the old one."""

from __future__ import annotations

import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from arena.errors import ArenaError, UsageError
from arena.files import documents
from arena.results.board import NOT_COUNTED
from arena.schema import Annotation
from arena.site import compare_page, cost_page, index_page, keys, problem_page, run_page
from arena.site.render import Renderer, csv
from arena.site.results import Link, Results, problem_path, row_name, run_path

ENTRIES = frozenset({"index.html", "cost.html", "method.html", "p", "r", "c", "data"})
"""What a site has at its top."""
MARK = '<meta name="generator" content="arena site">'
"""On the first page of every site: a folder without it is not replaced."""


class Writer:
    """A folder of pages, complete when the block ends well, and gone when it does not."""

    def __init__(self, out: Path) -> None:
        self._out = out.resolve()
        self._folder = self._out.parent / f".{self._out.name}.{secrets.token_hex(4)}.tmp"
        self._keys = keys.known()
        self.files: list[str] = []

    def __enter__(self) -> Writer:
        if self._out.exists():
            _check_replaceable(self._out)
        self._folder.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            shutil.rmtree(self._folder)
            return
        old = self._folder.with_suffix(".old.tmp")
        if self._out.exists():
            self._out.rename(old)
        self._folder.rename(self._out)
        shutil.rmtree(old, ignore_errors=True)

    def add(self, path: str, text: str, run: str = "") -> None:
        """Write one file. ArenaError when it holds a key."""
        if self._keys and (place := keys.place_of_key(text, self._keys)) is not None:
            where = f"run {run}: " if run else ""
            remedy = "replace the key at its provider, and remove it from the run's files"
            raise ArenaError(f"{where}{path}#{place} would hold one of your own keys: nothing was written; {remedy}")
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        # Not flushed to the disk one by one: the folder gets its name when all are written, and can be made again.
        file.write_bytes(text.encode())
        self.files.append(path)


def build(results: Results, out: Path, compared: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Write the site into `out` and return its files. The same records give the same bytes.

    `compared`: pairs of run ids that get a page side by side, besides those that every site has.
    """
    renderer, pairs = Renderer(), compare_page.chosen(results, compared)
    beside: dict[str, list[Link]] = defaultdict(list)
    columns: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for first, second in pairs:
        link = Link(compare_page.compare_path(first, second), compare_page.compare_title(first, second))
        columns[first.table.hardware, first.key].append(link)
        for place in (first, second):
            beside[place.trial.run_id].append(link)
    with Writer(out) as writer:
        # First, so that an error names the run.
        for run_id, annotation in results.annotations.items():
            _run(writer, renderer, results, annotation, beside[run_id])
        for pair in pairs:
            page, href = compare_page.page(results, *pair), problem_path(pair[0].table, pair[0].key)
            writer.add(page.path, renderer.page("compare", page.path, page=page, problem_href=href))
        heatmaps = index_page.heatmaps(results, compare_page.best_two(results))
        writer.add("index.html", renderer.page("index", "index.html", heatmaps=heatmaps))
        writer.add("cost.html", renderer.page("cost", "cost.html", tables=cost_page.tables(results)))
        writer.add("method.html", renderer.page("method", "method.html", not_counted=sorted(NOT_COUNTED)))
        for problem in problem_page.pages(results, columns):
            writer.add(problem.path, renderer.page("problem", problem.path, page=problem))
        _data(writer, results)
    return sorted(writer.files)


def _run(writer: Writer, renderer: Renderer, results: Results, annotation: Annotation, beside: Sequence[Link]) -> None:
    run_id = annotation.run_id
    page, (table, key, row, trial) = run_page.page(results, annotation), results.places[run_id]
    transcript, changes = [], []
    if page.files:
        transcript = renderer.transcript(page.files.steps.steps, page.files.spent)
        changes = renderer.changes(page.files.changes)
    place = {"problem_href": problem_path(table, key), "key": key, "name": row_name(row), "outcome": trial.outcome}
    pages = {"transcript": transcript, "changes": changes, "shown": results.shown, "page": page, "run_id": run_id, **place}

    def add(path: str, template: str, **variables: object) -> None:
        writer.add(path, renderer.page(template, path, **pages, **variables), run_id)

    add(run_path(run_id), "run", beside=beside)
    for at, part in enumerate(transcript, start=1):
        add(f"r/{run_id}/t{at}.html", "transcript", at=at, part=part)
    for at, part in enumerate(changes, start=1):
        add(f"r/{run_id}/d{at}.html", "changes", at=at, part=part)
    if page.files and page.files.source is not None:
        add(f"r/{run_id}/source.html", "source")


def _data(writer: Writer, results: Results) -> None:
    """The records behind the pages, for programs."""
    writer.add("data/leaderboard.json", documents.to_json(results.board))
    rows = []
    for run_id, annotation in results.annotations.items():
        cell, session, score = annotation.cell, annotation.session, annotation.score
        writer.add(f"data/annotations/{run_id}.yaml", documents.to_yaml(annotation), run_id)
        rows.append(
            {
                "run_id": run_id,
                "hardware": cell.hardware,
                "problem": cell.problem,
                "problem_version": cell.problem_version,
                "harness": cell.harness,
                "model": cell.model,
                "effort": cell.effort or "",
                "turns": cell.turns or "",
                "profile": cell.profile,
                "budget_s": cell.budget_s,
                "network": session.network,
                "agent_status": session.agent_status,
                "verdict": score.verdict,
                "review": annotation.review.verdict if annotation.review else "",
                "peak_fraction": getattr(score, "peak_fraction", None),
                "unsteady": getattr(score, "unsteady", None),
                "brief": getattr(score, "brief", None),
                "elapsed_s": session.elapsed_s,
                "cost_usd": session.usage.cost_usd if session.usage else None,
                "started_at": session.started_at.isoformat(),
            }
        )
    writer.add("data/trials.csv", csv(rows))
    for run_id, curve in results.curves.items():
        if run_id in results.annotations:
            writer.add(f"data/curves/{run_id}.yaml", documents.to_yaml(curve), run_id)


def _check_replaceable(out: Path) -> None:
    """UsageError unless the folder is empty, or holds a site and nothing else at its top."""
    first = out / "index.html"
    if out.is_dir() and not any(out.iterdir()):
        return
    if not (first.is_file() and MARK.encode() in first.read_bytes()[:4096]):
        raise UsageError(f"{out}: is not empty and no site of arena's: choose another folder with --out")
    if other := sorted({entry.name for entry in out.iterdir()} - ENTRIES):
        raise UsageError(
            f"{out}: holds {other[0]!r}, which is no part of a site and would be deleted: move it, or choose another --out"
        )
