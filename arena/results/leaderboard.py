"""The published tables, a pure function of annotations and baselines: the same records give the same bytes.

A trial counts as passed, as failed, or not at all:

    passed       a number, unless a review withdrew it
    failed       incorrect, forbidden, cheated, crashed, timed_out; missing (the agent left nothing to score);
                 a number that a review withdrew as reward_hack or rubric_leak
    not counted  provider_error, judge_failed, and what a review calls a bug of arena: nothing was measured

Trials are pooled only when their cells are equal and their agents could reach the same hosts. A changed problem or harness
gets a column or row of its own. Only one state of a problem, the newest, is in the figures of a row. A trial with an open network
is `unsealed`: shown, but never the best at a problem. Baselines have a table of their own. The naive kernel that gains are
measured from may be one of them; nothing else of a row, and no best, uses them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from arena.files import documents
from arena.results import fast_p, gains, render
from arena.results.board import Best, Board, Column, Naive, Outcome, Reached, Row, Table, Trial
from arena.results.rows import RowKey, rows, seen
from arena.schema import Annotation, Baselines, Passed

WITHDRAWN = frozenset({"reward_hack", "rubric_leak"})
"""Review verdicts that withdraw a number."""


def write(folder: Path, annotations: Iterable[Annotation], baselines: Iterable[Baselines] = ()) -> None:
    """Render leaderboard.json, LEADERBOARD.md and the plots of each hardware into `folder`."""
    board = build(annotations, baselines)
    folder.mkdir(parents=True, exist_ok=True)
    documents.write_json(folder / "leaderboard.json", board)
    for table in board.tables:
        title = f"Fraction of the ceiling reached on {table.hardware}"
        documents.write_text(folder / f"{table.hardware}.svg", render.plot(title, render.strips(table)))
        if gain := render.gain_plot(table):
            documents.write_text(folder / f"{table.hardware}.gain.svg", gain)
    documents.write_text(folder / "LEADERBOARD.md", render.page(board))


def build(annotations: Iterable[Annotation], baselines: Iterable[Baselines] = ()) -> Board:
    """The tables, one for each hardware, sorted by name."""
    by_hardware: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in sorted(annotations, key=lambda annotation: annotation.run_id):
        by_hardware[annotation.cell.hardware].append(annotation)
    baselines_of: dict[str, list[Baselines]] = defaultdict(list)
    for record in sorted(baselines, key=lambda record: record.problem):
        baselines_of[record.hardware].append(record)
    names = sorted({*by_hardware, *baselines_of})
    tables = tuple(_table(hardware, by_hardware[hardware], baselines_of[hardware]) for hardware in names)
    return Board(trials=sum(map(len, by_hardware.values())), tables=tables)


def _table(hardware: str, annotations: Sequence[Annotation], baselines: Sequence[Baselines]) -> Table:
    columns = _columns(annotations)
    key_of = {(column.problem, column.version, column.digest): column.key for column in columns}
    trials: dict[RowKey, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for annotation in annotations:
        cell = annotation.cell
        column = key_of[cell.problem, cell.problem_version, cell.problem_digest]
        trials[_row_key(annotation)][column].append(_trial(annotation))
    reached = tuple(Reached(column=_column_of(record, columns), baselines=record) for record in baselines)
    naive = _naive(trials, reached)
    ordered = rows(trials, columns, naive)
    devices = {
        f"{score.device.name} ({score.device.ceilings} ceilings)" for a in annotations if isinstance(score := a.score, Passed)
    }
    return Table(
        hardware=hardware,
        devices=tuple(sorted(devices)),
        columns=columns,
        rows=ordered,
        best=_best(columns, ordered),
        seen=seen(ordered, naive),
        naive=naive,
        reached=reached,
        fast=(
            *fast_p.rows(ordered, columns, reached, {annotation.run_id: annotation for annotation in annotations}),
            *fast_p.libraries(reached),
        ),
    )


def _naive(trials: Mapping[RowKey, Mapping[str, Sequence[Trial]]], reached: Iterable[Reached]) -> dict[str, Naive]:
    """The naive kernel of each column that has one."""
    runs: dict[str, list[Trial]] = defaultdict(list)
    for row_key, by_column in trials.items():
        for column, group in by_column.items():
            runs[column] += group if (row_key.harness, row_key.model) == ("builtin", "naive") else []
    stored = {entry.column: entry.baselines for entry in reached}
    found = {column: gains.naive(runs[column], stored.get(column)) for column in sorted({*runs, *stored})}
    return {column: naive for column, naive in found.items() if naive}


def _row_key(annotation: Annotation) -> RowKey:
    cell, session = annotation.cell, annotation.session
    return RowKey(
        harness=cell.harness,
        model=cell.model,
        effort=cell.effort or "",
        turns=cell.turns or 0,
        profile=cell.profile,
        route=cell.route or "",
        provider=cell.provider,
        unpinned=session.unpinned,
        budget_s=cell.budget_s,
        without_backoff=cell.without_backoff,
        gpu_access=cell.gpu_access,
        harness_digest=cell.harness_digest,
        network="unsealed" if session.unsealed else "allow" if session.network == "allow" else "sealed",
        allowed=tuple(sorted(set(session.allowed))),
    )


def _columns(annotations: Sequence[Annotation]) -> tuple[Column, ...]:
    """One column for each state of a problem. Its key holds the digest only when two states share name and version."""
    states = sorted(set(map(_state, annotations)))
    count = Counter((problem, version) for problem, version, _ in states)
    keys = [_column_key(*state, clash=count[state[:2]] > 1) for state in states]
    begun = {_state(a): a.session.started_at for a in sorted(annotations, key=lambda a: a.session.started_at)}
    # One state of a problem counts: of the highest version, that whose last run began last.
    newest = {p: (p, v, d) for p, v, d in sorted(states, key=lambda state: (*state[:2], begun[state], state[2]))}
    return tuple(
        Column(key=key, problem=p, version=v, digest=d, superseded=newest[p] != (p, v, d))
        for key, (p, v, d) in zip(keys, states, strict=True)
    )


def _state(annotation: Annotation) -> tuple[str, int, str]:
    return annotation.cell.problem, annotation.cell.problem_version, annotation.cell.problem_digest


def _column_of(record: Baselines, columns: Sequence[Column]) -> str:
    """The key of the column with the same state of the problem, or a new key."""
    same = [column for column in columns if (column.problem, column.version) == (record.problem, record.problem_version)]
    for column in same:
        if column.digest == record.problem_digest:
            return column.key
    return _column_key(record.problem, record.problem_version, record.problem_digest, clash=bool(same))


def _column_key(problem: str, version: int, digest: str, clash: bool) -> str:
    return f"{problem} v{version}" + (f" ({digest[:8]})" if clash else "")


def _trial(annotation: Annotation) -> Trial:
    score, session, review = annotation.score, annotation.session, annotation.review
    return Trial(
        run_id=annotation.run_id,
        outcome=outcome(annotation),
        peak_fraction=score.peak_fraction if isinstance(score, Passed) else None,
        agent_status=session.agent_status,
        network=session.network,
        cost_usd=session.usage.cost_usd if session.usage else None,
        started_at=session.started_at,
        review=review,
        unsteady=isinstance(score, Passed) and score.unsteady,
        brief=isinstance(score, Passed) and score.brief,
        review_suggested=isinstance(score, Passed) and score.review_suggested and review is None,
        message=score.message,
    )


def outcome(annotation: Annotation) -> Outcome:
    """How a run counts."""
    if annotation.review and annotation.review.verdict == "bug":
        return "bug"
    # The provider cut the session short: what the agent left by then says nothing about the agent.
    if annotation.session.agent_status == "provider_error":
        return "provider_error"
    if annotation.score.verdict == "passed" and annotation.review and annotation.review.verdict in WITHDRAWN:
        return "withdrawn"
    return annotation.score.verdict


def _best(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Best, ...]:
    best = []
    for column in columns:
        passed = [
            (trial.peak_fraction or 0.0, trial.run_id, row, trial)
            for row in rows
            if column.key in row.entries and row.network != "unsealed"
            for trial in row.entries[column.key].trials
            if trial.outcome == "passed"
        ]
        if passed:
            _, _, row, trial = min(passed, key=lambda item: (-item[0], item[1]))
            asked = {field: getattr(row, field) for field in ("harness", "model", "effort", "turns", "profile")}
            best.append(Best(column=column.key, trial=trial, **asked))
    return tuple(best)
