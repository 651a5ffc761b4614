"""A run as a document of ATIF, the Agent Trajectory Interchange Format, version 1.6, which newer readers accept too."""

from __future__ import annotations

from typing import Any

from arena.export.stored_run import StoredRun
from arena.export.turns import Turn, turns
from arena.schema import Passed

VERSION = "ATIF-v1.6"


def document(run: StoredRun) -> dict[str, Any]:
    """The document, as plain data. Texts are the agent's own, unchanged: a reader must escape them."""
    annotation = run.annotation
    cell, session, score = annotation.cell, annotation.session, annotation.score
    model = cell.model_id or cell.model
    found = turns(run.steps, run.snapshots, session.clock_offset_s or 0.0)
    steps = [{"source": "user", "timestamp": run.time_of(0.0).isoformat(), "message": run.prompt}] if run.prompt else []
    steps += [_step(run, turn, model) for turn in found]
    return {
        "schema_version": VERSION,
        "session_id": annotation.run_id,
        "agent": {"name": cell.harness, "version": run.program or cell.harness_digest[:12], "model_name": model},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": _final(run, found, len(steps)),
        "extra": {
            "arena_version": annotation.arena_version,
            "cell": cell.model_dump(mode="json"),
            "agent_status": session.agent_status,
            "verdict": score.verdict,
            "peak_fraction": score.peak_fraction if isinstance(score, Passed) else None,
            "review": annotation.review.verdict if annotation.review else None,
        },
    }


def _step(run: StoredRun, turn: Turn, model: str) -> dict[str, Any]:
    step: dict[str, Any] = {"timestamp": run.time_of(turn.at_s).isoformat(), "message": turn.text}
    if turn.note:
        return step | {"source": "system", "extra": {"kind": turn.note, "status": turn.status}}
    step |= {"source": "agent", "model_name": model}
    if turn.thinking:
        step["reasoning_content"] = turn.thinking
    if turn.calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.tool, "arguments": call.input} for call in turn.calls
        ]
    results = [{"source_call_id": call.id, "content": call.output} for call in turn.calls if call.output is not None]
    if results or turn.strays:
        step["observation"] = {"results": [*results, *({"content": text} for text in turn.strays)]}
    if turn.usage:
        step["metrics"] = _metrics(turn.usage)
    extra: dict[str, Any] = {"snapshots": turn.snapshots} if turn.snapshots else {}
    if failed := [call.id for call in turn.calls if not call.ok]:
        extra["failed_calls"] = failed
    return step | ({"extra": extra} if extra else {})


def _metrics(usage: dict[str, int]) -> dict[str, int]:
    """ATIF's prompt tokens include the cached ones, and its completion tokens the reasoning."""
    return {
        "prompt_tokens": usage["input_tokens"] + usage["cache_read_tokens"] + usage["cache_write_tokens"],
        "completion_tokens": usage["output_tokens"] + usage["reasoning_tokens"],
        "cached_tokens": usage["cache_read_tokens"],
    }


def _final(run: StoredRun, found: list[Turn], steps: int) -> dict[str, Any]:
    """The gateway's count where there is one, else the sum of what the agent CLI reported."""
    used = run.annotation.session.usage
    if used is not None:
        total = _metrics(used.model_dump())
    else:
        parts = [_metrics(turn.usage) for turn in found if turn.usage]
        total = {name: sum(part[name] for part in parts) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
    totals: dict[str, Any] = {f"total_{name}": count for name, count in total.items()}
    return totals | {"total_cost_usd": used.cost_usd if used else None, "total_steps": steps}
