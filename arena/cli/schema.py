"""`arena schema`: the JSON Schema of every file that people or arena write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click
from pydantic import TypeAdapter

from arena.cli.console import data, safe, tell
from arena.files import documents
from arena.results.board import Board
from arena.schema import Annotation, Baselines, Hardware, Harness, Problem, Score

RECORDS: dict[str, Any] = {
    "problem": Problem,
    "harness": Harness,
    "hardware": Hardware,
    "score": Score,
    "annotation": Annotation,
    "baselines": Baselines,
    "leaderboard": Board,
}
NAMED_BY_PLACE = ("problem", "harness", "hardware")
"""Records whose `name` comes from the file's place and may not be written in it."""


@click.command()
@click.argument("name", metavar="[RECORD]", required=False, type=click.Choice(list(RECORDS)))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write every schema as <name>.json into this folder instead."
)
def schema(name: str | None, out: Path | None) -> None:
    """Print the JSON Schema of a file: problem, harness, hardware, score, annotation, baselines or leaderboard; or of all."""
    if out is None:
        data(_schema(name) if name else {key: _schema(key) for key in RECORDS})
        return
    out.mkdir(parents=True, exist_ok=True)
    chosen = (name,) if name else tuple(RECORDS)
    for key in chosen:
        documents.write_json(out / f"{key}.json", _schema(key))
    tell(f"wrote {', '.join(f'{key}.json' for key in chosen)} to {safe(out)}")


def _schema(key: str) -> dict[str, Any]:
    """As an editor needs it that checks the file."""
    made = TypeAdapter(RECORDS[key]).json_schema()
    if key in NAMED_BY_PLACE:
        del made["properties"]["name"]
        made["required"].remove("name")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
