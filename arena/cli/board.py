"""How a sweep is shown: a table of models by problems, redrawn on a terminal; elsewhere one line for each change."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from arena.cli.console import clock, on_a_terminal, people, safe, tell
from arena.plan import seconds
from arena.sweep.scheduler import TrialState, View


class Board:
    """Shows a sweep for the length of a `with` block."""

    def __init__(self) -> None:
        self._live = Live(console=people, auto_refresh=False, transient=True) if on_a_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str, view: View) -> None:
        """Print a line, if there is one, and draw the table anew."""
        if text:
            tell(safe(text))
        if self._live:
            self._live.update(Group(table(view), Text(summary(view))), refresh=True)


def table(view: View) -> Table:
    """Models by problems."""
    cells: dict[tuple[str, str], list[TrialState]] = {}
    for state in view.trials:
        cells.setdefault((state.trial.planned.label, state.trial.planned.cell.problem), []).append(state)
    problems = list(dict.fromkeys(problem for _, problem in cells))
    drawn = Table("model", *problems, box=None, pad_edge=False)
    for model in dict.fromkeys(model for model, _ in cells):
        drawn.add_row(safe(model), *(_cell(cells.get((model, problem), [])) for problem in problems))
    return drawn


def _cell(states: list[TrialState]) -> str:
    if not states:
        return ""
    done, failed, spared = (sum(state.step == step for state in states) for step in ("done", "failed", "spared"))
    doing = [_doing(state) for state in states if state.doing]
    retries = sum(max(len(state.attempts) - 1, 0) for state in states)
    parts = [f"{done}/{len(states)}", *doing]
    parts += ["[dim]sure enough[/]"] * bool(spared)
    parts += [f"[red]{failed} failed[/]"] * bool(failed) + [f"[dim]retries {retries}[/]"] * bool(retries)
    return " ".join(parts)


def _doing(state: TrialState) -> str:
    assert state.doing is not None
    phase = "judge" if state.doing.kind == "judge" else str(state.doing.last.get("phase", "start"))
    return f"[cyan]{safe(phase)} {clock(time.monotonic() - state.doing.begun_s)}[/]"


def summary(view: View) -> str:
    """One line: trials, the time that is left at most, cost and routes."""
    done, failed, spared = (sum(state.step == step for state in view.trials) for step in ("done", "failed", "spared"))
    parts = [f"{done} of {len(view.trials)} trials done"]
    parts += [f"{spared} spared by stop.when"] * bool(spared) + [f"{failed} failed"] * bool(failed)
    if left_s := left(view):
        parts.append(f"agents' budgets left {duration(left_s)}")
    cap_usd = view.limits.sweep.stop.cost_usd
    if view.spent_usd or cap_usd:
        parts.append(f"spent {view.spent_usd:.2f} USD" + (f" of {cap_usd:.2f}" if cap_usd else ""))
    now_s = time.monotonic()
    parts += [
        f"route {route} paused {clock(until_s - now_s)}" for route, until_s in view.limits.paused_until.items() if until_s > now_s
    ]
    parts += [f"route {route} closed" for route in view.limits.closed]
    return ", ".join(parts) + (", stopping" if view.stopping else "")


def duration(seconds_: float) -> str:
    """Minutes and seconds, or hours where it is more than one."""
    return f"{seconds_ / 3600:.1f} h" if seconds_ > 3600 else clock(seconds_)


def left(view: View) -> float:
    """Seconds until all sessions are over, if each takes its whole budget."""
    open_ = [state for state in view.trials if state.step in ("play", "wait")]
    if not open_:
        return 0.0
    parallel = open_[0].trial.planned.session.parallel
    return sum(seconds(state.trial.planned.session.grid.budget, "budget") for state in open_) / parallel


def record(view: View) -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": view.limits.sweep.name,
        "done": sum(state.step == "done" for state in view.trials),
        "spent_usd": view.spent_usd,
        "trials": [
            {
                "model": state.trial.planned.cell.model,
                "harness": state.trial.planned.cell.harness,
                "effort": state.trial.planned.cell.effort,
                "turns": state.trial.planned.cell.turns,
                "profile": state.trial.planned.cell.profile,
                "problem": state.trial.planned.cell.problem,
                "trial": state.trial.number,
                "next": state.step,
                "attempts": [
                    {"run": attempt.run_id, "outcome": attempt.outcome, "verdict": attempt.verdict or None}
                    for attempt in state.attempts
                ],
            }
            for state in view.trials
        ],
    }
