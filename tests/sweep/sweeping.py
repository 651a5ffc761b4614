"""Sweeps of tests: their files, and what they left."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from command import Arena


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
