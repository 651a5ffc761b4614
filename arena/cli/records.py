"""`arena list`, `show`, `annotate`, `leaderboard` and `schema`: what is there and what was found. None needs torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click
from pydantic import TypeAdapter
from rich.markup import escape
from rich.table import Table

from arena import annotations, catalog, documents, paths, workspace
from arena import run as run_
from arena.cli import options
from arena.cli.output import data, people, show_score, verdict
from arena.errors import UsageError
from arena.schema import Annotation, Hardware, Harness, Problem, Score

Rows = list[dict[str, Any]]


def _problems() -> Rows:
    return [
        {"name": p.name, "version": p.version, "title": p.title, "shapes": {k: len(v) for k, v in p.shapes.items()}}
        for p in catalog.problems().values()
    ]


def _models() -> Rows:
    return [
        {"name": name, "harness": harness.name, "effort": model.effort, "title": model.title}
        for harness in catalog.harnesses().values()
        for name, model in harness.models.items()
    ]


def _harnesses() -> Rows:
    return [{"name": h.name, "title": h.title, "models": len(h.models)} for h in catalog.harnesses().values()]


def _hardware() -> Rows:
    return [
        {
            "name": h.name,
            "title": h.title,
            "bandwidth_gb_s": h.bandwidth_gb_s.value if h.bandwidth_gb_s else "measured",
            "tflops": {rate: figure.value for rate, figure in h.tflops.items()} or "measured",
        }
        for h in catalog.hardwares().values()
    ]


def _runs() -> Rows:
    rows = []
    for found in workspace.runs(paths.workspaces()):
        path = paths.annotations() / f"{found.run.run_id}.yaml"
        result = annotations.read(path).score if path.is_file() else None
        rows.append({"run": found.run.run_id, "state": found.state, "verdict": result.verdict if result else None})
    return rows


LISTS: dict[str, Callable[[], Rows]] = {
    "problems": _problems,
    "models": _models,
    "harnesses": _harnesses,
    "hardware": _hardware,
    "runs": _runs,
}


@click.command("list")
@click.argument("what", type=click.Choice(list(LISTS)))
@options.as_json
def list_(what: str, as_json: bool) -> None:
    """List the problems, models, harnesses, hardware or runs there are."""
    rows = LISTS[what]()
    if as_json:
        data(rows)
        return
    if not rows:
        people.print(f"no {what}")
        return
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*(_cell(key, value) for key, value in row.items()))
    people.print(table)


def _cell(key: str, value: object) -> str:
    if isinstance(value, dict):
        return escape(" ".join(f"{name} {entry:g}" for name, entry in value.items()))
    if key == "verdict" and value:
        return verdict(str(value))
    return "" if value is None else escape(str(value))


@click.command()
@click.argument("run_id")
@options.as_json
def show(run_id: str, as_json: bool) -> None:
    """Show one run: what it was, how the agent ended, what the judge said, what a person found."""
    annotation = annotations.read(_annotation(run_id))
    if as_json:
        data(annotation)
        return
    cell, session = annotation.cell, annotation.session
    people.print(f"[bold]{escape(annotation.run_id)}[/]", soft_wrap=True)
    what = f"{escape(cell.model)} ({cell.harness}) on {cell.problem} v{cell.problem_version}, {cell.hardware}"
    people.print(f"{what}, budget {cell.budget_s:g} s", soft_wrap=True)
    people.print(
        f"agent {session.agent_status} after {session.elapsed_s:.1f} s, {session.events} events, {session.snapshots} snapshots",
        soft_wrap=True,
    )
    show_score(annotation.score)
    if annotation.review:
        people.print(f"review {annotation.review.verdict}: {escape(annotation.review.summary)}", soft_wrap=True)
    people.print(f"files {paths.workspaces() / annotation.run_id}", soft_wrap=True)


@click.command()
@click.argument("run_id")
@click.option(
    "--verdict", "-v", "word", required=True, type=click.Choice(["clean", "rubric_leak", "reward_hack", "interesting", "bug"])
)
@click.option("--summary", "-s", required=True, help="One or two sentences: what you found.")
@click.option(
    "--quote",
    "-q",
    "quotes",
    multiple=True,
    metavar="FILE:L1-L2",
    help="Lines of the run's folder, checked verbatim; one --label each.",
)
@click.option("--label", "-l", "labels", multiple=True, metavar="TEXT", help="What the quote of the same place shows.")
@click.option("--implication", "-i", default="", help="What follows for the score or the problem.")
def annotate(run_id: str, word: str, summary: str, quotes: tuple[str, ...], labels: tuple[str, ...], implication: str) -> None:
    """Add your review to a run's annotation. The machine's part is not touched."""
    path = _annotation(run_id)
    done = annotations.annotate(
        path, paths.workspaces() / run_id, verdict=word, summary=summary, quotes=quotes, labels=labels, implication=implication
    )
    run_.render()
    people.print(f"{path}: reviewed as {done.review.verdict if done.review else word}", soft_wrap=True)


def _annotation(run_id: str) -> Path:
    path = paths.annotations() / f"{run_id}.yaml"
    if not path.is_file():
        raise UsageError(documents.unknown("run", run_id, [p.stem for p in paths.annotations().glob("*.yaml")][-10:]))
    return path


@click.command()
def leaderboard() -> None:
    """Rebuild leaderboard/ from annotations/. The same annotations give the same bytes."""
    run_.render()
    people.print(f"rendered {paths.leaderboard()}", soft_wrap=True)


SCHEMAS: dict[str, Any] = {"problem": Problem, "harness": Harness, "hardware": Hardware, "score": Score, "annotation": Annotation}


@click.command()
@click.argument("name", required=False, type=click.Choice(list(SCHEMAS)))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write every schema as <name>.json into this folder instead."
)
def schema(name: str | None, out: Path | None) -> None:
    """Print the JSON Schema of a record, or of all."""
    made = {key: TypeAdapter(record).json_schema() for key, record in SCHEMAS.items()}
    if out is None:
        data(made[name] if name else made)
        return
    out.mkdir(parents=True, exist_ok=True)
    for key, document in made.items():
        documents.write_json(out / f"{key}.json", document)
    people.print(f"wrote {', '.join(f'{key}.json' for key in made)} to {out}", soft_wrap=True)


COMMANDS = (list_, show, annotate, leaderboard, schema)
