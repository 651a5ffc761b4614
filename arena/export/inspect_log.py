"""Runs as logs of Inspect: one log for each cell, one sample for each trial. Needs the package inspect-ai."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from inspect_ai.event import InfoEvent, ModelEvent, ScoreEvent, ToolEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalSampleLimit,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall, ToolCallError
from inspect_ai.viewer import ViewerConfig

from arena.export import keys
from arena.export.stored_run import StoredRun
from arena.export.turns import Turn, turns
from arena.results import leaderboard
from arena.results.board import NOT_COUNTED
from arena.schema import Cell, Passed

SCORER, METRIC = "arena_judge", "peak_fraction"
UNTRUSTED = ViewerConfig(trust_content=False)
"""The viewer then shows all texts as plain text: they are an agent's."""


def write(runs: Iterable[StoredRun], folder: Path) -> list[Path]:
    """Write the logs into `folder`, and return the files. KeyFoundError, and nothing is written, when one would hold a key."""
    known, made = keys.known(), []
    for cell, trials in _by_cell(runs):
        log = eval_log(cell, trials)
        keys.refuse(log.model_dump_json(), f"the log of {cell.model} on {cell.problem}", known)
        made.append((folder / f"{trials[0].annotation.run_id}.eval", log))
    folder.mkdir(parents=True, exist_ok=True)
    for file, log in made:
        write_eval_log(log, str(file))
    return [file for file, _ in made]


def eval_log(cell: Cell, trials: Sequence[StoredRun]) -> EvalLog:
    """The log of one cell. A trial that does not count has an error and no score, so means agree with the board."""
    samples = [_sample(trial, number) for number, trial in enumerate(trials, start=1)]
    values = [_value(trial) for trial in trials if leaderboard.outcome(trial.annotation) not in NOT_COUNTED]
    first, last = trials[0], trials[-1]
    identity = hashlib.sha256(cell.model_dump_json().encode()).hexdigest()
    spec = EvalSpec(
        run_id=first.annotation.run_id,
        task_id=identity[:22],
        created=first.time_of(0.0).isoformat(),
        task=f"arena/{cell.problem}",
        task_version=cell.problem_version,
        dataset=EvalDataset(name="arena", samples=1, sample_ids=[cell.problem]),
        model=_model(cell),
        config=EvalConfig(time_limit=int(cell.budget_s), epochs=len(trials)),
        packages={"arena": first.annotation.arena_version},
        metadata={"cell": cell.model_dump(mode="json")},
        viewer=UNTRUSTED,
    )
    metrics = {"mean": EvalMetric(name="mean", value=fmean(values))} if values else {}
    if len(values) > 1:
        metrics["stderr"] = EvalMetric(name="stderr", value=stdev(values) / len(values) ** 0.5)
    return EvalLog(
        status="success",
        eval=spec,
        samples=samples,
        results=EvalResults(
            total_samples=len(samples),
            completed_samples=len(values),
            scores=[EvalScore(name=SCORER, scorer=SCORER, metrics=metrics)] if values else [],
        ),
        stats=EvalStats(
            started_at=first.time_of(0.0).isoformat(),
            completed_at=last.time_of(last.annotation.session.elapsed_s).isoformat(),
            model_usage={_model(cell): sum((_usage(trial) for trial in trials), ModelUsage())},
        ),
    )


def _by_cell(runs: Iterable[StoredRun]) -> list[tuple[Cell, list[StoredRun]]]:
    found: dict[str, tuple[Cell, list[StoredRun]]] = {}
    for run in sorted(runs, key=lambda run: run.annotation.run_id):
        cell = run.annotation.cell
        found.setdefault(cell.model_dump_json(), (cell, []))[1].append(run)
    return list(found.values())


def _model(cell: Cell) -> str:
    return f"{cell.harness}/{cell.model_id or cell.model}"


def _value(run: StoredRun) -> float:
    """The score, and 0 for a failure: also for a number that a review withdrew."""
    score = run.annotation.score
    return score.peak_fraction if isinstance(score, Passed) and leaderboard.outcome(run.annotation) == "passed" else 0.0


