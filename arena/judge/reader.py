"""Read a submission's source from stdin, and write what its text alone shows to stdout: a program that `reading.py` starts.

Arguments: the most seconds of processor time and bytes of memory that it may take, and the names that the source may not use.
Writes BEGUN, and then JSON. A failure after BEGUN is the text's doing.
"""

from __future__ import annotations

import json
import resource
import sys
import tokenize
from typing import Any

from arena.judge.fingerprints import of_python, packed
from arena.judge.forbidden import forbidden

BEGUN = b"reading\n"
MOST_USES = 5
KILLED_AFTER_S = 5
"""The limit of processor time by which SIGKILL comes is so much higher: SIGXCPU, which tells why, is to come first."""


def shown(source: str, names: list[str]) -> dict[str, Any]:
    """What the text shows: `error` where it is not Python, else the first `uses` of these names, and its `fingerprints`."""
    try:
        uses = forbidden(source, names)
    except SyntaxError as error:
        return {"error": f"line {error.lineno}: {error.msg}" if error.lineno else error.msg}
    try:
        fingerprints = of_python(source)
    except (SyntaxError, ValueError, tokenize.TokenError):  # Python reads the text otherwise than `tokenize` does
        fingerprints = set()
    return {"uses": uses[:MOST_USES], "fingerprints": packed(fingerprints)}


def limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit, where none is set that is lower."""
    present = resource.getrlimit(kind)[1]
    most = hard if present == resource.RLIM_INFINITY else min(hard, present)
    resource.setrlimit(kind, (min(soft, most), most))


def main() -> None:
    """Read, and write the result."""
    most_cpu_s, most_bytes = map(int, sys.argv[1:3])
    limit(resource.RLIMIT_CORE, 0, 0)
    limit(resource.RLIMIT_CPU, most_cpu_s, most_cpu_s + KILLED_AFTER_S)
    limit(resource.RLIMIT_AS, most_bytes, most_bytes)
    source = sys.stdin.buffer.read()
    out = sys.stdout.buffer
    out.write(BEGUN)
    out.flush()
    out.write(json.dumps(shown(source.decode(), sys.argv[3:])).encode())
