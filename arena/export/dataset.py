"""All results as a data set: JSON lines and a data card, which the Hugging Face Hub reads as they are."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import arena
from arena.errors import UsageError
from arena.export import keys, stored_run
from arena.export.stored_run import TOKENS, StoredRun
from arena.files.text import render
from arena.results import leaderboard
from arena.schema import Annotation, Passed
from arena.site.results import Results
from arena.system import tempdirs

CARD = Path(__file__).with_name("data_card.md.j2")
STEP = ("text", "id", "tool", "input", "output", "ok", "status", *TOKENS)
"""Columns of a trajectory, null where a kind of step lacks them: the Hub wants the same ones in every row."""


def build(results: Results, out: Path) -> list[str]:
    """Write the data set into `out`, a new or empty folder, and return its files. The same records give the same bytes.

    Raises:
        UsageError: the folder holds something.
        ArenaError: a file would hold one of the user's keys; nothing is written.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out}: is not empty: choose another folder, or remove it")
    with tempdirs.folder() as folder:
        files = _write(results, folder, keys.known())
        out.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, out, dirs_exist_ok=True)
    return files


def _write(results: Results, folder: Path, known: Collection[str]) -> list[str]:
    """Every file, one run in memory at a time."""
    (folder / "trajectories").mkdir()
    counts = dict.fromkeys(("trials", "shapes", "solutions", "trajectories"), 0)
    files = ["README.md"]

    def add(name: str, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        keys.refuse(f"{run_id}\n{text}", f"run {run_id}: {name}", known)
        counts[name] += text.count("\n")
        if name != "trajectories":
            with (folder / f"{name}.jsonl").open("a", encoding="ascii") as file:
                file.write(text)
        elif text:
            files.append(f"trajectories/{run_id}.jsonl.gz")
            (folder / files[-1]).write_bytes(gzip.compress(text.encode("ascii"), mtime=0))

    for name in ("trials", "shapes", "solutions"):
        (folder / f"{name}.jsonl").touch()
        files.append(f"{name}.jsonl")
    for run_id, annotation in results.annotations.items():
        add("trials", run_id, [trial(annotation)])
        add("shapes", run_id, shapes(annotation))
        if results.shows_files(run_id):
            run = stored_run.read(annotation, results.workspaces)
            add("solutions", run_id, solutions(run) if results.source else [])
            add("trajectories", run_id, trajectory(run))
    card = render(CARD, counts=counts, version=arena.__version__, shown=results.shown, source=results.source)
    keys.refuse(card, "README.md", known)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return sorted(files)


def trial(annotation: Annotation) -> dict[str, Any]:
    """One row of trials.jsonl: the cell, how the run ended, what it was scored and what it used."""
    cell, session, score = annotation.cell, annotation.session, annotation.score
    used = session.usage.model_dump(mode="json") if session.usage else {}
    return {
        "run_id": annotation.run_id,
        **cell.model_dump(mode="json", exclude={"provider"}),
        "provider": list(cell.provider),
        "started_at": session.started_at.isoformat(),
        "elapsed_s": session.elapsed_s,
        "agent_status": session.agent_status,
        "network": session.network,
        "unpinned": session.unpinned,
        "outcome": leaderboard.outcome(annotation),
        "verdict": score.verdict,
        "peak_fraction": score.peak_fraction if isinstance(score, Passed) else None,
        "unsteady": score.unsteady if isinstance(score, Passed) else None,
        "brief": score.brief if isinstance(score, Passed) else None,
        "device": score.device.name if isinstance(score, Passed) else None,
        "message": _utf8(score.message),
        "submission_sha256": annotation.submission.sha256 if annotation.submission else None,
        "review": annotation.review.verdict if annotation.review else None,
        "review_summary": _utf8(annotation.review.summary) if annotation.review else None,
        **{name: used.get(name) for name in ("requests", *TOKENS, "cost_usd", "source")},
        "arena_version": annotation.arena_version,
    }


def shapes(annotation: Annotation) -> Iterator[dict[str, Any]]:
    """Rows of shapes.jsonl: every timed shape of a passed run; those without a fraction are of the latency class."""
    score = annotation.score
    if not isinstance(score, Passed):
        return
    for timed in (*score.shapes, *score.latency):
        yield {
            "run_id": annotation.run_id,
            "problem": annotation.cell.problem,
            "hardware": annotation.cell.hardware,
            "shape": json.dumps(dict(timed.shape)),
            "peak_fraction": getattr(timed, "peak_fraction", None),
            "measured_s": timed.measured_s,
            "ci95_low_s": timed.ci95[0],
            "ci95_high_s": timed.ci95[1],
            "ceiling_s": timed.ceiling_s,
            "bound": timed.bound,
            "rate": timed.rate,
            "flops": timed.flops,
            "bytes": timed.bytes,
            "launch_mode": timed.launch_mode,
        }


def solutions(run: StoredRun) -> Iterator[dict[str, Any]]:
    """The row of solutions.jsonl, for a run that left a submission."""
    annotation = run.annotation
    if run.source is None or annotation.submission is None:
        return
    score = annotation.score
    yield {
        "run_id": annotation.run_id,
        "problem": annotation.cell.problem,
        "problem_version": annotation.cell.problem_version,
        "hardware": annotation.cell.hardware,
        "sha256": annotation.submission.sha256,
        "verdict": score.verdict,
        "peak_fraction": score.peak_fraction if isinstance(score, Passed) else None,
        "source": run.source,
    }


def trajectory(run: StoredRun) -> Iterator[dict[str, Any]]:
    """Rows of a run's trajectory, one for each step, all with the same columns."""
    for number, step in enumerate(run.steps, start=1):
        row = {"run_id": run.annotation.run_id, "step": number, "at_s": float(step["at_s"]), "kind": step["kind"]}
        values = {name: step.get(name) for name in STEP}
        if "input" in step:
            values["input"] = json.dumps(step["input"])
        yield row | values


def _utf8(text: str) -> str:
    return text.encode(errors="replace").decode()