def _sample(run: StoredRun, epoch: int) -> EvalSample:
    annotation = run.annotation
    cell, session, score = annotation.cell, annotation.session, annotation.score
    outcome = leaderboard.outcome(annotation)
    messages, events = [ChatMessageUser(content=run.prompt or "")], list[Any]()
    for turn in turns(run.steps, run.snapshots, session.clock_offset_s or 0.0):
        _add(run, turn, messages, events)
    judged = json.loads(score.model_dump_json())
    scores, error = None, None
    if outcome in NOT_COUNTED:
        reason = session.message if outcome == "provider_error" else score.message
        error = EvalError(message=f"{outcome}: {reason}", traceback="", traceback_ansi="")
    else:
        explanation = score.message or score.verdict
        value = Score(value=_value(run), answer=outcome, explanation=explanation, metadata={"score": judged})
        scores = {SCORER: value}
        events.append(ScoreEvent(score=value, **_at(run, session.elapsed_s)))
    return EvalSample(
        id=cell.problem,
        epoch=epoch,
        input=run.prompt or "",
        target=f"{METRIC} 1",
        messages=messages,
        scores=scores,
        error=error,
        events=events,
        store={} if run.source is None else {"solution.py": run.source},
        model_usage={_model(cell): _usage(run)},
        limit=EvalSampleLimit(type="time", limit=cell.budget_s) if session.agent_status == "deadline" else None,
        metadata={
            "run_id": annotation.run_id,
            "outcome": outcome,
            "agent_status": session.agent_status,
            "review": annotation.review.verdict if annotation.review else None,
        },
        started_at=run.time_of(0.0).isoformat(),
        completed_at=run.time_of(session.elapsed_s).isoformat(),
        total_time=session.elapsed_s,
    )


def _add(run: StoredRun, turn: Turn, messages: list[Any], events: list[Any]) -> None:
    """The messages and events of one turn."""
    at = _at(run, turn.at_s)
    if turn.note:
        events.append(InfoEvent(source=turn.note, data={"text": turn.text, "status": turn.status}, **at))
        return
    content: list[Any] = [ContentReasoning(reasoning=turn.thinking)] if turn.thinking else []
    content += [ContentText(text=turn.text)] if turn.text else []
    calls = [ToolCall(id=call.id, function=call.tool, arguments=call.input) for call in turn.calls]
    model = _model(run.annotation.cell)
    said = ChatMessageAssistant(content=content or "", tool_calls=calls or None, model=model)
    choice = ChatCompletionChoice(message=said, stop_reason="tool_calls" if calls else "stop")
    output = ModelOutput(model=model, choices=[choice], usage=_tokens(turn.usage) if turn.usage else None)
    events.append(
        ModelEvent(model=model, input=messages[-1:], tools=[], tool_choice="auto", config=GenerateConfig(), output=output, **at)
    )
    messages.append(said)
    for call in turn.calls:
        if call.output is None:
            continue
        error = None if call.ok else ToolCallError(type="unknown", message="the agent's program reports a failure")
        named = {"function": call.tool, "error": error}
        messages.append(ChatMessageTool(content=call.output, tool_call_id=call.id, **named))
        ended = run.time_of(call.ended_s)
        events.append(ToolEvent(id=call.id, arguments=call.input, result=call.output, completed=ended, **named, **at))
    events += [InfoEvent(source="result", data={"text": text}, **at) for text in turn.strays]
    events += [InfoEvent(source="snapshot", data={"sha256": digest}, **at) for digest in turn.snapshots]


def _at(run: StoredRun, at_s: float) -> dict[str, Any]:
    return {"timestamp": run.annotation.session.started_at + timedelta(seconds=at_s), "working_start": at_s}


def _usage(run: StoredRun) -> ModelUsage:
    used = run.annotation.session.usage
    return _tokens(used.model_dump()) if used else ModelUsage()


def _tokens(used: dict[str, int]) -> ModelUsage:
    """Inspect's output tokens include the reasoning."""
    counted = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    return ModelUsage(
        input_tokens=used["input_tokens"],
        output_tokens=used["output_tokens"] + used["reasoning_tokens"],
        input_tokens_cache_read=used["cache_read_tokens"],
        input_tokens_cache_write=used["cache_write_tokens"],
        reasoning_tokens=used["reasoning_tokens"],
        total_tokens=sum(used[name] for name in counted),
    )
