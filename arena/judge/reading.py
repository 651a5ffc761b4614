"""What the text of a submission alone shows: whether it is Python, which forbidden names it uses, and its fingerprints."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable
from typing import NamedTuple

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
BEGUN = reader.BEGUN.encode()


class Reading(NamedTuple):
    """What was read of a source that is Python."""

    uses: tuple[tuple[str, int], ...]
    """The first uses of forbidden names: the name, and the line."""
    fingerprints: frozenset[int]


def read(source: bytes, names: Iterable[str], *, most_cpu_s: int = MOST_CPU_S, most_bytes: int = MOST_BYTES) -> Reading:
    """Read a source in a process of its own: it may be slow to read, take much memory, or end Python's parser.

    Rejection where it is not Python or cannot be read within the limits; JudgeError where the machine is at fault.
    """
    command = [sys.executable, "-P", "-m", reader.__name__, str(most_cpu_s), str(most_bytes), *names]
    limit_s = TIMES_AS_LONG * most_cpu_s
    done = process.run(command, stdin=source, limit_s=limit_s, cap_bytes=MOST_PRINTED_BYTES)
    if done.timed_out:
        raise JudgeError(f"{limit_s} s were not enough for {most_cpu_s} s of reading solution.py: the machine is too busy")
    if done.returncode == -signal.SIGXCPU:
        raise Rejection("crashed", f"solution.py takes more than {most_cpu_s} s of processor time to read")
    if done.returncode < 0:
        raise Rejection("crashed", f"solution.py does not parse: signal {-done.returncode} ended the process that read it")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {done.returncode}"
        if done.stdout.startswith(BEGUN):
            raise Rejection("crashed", f"solution.py does not parse: {why}")
        raise JudgeError(f"solution.py could not be read: {why}")
    found = json.loads(done.stdout.removeprefix(BEGUN))
    if "error" in found:
        raise Rejection("crashed", f"solution.py does not parse: {found['error']}")
    return Reading(tuple((name, line) for name, line in found["uses"]), frozenset(unpacked(found["fingerprints"])))
