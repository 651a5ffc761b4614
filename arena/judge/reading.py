"""What the text of a submission alone shows: whether it is Python, which forbidden names it uses, and its fingerprints."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable
from typing import NamedTuple

from arena import paths
from arena.errors import JudgeError
from arena.judge import reader
from arena.judge.fingerprints import unpacked
from arena.judge.rejection import Rejection
from arena.system import process

MOST_CPU_S, MOST_BYTES = 60, 2 << 30
"""Of processor time and of memory. A text can be written to take far more: Python 3.11 takes 75 s for one f-string of 1 MiB."""
TIMES_AS_LONG = 10
"""How much longer than its processor time the reader may take on a busy machine."""
MOST_PRINTED_BYTES = 16 << 20
PROGRAM = f"import sys; sys.path[:0] = [sys.argv.pop(1)]; from {reader.__name__} import main; main()"
"""Its first argument is the folder of this arena, which is not the one that is installed where this one is a checkout."""


class Reading(NamedTuple):
    """What was read of a source that is Python."""

    uses: tuple[tuple[str, int], ...]
    """The first uses of forbidden names: the name, and the line."""
    fingerprints: frozenset[int]


def read(source: bytes, names: Iterable[str], *, most_cpu_s: int = MOST_CPU_S, most_bytes: int = MOST_BYTES) -> Reading:
    """Read a source in a process of its own: it may be slow to read, take much memory, or end Python's parser.

    Rejection where it is not Python or cannot be read within the limits; JudgeError where the machine is at fault.
    """
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(paths.PACKAGE.parent)]
    limit_s = TIMES_AS_LONG * most_cpu_s
    done = process.run(
        [*command, str(most_cpu_s), str(most_bytes), *names], stdin=source, limit_s=limit_s, cap_bytes=MOST_PRINTED_BYTES
    )
    if done.timed_out:
        raise JudgeError(f"{limit_s} s were not enough for {most_cpu_s} s of reading solution.py: the machine is too busy")
    _, begun, found = done.stdout.partition(reader.BEGUN)
    if done.returncode:
        why = _why(done)
        if not begun:
            raise JudgeError(f"solution.py could not be read: {why}")
        if done.returncode == -signal.SIGXCPU:
            raise Rejection("crashed", f"solution.py takes more than {most_cpu_s} s of processor time to read")
        raise Rejection("crashed", f"solution.py does not parse: {why}")
    shown = json.loads(found)
    if "error" in shown:
        raise Rejection("crashed", f"solution.py does not parse: {shown['error']}")
    return Reading(tuple((name, line) for name, line in shown["uses"]), frozenset(unpacked(shown["fingerprints"])))


def _why(done: process.Finished) -> str:
    """How the reader ended, in words."""
    if done.returncode < 0:
        return f"signal {-done.returncode} ended the process that read it"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the process that read it ended with status {done.returncode}"
