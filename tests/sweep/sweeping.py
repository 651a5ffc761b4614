"""Sweeps of tests: their files, and what they left."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from command import Arena

from arena import catalog
from arena.schema import Cell, Grid, ModelChoice
from arena.sweep.grid import PlannedCell, PlannedSession


def written(arena: Arena, **given: Any) -> str:
    """The path of a new file of a sweep on this CPU; `given` replaces fields, and `cell` those of its one grid."""
    cell = {"models": ["nop"], "problems": ["paged_attention"], "budget": "60s"} | given.pop("cell", {})
    document = {"name": "made", "hardware": "cpu", "cells": [cell]} | given
    path = arena.home.parent / f"{document['name']}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def manifests(arena: Arena) -> list[tuple[Path, dict[str, Any]]]:
    """The run folders with their manifests, oldest first."""
    return [(run, json.loads((run / "manifest.json").read_text())) for run in arena.runs]


def trials(arena: Arena) -> dict[tuple[str, str, int], list[Path]]:
    """Run folders by model, problem and trial."""
    found: dict[tuple[str, str, int], list[Path]] = {}
    for run, manifest in manifests(arena):
        cell = manifest["cell"]
        found.setdefault((cell["model"], cell["problem"], manifest["sweep"]["trial"]), []).append(run)
    return found


def verdicts(arena: Arena) -> Counter[tuple[str, str, str]]:
    """How often each model had each verdict on each problem, by the annotations."""
    found = [yaml.safe_load(path.read_text()) for path in arena.annotations if path.suffix == ".yaml"]
    return Counter((one["cell"]["model"], one["cell"]["problem"], one["score"]["verdict"]) for one in found)


def planned(model: str = "m", problem: str = "p", *, route: str | None = "r", max_cost: float | None = None) -> PlannedCell:
    """A cell as the grid of a sweep's file plans it."""
    choice = ModelChoice(model=model)
    grid = Grid(models=(model,), problems=(problem,), max_cost=max_cost)
    cell = {
        "problem": problem,
        "problem_version": 1,
        "problem_digest": "d",
        "harness": "h",
        "harness_digest": "d",
        "model": model,
        "model_id": model if route else None,
        "route": route,
        "hardware": "cpu",
        "budget_s": 60,
    }
    session = PlannedSession(grid=grid, choice=choice, problem=problem, hardware=catalog.hardware("cpu").name, parallel=2)
    return PlannedCell(session, Cell.model_validate(cell))
