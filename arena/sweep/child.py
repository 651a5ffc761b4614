"""One step of a sweep in a process of its own: `python -m arena.sweep.child PARENT` reads its order as JSON from stdin.

{"play": PlannedSession, "gpu": N, "place": SweepPlace, "cell": Cell}   plays a session
{"judge": RUN, "gpu": N}                                                scores a run whose session has ended

It writes a JSON object a line to stdout: {"phase", "text", "elapsed_s", "budget_s"} as it goes on, and at last {"run": RUN} or
{"error": TEXT}. It ends with the sweep, however that ends; its sandboxes end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
TO_SWEEP = os.fdopen(os.dup(1), "w")
"""What a library prints must not come among the lines for the sweep: stdout itself becomes stderr."""
os.dup2(2, 1)


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the sweep's ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *(ctypes.c_ulong(0),) * 3):
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before that
        sys.exit("the sweep has ended")


def say(**line: object) -> None:
    """Tell the sweep."""
    TO_SWEEP.write(json.dumps(line) + "\n")
    TO_SWEEP.flush()


def act(order: dict[str, Any]) -> str:
    """Carry the order out; the run's id. ArenaError."""
    from arena import paths, run_cell
    from arena.agents.supervisor import Progress
    from arena.errors import UsageError
    from arena.results import run_folder
    from arena.schema import Cell, SweepPlace
    from arena.sweep.grid import PlannedSession

    def report(progress: Progress) -> None:
        say(phase=progress.phase, text=progress.text, elapsed_s=progress.elapsed_s, budget_s=progress.budget_s)

    if "judge" in order:
        state = run_folder.read_state(paths.workspaces(), order["judge"])
        return run_cell.judge_run(state, order["gpu"], report).run_id
    spec = PlannedSession.model_validate(order["play"]).spec(order["gpu"], SweepPlace.model_validate(order["place"]))
    if spec.cell() != Cell.model_validate(order["cell"]):
        raise UsageError(f"problem {spec.problem.name} or harness {spec.selected.harness.name} has changed since the sweep began")
    return run_cell.play_cell(spec, report)


def main() -> NoReturn:
    """Read the order, carry it out, and exit."""
    end_with(int(sys.argv[1]))  # before the imports below, which take a second
    order = json.loads(sys.stdin.read())
    from arena.errors import ArenaError

    try:
        say(run=act(order))
    except ArenaError as error:
        say(error=str(error))
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
