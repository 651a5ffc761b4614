"""One step of a sweep in a process of its own: `python -m arena.sweep.child PARENT` reads its order as a line of JSON from stdin.

{"play": PlannedSession, "gpu": N, "place": SweepPlace, "cell": Cell, "cpus": [N] or null}    plays a session
{"judge": RUN, "gpu": N, "beside": TEXT, "cpus": [N] or null}            scores a run whose session has ended

It writes a JSON object a line to stdout: {"phase", "text", "elapsed_s", "budget_s", "activity"} as it goes on, {"lease"} for its
turns on a shared GPU (lease.py), and at last {"run": RUN} or {"error": TEXT}. It ends with the sweep, however that ends, or when
the machine has slept; its sandboxes end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from arena.schema import Hardware

PR_SET_PDEATHSIG = 1
SLEPT_S = 60.0
LOOK_S = 1.0
SLEPT = 71
"""Exit code after a sleep of the machine."""
SAYING = threading.Lock()
TO_SWEEP = os.fdopen(os.dup(1), "w")
"""What a library prints must not come among the lines for the sweep: stdout itself becomes stderr."""
os.dup2(2, 1)


def lines(fd: int) -> Iterator[bytes]:
    """The lines of a pipe. Not by `sys.stdin`: a thread that waits there makes the interpreter fail at its end."""
    rest = b""
    while chunk := os.read(fd, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


REPLIES = lines(0)
"""The order, and then the sweep's replies."""


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the sweep's ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *(ctypes.c_ulong(0),) * 3):
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before that
        sys.exit("the sweep has ended")


def say(**line: object) -> None:
    """Tell the sweep."""
    with SAYING:
        TO_SWEEP.write(json.dumps(line) + "\n")
        TO_SWEEP.flush()


def slept_s() -> float:
    """Seconds for which the machine has slept since its start: its boot clock goes on meanwhile, the monotonic one does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def end_after_sleep(slept: Callable[[], float] = slept_s, end: Callable[[int], object] = os._exit) -> None:
    """End this process when the machine has slept for more than a minute: the provider and the agent went on or broke off, the
    budget did not. The trial is interrupted, and played anew."""
    before_s = slept()
    while slept() - before_s <= SLEPT_S:
        time.sleep(LOOK_S)
    say(error="the machine has slept, and a session or a score of that time would mean nothing")
    end(SLEPT)


def node_of(hardware: Hardware, gpu: int) -> int | None:
    """The number of the device node of a GPU that sessions share, by its CUDA index. JudgeError."""
    from arena import judge

    return judge.preflight(hardware, gpu, shared=True)


def act(order: dict[str, Any]) -> str:
    """Carry the order out; the run's id. ArenaError."""
    from arena import paths, run_cell
    from arena.agents.supervisor import Progress
    from arena.errors import UsageError
    from arena.results import run_folder
    from arena.schema import Cell, SweepPlace
    from arena.sweep.grid import PlannedSession
    from arena.sweep.lease import SweepTurns

    def report(progress: Progress) -> None:
        say(**asdict(progress))

    cpus = frozenset(order["cpus"]) if order.get("cpus") else None
    if "judge" in order:
        if cpus:
            os.sched_setaffinity(0, cpus)
        state = run_folder.read_state(paths.workspaces(), order["judge"])
        return run_cell.judge_run(state, order["gpu"], report, beside=order["beside"]).run_id
    spec = PlannedSession.model_validate(order["play"]).spec(order["gpu"], SweepPlace.model_validate(order["place"]))
    if spec.leased:
        spec = replace(spec, leased=SweepTurns(say, REPLIES, partial(node_of, spec.hardware)))
    spec = replace(spec, cpus=cpus)
    if spec.cell() != Cell.model_validate(order["cell"]):
        raise UsageError(f"problem {spec.problem.name} or harness {spec.selected.harness.name} has changed since the sweep began")
    return run_cell.play_cell(spec, report)


def main() -> NoReturn:
    """Read the order, carry it out, and exit."""
    end_with(int(sys.argv[1]))  # before the imports below, which take a second
    order = json.loads(next(REPLIES))
    threading.Thread(target=end_after_sleep, name="sleep", daemon=True).start()
    from arena.errors import ArenaError

    try:
        say(run=act(order))
    except ArenaError as error:
        say(error=str(error))
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
