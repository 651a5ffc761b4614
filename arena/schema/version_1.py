"""Upgrades records of schema version 1 to the keys and words of version 2. Pure functions over plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

LAUNCH_MODES = {"wall": "call"}
"""Version 1 named the launch mode without a graph or a stream after the clock that timed it."""


def problem(data: object) -> object:
    """A problem.yaml: `gate` became `correctness`."""
    return _upgraded(data, {"gate": "correctness"}) if _is_version_1(data) else data


def score(data: object) -> object:
    """A score: the two fields `mode` became `launch_mode` and `input_class`, and `audit_s` became `evidence_s`."""
    if not _is_version_1(data):
        return data
    upgraded = _upgraded(data, {"mode": "input_class"})
    for key in ("shapes", "latency"):
        if key in upgraded:
            upgraded[key] = _shapes(upgraded[key])
    if isinstance(timings := upgraded.get("timings"), Mapping):
        upgraded["timings"] = _renamed(timings, {"audit_s": "evidence_s"})
    if upgraded.get("verdict") == "judge_failed":  # version 1 wrote these three as null
        for key in ("shape", "input_class", "error"):
            upgraded.pop(key, None)
    return upgraded


def baselines(data: object) -> object:
    """Baselines: each shape's `mode` became `launch_mode`."""
    if not _is_version_1(data):
        return data
    upgraded = _upgraded(data, {})
    if isinstance(lines := upgraded.get("lines"), list):
        upgraded["lines"] = [
            line | {"shapes": _shapes(line["shapes"])} if isinstance(line, dict) and "shapes" in line else line for line in lines
        ]
    return upgraded


def routes(data: object) -> object:
    """Routes: a route's `pinned` became `broker`."""
    if not _is_version_1(data):
        return data
    upgraded = _upgraded(data, {})
    if isinstance(entries := upgraded.get("routes"), Mapping):
        upgraded["routes"] = {
            name: _renamed(entry, {"pinned": "broker"}) if isinstance(entry, Mapping) else entry
            for name, entry in entries.items()
        }
    return upgraded


def annotation(data: object) -> object:
    """An annotation: nothing of its own changed; its score says its version itself."""
    return _upgraded(data, {}) if _is_version_1(data) else data


def _is_version_1(data: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(data, Mapping) and data.get("schema_version") == 1


def _upgraded(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return _renamed(data, names) | {"schema_version": 2}


def _renamed(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in data.items()}


def _shapes(value: object) -> object:
    """The shapes of a list; anything else as it is, for the record to refuse with its place."""
    return [_shape(entry) for entry in value] if isinstance(value, list) else value


def _shape(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    shape = _renamed(entry, {"mode": "launch_mode"})
    if isinstance(mode := shape.get("launch_mode"), str):
        shape["launch_mode"] = LAUNCH_MODES.get(mode, mode)
    return shape
