"""How a sweep is shown: a table of models by problems, redrawn on a terminal; elsewhere one line for each change."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from arena.cli.console import clock, on_a_terminal, people, safe, tell
from arena.files import documents
from arena.plan import seconds
from arena.sweep import broker
from arena.sweep.eta import Left, Slots, Took, eta_s
from arena.sweep.scheduler import TrialState, View

KEPT_EVERY_S = 2.0


class Board:
    """Shows a sweep for the length of a `with` block."""

    def __init__(self, file: Path) -> None:
        """`file` gets what programs are told. It is no state: only `--status` reads it, while the sweep is at work."""
        self._file, self._kept_s = file, 0.0
        self._live = Live(console=people, auto_refresh=False, transient=True) if on_a_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str, view: View) -> None:
        """Print a line, if there is one, draw the table anew, and keep it for `--status`."""
        if text:
            tell(safe(text))
        now_s = time.monotonic()
        if text or now_s - self._kept_s > KEPT_EVERY_S:
            self._kept_s = now_s
            with suppress(OSError):  # a full disk ends the sweep by itself, and says so
                documents.write_json(self._file, record(view))
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
    return f"[cyan]{safe(_phase(state))} {clock(time.monotonic() - state.doing.begun_s)}[/]"


def _phase(state: TrialState) -> str:
    assert state.doing is not None
    return "judge" if state.doing.kind == "judge" else str(state.doing.last.get("phase", "start"))


def summary(view: View) -> str:
    """One line: trials, the time that is left at most, cost and routes."""
    done, failed, spared = (sum(state.step == step for state in view.trials) for step in ("done", "failed", "spared"))
    parts = [f"{done} of {len(view.trials)} trials done"]
    parts += [f"{spared} spared by stop.when"] * bool(spared) + [f"{failed} failed"] * bool(failed)
    left_s = left(view)
    if found := eta(view):
        waits = ", and the time that routes are paused" * bool(paused(view))
        parts.append(f"about {duration(found)} left by the trials so far{waits}")
    elif left_s:
        parts.append(f"agents' budgets left {duration(left_s)}")
    cap_usd = view.limits.sweep.stop.cost_usd
    if view.spent_usd or cap_usd:
        reserved = f" and {view.reserved_usd:.2f} reserved" if view.reserved_usd else ""
        parts.append(f"spent {view.spent_usd:.2f} USD{reserved}" + (f" of {cap_usd:.2f}" if cap_usd else ""))
    parts += [words] if (words := _gpus(view)) else []
    parts += [f"route {route} paused {clock(left_s)}" for route, left_s in paused(view).items()]
    parts += [f"route {route} closed" for route in view.limits.closed]
    return ", ".join(parts) + (", stopping" if view.stopping else "")


def paused(view: View) -> dict[str, float]:
    """Routes that rest, with the seconds until one session tries them."""
    now_s = time.monotonic()
    return {route: until_s - now_s for route, until_s in view.limits.paused_until.items() if until_s > now_s}


def roles(view: View) -> dict[str, str]:
    """What each GPU does now, by its number, with its machine where there are several; empty on `cpu`."""
    if all(state.trial.planned.cell.hardware == "cpu" for state in view.trials):
        return {}
    found: dict[str, str] = {}
    for machine, state in sorted(view.machines.items()):
        prefix = f"{machine}:" if machine else ""
        found |= {f"{prefix}{gpu}": role for gpu, role in sorted(_roles(state).items())}
    return found


def _roles(state: broker.State) -> dict[int, str]:
    places = state.places
    found = {gpu: "agents" for gpu in places.agents} | {gpu: "judge" for gpu in places.judges}
    found |= {gpu: f"{found[gpu]}, in use" for gpu in [*state.leases, *(state.sessions.values() if places.owned else ())]}
    return found | {gpu: "judge, in use" for gpu in state.judges.values()} | {gpu: "left out" for gpu in state.left_out}


def _gpus(view: View) -> str:
    """The GPUs by role, and who waits for one."""
    by_role: dict[str, list[str]] = {}
    for gpu, role in roles(view).items():
        by_role.setdefault(role, []).append(gpu)
    text = "; ".join(f"{role} {','.join(gpus)}" for role, gpus in by_role.items())
    waiting = sum(len(state.leases_waiting) for state in view.machines.values())
    return f"GPUs: {text}" * bool(text) + f"; {waiting} wait for a turn" * bool(waiting and text)


def duration(seconds_: float) -> str:
    """Minutes and seconds, or hours where it is more than one."""
    return f"{seconds_ / 3600:.1f} h" if seconds_ > 3600 else clock(seconds_)


def left(view: View) -> float:
    """Seconds until all sessions are over, if each takes its whole budget."""
    open_ = [state for state in view.trials if state.step in ("play", "wait")]
    if not open_:
        return 0.0
    return sum(seconds(state.trial.planned.session.grid.budget, "budget") for state in open_) / max(1, view.sessions)


def eta(view: View) -> float | None:
    """Seconds until what can be done is done, by the sweep's own trials; None before there is one, 0 when nothing is left."""
    took: list[Took] = []
    needed: list[Left] = []
    now_s = time.monotonic()
    for state in view.trials:
        cell, doing = state.trial.planned.cell, state.doing
        took += [Took(state.trial.planned.label, cell.problem, each.session_s, each.score_s) for each in state.attempts]
        if state.step in ("play", "judge", "wait") and cell.route not in view.limits.closed:
            judging = state.step == "judge" or (doing is not None and doing.kind == "judge")
            at_work_s = now_s - doing.begun_s if doing else 0.0
            needed.append(Left(state.trial.planned.label, cell.problem, cell.budget_s, not judging, True, at_work_s))
    slots = Slots(
        view.sessions,
        sum(len(state.places.judges) or len(state.places.agents) for state in view.machines.values()),
        waves=not all(state.places.judges for state in view.machines.values()),
    )
    return eta_s(needed, took, slots)


def record(view: View) -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": view.limits.sweep.name,
        "done": sum(state.step == "done" for state in view.trials),
        "spent_usd": view.spent_usd,
        "reserved_usd": view.reserved_usd,
        "cap_usd": view.limits.sweep.stop.cost_usd,
        "left_s": left(view),
        "eta_s": eta(view),
        "parallel": view.sessions,
        "machines": {machine: state.places.sessions for machine, state in view.machines.items() if machine},
        "gpus": roles(view),
        "paused_routes_s": paused(view),
        "closed_routes": dict(view.limits.closed),
        "at_work": view.at_work,
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
                "doing": _phase(state) if state.doing else None,
                "machine": (state.doing.machine or None) if state.doing else None,
                "attempts": [
                    {"run": attempt.run_id, "outcome": attempt.outcome, "verdict": attempt.verdict or None}
                    for attempt in state.attempts
                ],
            }
            for state in view.trials
        ],
    }
