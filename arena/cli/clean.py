"""`arena clean`: free the room of old run folders."""

from __future__ import annotations

import fcntl
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import rich_click as click
from rich.table import Table

from arena import paths
from arena.cli import options
from arena.cli.console import answering, data, safe, tell, tell_table
from arena.errors import ArenaError, Faults
from arena.results import run_folder
from arena.results.run_folder import RunState
from arena.system import process

LIMIT_S = 600.0
"""Of one folder's size and of its removal: an agent may have made millions of files."""


@click.command()
@click.option("--days", default=30, show_default=True, type=click.IntRange(0), metavar="N", help="Take the runs older than this.")
@click.option("--yes", is_flag=True, help="Delete them. Without it nothing is deleted.")
@options.as_json
def clean(days: int, yes: bool, as_json: bool) -> None:
    """Show what deleting old run folders would free; with --yes delete them. Annotations are never touched.

    Kept are runs at work, runs that wait for their score, committed runs without their annotation, and runs of a sweep that is
    still there.
    """
    states = [state for state in run_folder.list_runs(paths.workspaces()) if _deletable(state, days)]
    rows = [(state.run.run_id, state.state, _bytes(state.run.folder) / 1e6) for state in states]
    if yes:
        faults = Faults()
        for state in states:
            faults.collect(partial(_delete, state.run.folder))
        faults.raise_all()
    if as_json:
        data({"deleted": yes, "runs": [{"run": run, "state": state, "mb": round(mb, 3)} for run, state, mb in rows]})
        return
    if not rows:
        tell(f"no run folder is older than {days} days and may go")
        return
    table = Table("run", "state", "MB", box=None, pad_edge=False)
    for run, kind, mb in rows:
        table.add_row(safe(run), kind, f"{mb:.1f}")
    total_mb = sum(mb for _, _, mb in rows)
    with answering():
        tell_table(table)
        tell(f"{'deleted' if yes else '--yes deletes'} {len(rows)} run folders, {total_mb:.1f} MB in {safe(paths.workspaces())}")


def _deletable(state: RunState, days: int) -> bool:
    """Whether a run is old, and nothing needs its folder any more."""
    begun = datetime.fromtimestamp(state.run.manifest.stat().st_mtime, UTC)  # a run's first file
    if datetime.now(UTC) - begun < timedelta(days=days):
        return False
    if state.cell is None:  # this version of arena cannot read what it is
        return False
    if state.sweep and (paths.sweeps() / state.sweep.name).exists():  # a sweep finds its trials by their folders
        return False
    if state.state == "committed":
        return (paths.annotations() / f"{state.run.run_id}.yaml").exists()
    return state.state == "interrupted"


def _bytes(folder: Path) -> int:
    """Room that the folder takes on its disk. By `du`, which follows no link and walks trees of any depth. ArenaError."""
    done = process.run(["du", "--summarize", "--block-size=1", "--", str(folder)], limit_s=LIMIT_S)
    if not (size := done.stdout.split(b"\t")[0]).isdigit():  # it prints a sum also where it may not enter a part
        raise ArenaError(f"{folder}: its size is unknown: {done.stderr.decode(errors='replace').strip() or 'du took too long'}")
    return int(size)


def _delete(folder: Path) -> None:
    """Delete a run's folder, locked so that no arena can take the run up meanwhile. It takes no room on the disk. ArenaError."""
    try:
        with (folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Python's own removal fails on trees as deep as an agent can make them.
            done = process.run(["rm", "-rf", "--one-file-system", "--", str(folder)], limit_s=LIMIT_S)
    except BlockingIOError:
        raise ArenaError(f"{folder}: is in use, and was not deleted") from None
    except OSError as error:
        raise ArenaError(f"{folder}: cannot be deleted: {error.strerror}") from None
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise ArenaError(f"{folder}: cannot be deleted: {why[0] if why else 'it took too long'}")
