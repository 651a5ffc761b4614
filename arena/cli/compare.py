"""`arena compare`: what the trials of two rows let anybody say."""

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import answering, data, safe, tell
from arena.errors import UsageError
from arena.files.documents import unknown
from arena.plan import seconds
from arena.results import annotations, baselines, leaderboard
from arena.results.board import Interval, Ratio, Table
from arena.results.compare import Comparison, compare, find_row


@click.command("compare")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option(
    "--problem", "-p", "problems", multiple=True, metavar="P", help="Compare on this problem. Default: all that both tried."
)
@options.hardware
@click.option("--budget", metavar="T", help="Take the rows with this budget, where a model has several.")
@options.as_json
def compare_(
    left: str, right: str, problems: tuple[str, ...], hardware_name: str | None, budget: str | None, as_json: bool
) -> None:
    """Compare two rows of the leaderboard, each named harness/model@effort or a part of that, and say what is known."""
    table = _table(hardware_name)
    budget_s = seconds(budget, "--budget") if budget else None
    found = compare(table, find_row(table, left, budget_s), find_row(table, right, budget_s), problems)
    if as_json:
        data(found)
        return
    with answering():
        _show(found)


def _table(hardware: str | None) -> Table:
    """The table of that hardware, or the only one."""
    board = leaderboard.build(annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))
    tables = {table.hardware: table for table in board.tables if table.rows}
    if not tables:
        raise UsageError(f"there is no run in {paths.annotations()} yet: `arena run` makes one")
    if hardware is None and len(tables) > 1:
        raise UsageError(f"choose one with --hardware: there are runs on {', '.join(tables)}")
    chosen = hardware or next(iter(tables))
    if chosen not in tables:
        raise UsageError(unknown("hardware with runs", chosen, tables))
    return tables[chosen]


def _show(found: Comparison) -> None:
    count = len(found.problems)
    over = f"{count} problem{'s' * (count > 1)}: {', '.join(found.problems)}"
    tell(f"[bold]{safe(found.left)}[/] against [bold]{safe(found.right)}[/] on {found.hardware}, {over}")
    shares = [f"{passed} of {counted}" for passed, counted in zip(found.passed, found.counted, strict=True)]
    low, high = found.pass_difference.low * 100, found.pass_difference.high * 100
    tell(f"passed      {shares[0]} against {shares[1]}: {low:+.0f} to {high:+.0f} points")
    tell(f"gain        {_words(found.gain, count) if found.gain else 'unknown: no problem has a naive fraction here'}")
    tell(f"given pass  {_words(found.given_pass, count) if found.given_pass else 'unknown: no problem was solved by both'}")
    tell(_verdict(found))


def _words(ratio: Ratio, count: int) -> str:
    over = "" if ratio.problems == count else f" over {ratio.problems} of {count} problems"
    these = (
        f"on these problems {_range(ratio.on_these)}"
        if ratio.on_these
        else "its spread is unknown: too few trials, or all are equal"
    )
    others = f"; on problems like these {_range(ratio.on_others)}" if ratio.on_others else ""
    return f"ratio {ratio.value:.2f}{over}; {these}{others}"


def _range(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _verdict(found: Comparison) -> str:
    if found.p is None or found.gain is None:
        return "Nothing can be said of their gain: measure the naive kernel (`arena run -m naive`, or `arena baseline`)."
    if found.p < 0.05:
        return f"[bold]Apart[/] on these problems (p {found.p:.2g})."
    seen = f" With 80 % so many trials show a ratio of {found.seen:.2f}." if found.seen else ""
    needed = f" To show {found.gain.value:.2f}: {found.needed} trials of each cell." if found.needed else ""
    return f"[bold]Not apart[/] on these problems (p {found.p:.2g}).{seen}{needed}"
