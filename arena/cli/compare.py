"""`arena compare`: what the trials of two rows let anybody say."""

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import answering, data, safe, tell
from arena.errors import UsageError
from arena.files.documents import unknown
from arena.plan import seconds
from arena.results import annotations, baselines, leaderboard, run_folder
from arena.results.board import Interval, Ratio, Row, Table
from arena.results.compare import Comparison, compare, find_row, has_row
from arena.results.rows import of_runs, row_name

SWEEP = "sweep:"


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
    """Compare two rows of the leaderboard and say what is known.

    A and B are each harness/model@effort or a part of that, of all runs; or sweep:NAME/ before it, of that sweep's runs alone.
    """
    table = _table(left, right, hardware_name)
    budget_s = seconds(budget, "--budget") if budget else None
    ours, theirs = (find_row(_of_sweep(table, name), _model(name), budget_s) for name in (left, right))
    found = compare(table, ours, theirs, problems)
    found = found.model_copy(update={"left": _title(left, ours), "right": _title(right, theirs)})
    if as_json:
        data(found)
        return
    with answering():
        _show(found)


def _table(left: str, right: str, hardware: str | None) -> Table:
    """The table of that hardware, or the only one with both rows. UsageError."""
    board = leaderboard.build(annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))
    tables = {table.hardware: table for table in board.tables if table.rows}
    if not tables:
        raise UsageError(f"there is no run in {paths.annotations()} yet: `arena run` makes one")
    if hardware is not None:
        if hardware not in tables:
            raise UsageError(unknown("hardware with runs", hardware, tables))
        return tables[hardware]
    if len(tables) == 1:
        return next(iter(tables.values()))
    ran = {
        name: [key for key, table in tables.items() if has_row(_of_sweep(table, name), _model(name))] for name in (left, right)
    }
    both = [key for key in ran[left] if key in ran[right]]
    if len(both) == 1:
        return tables[both[0]]
    if both or not all(ran.values()):
        raise UsageError(f"choose one with --hardware: there are runs on {', '.join(both or tables)}")
    places = " and ".join(f"{name} ran on {', '.join(ran[name])}" for name in (left, right))
    raise UsageError(f"{left} and {right} cannot be compared: {places}, and scores on different hardware do not compare")


def _model(name: str) -> str:
    """The row's name without its sweep."""
    return name.partition("/")[2] if name.startswith(SWEEP) else name


def _title(name: str, row: Row) -> str:
    return f"{name.partition('/')[0]}/{row_name(row)}" if name.startswith(SWEEP) else row_name(row)


def _of_sweep(table: Table, name: str) -> Table:
    """The table, of the runs of one sweep alone where the name begins with it. UsageError where its runs are not here."""
    if not name.startswith(SWEEP):
        return table
    sweep, _, model = name.removeprefix(SWEEP).partition("/")
    if not model:
        raise UsageError(f"{name}: name a row too, as in {SWEEP}{sweep or 'NAME'}/MODEL")
    sweeps: dict[str, set[str]] = {}
    for state in run_folder.list_runs(paths.workspaces()):
        if state.sweep:
            sweeps.setdefault(state.sweep.name, set()).add(state.run.run_id)
    if sweep not in sweeps:
        raise UsageError(f"{unknown('sweep', sweep, sweeps)} among the run folders in {paths.workspaces()}")
    return of_runs(table, sweeps[sweep])


def _show(found: Comparison) -> None:
    count = len(found.problems)
    over = f"{count} problem{'s' * (count > 1)}: {', '.join(found.problems)}"
    tell(f"[bold]{safe(found.left)}[/] against [bold]{safe(found.right)}[/] on {found.hardware}, {over}")
    shares = [f"{passed} of {counted}" for passed, counted in zip(found.passed, found.counted, strict=True)]
    low, high = found.pass_difference.low * 100, found.pass_difference.high * 100
    tell(f"passed      {shares[0]} against {shares[1]}; by problem {low:+.0f} to {high:+.0f} points")
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
