"""`arena schema`: the JSON Schema of every file that people or arena write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click
from pydantic import TypeAdapter

from arena.cli.console import data, safe, tell
from arena.files import documents
from arena.results.board import Board
from arena.schema import Annotation, Baselines, Curve, Hardware, Harness, OwnModels, Problem, Score, Sweep

RECORDS: dict[str, Any] = {
    "problem": Problem,
    "harness": Harness,
    "models": OwnModels,
    "hardware": Hardware,
    "score": Score,
    "annotation": Annotation,
    "baselines": Baselines,
    "curve": Curve,
    "leaderboard": Board,
    "sweep": Sweep,
}


@click.command()
@click.argument("name", metavar="[RECORD]", required=False, type=click.Choice(list(RECORDS)))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each schema as <name>.json into this folder instead of printing it.",
)
def schema(name: str | None, out: Path | None) -> None:
    """Print the JSON Schema of one record (such as problem, harness, annotation, leaderboard or sweep), or of all."""
    if out is None:
        data(_schema(name) if name else {key: _schema(key) for key in RECORDS})
        return
    out.mkdir(parents=True, exist_ok=True)
    chosen = (name,) if name else tuple(RECORDS)
    for key in chosen:
        documents.write_json(out / f"{key}.json", _schema(key))
    tell(f"wrote {', '.join(f'{key}.json' for key in chosen)} to {safe(out)}")


def _schema(key: str) -> dict[str, Any]:
    """The schema for an editor that checks the file."""
    document = TypeAdapter(RECORDS[key]).json_schema()
    if key in ("problem", "harness", "hardware"):  # `name` is the file's or folder's name, and may not be written in the file
        del document["properties"]["name"]
        document["required"].remove("name")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
