"""`arena run`, with its live display."""

from __future__ import annotations

import time
from types import TracebackType

import rich_click as click
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from arena import catalog, paths
from arena import run as run_
from arena.cli import options
from arena.cli.output import data, people, show_score
from arena.sandboxes import backend
from arena.schema import Annotation
from arena.session import Progress

INFRASTRUCTURE = {"judge_failed"}
PLAIN_EVERY_S = 30.0


@click.command()
@options.problem
@click.option(
    "--model", "-m", default="oracle", show_default=True, metavar="M", help="A model (`arena list models`), or harness/model."
)
@options.hardware
@options.gpu
@click.option("--budget", default="45m", show_default=True, metavar="T", help="The agent's wall clock: 45m, 90s, 1.5h.")
@click.option("--trials", "-n", default=1, show_default=True, type=click.IntRange(1), help="Independent attempts at the cell.")
@options.sandbox
@options.as_json
@click.pass_context
def run(
    context: click.Context,
    problem_name: str,
    model: str,
    hardware_name: str,
    gpu: int,
    budget: str,
    trials: int,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Run one cell: MODEL works on PROBLEM in the sandbox, and what it leaves is scored independently."""
    problem, hardware = options.problem_on(problem_name, hardware_name)
    chosen = catalog.model(model)
    attempt = run_.Attempt(chosen, problem, hardware, options.seconds(budget), sandbox_name, backend(sandbox_name), gpu)
    done = []
    for trial in range(1, trials + 1):
        people.print(
            f"[bold]{escape(chosen.model_name)}[/] on [bold]{problem.name}[/] ({hardware.title}), trial {trial} of {trials}",
            soft_wrap=True,
        )
        with Display(attempt.budget_s) as display:
            done.append(run_.run(attempt, display.show))
        _summary(done[-1])
    if as_json:
        data([annotation.model_dump(mode="json") for annotation in done])
    if any(annotation.score.verdict in INFRASTRUCTURE for annotation in done):
        context.exit(1)


def _summary(annotation: Annotation) -> None:
    session = annotation.session
    people.print(
        f"agent {session.agent_status} after {session.elapsed_s:.1f} s"
        + (f": {escape(session.message)}" if session.message else ""),
        soft_wrap=True,
    )
    show_score(annotation.score)
    where = paths.annotations() / f"{annotation.run_id}.yaml"
    people.print(f"annotation  {where}\nleaderboard {paths.leaderboard() / 'LEADERBOARD.md'}", soft_wrap=True)


class Display:
    """One line that says where the run is: redrawn on a terminal, printed now and then elsewhere."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._began_s = time.monotonic()
        self._progress = Progress("start", "")
        self._printed = ("", 0.0)
        self._live = Live(self, console=people, refresh_per_second=4, transient=True) if people.is_terminal else None

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> Text:
        return Text.from_markup(self._line())

    def show(self, progress: Progress) -> None:
        """Take note of where the run is."""
        self._progress = progress
        phase, at_s = self._printed
        if self._live is None and (progress.phase != phase or time.monotonic() - at_s > PLAIN_EVERY_S):
            self._printed = (progress.phase, time.monotonic())
            people.print(self._line(), soft_wrap=True)

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._began_s
        budget = f" of {_clock(self._budget_s)}" if self._progress.phase == "agent" else ""
        return f"[cyan]{self._progress.phase:6}[/] {_clock(elapsed_s)}{budget}  {escape(self._progress.text)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


COMMANDS = (run,)
