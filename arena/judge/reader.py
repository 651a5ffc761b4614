"""Read a submission's source from stdin, and write what its text alone shows to stdout: a program that `reading.py` starts.

Arguments: the most seconds of processor time and bytes of memory that it may take, and the names that the source may not use.
Writes BEGUN, and then a line of JSON. A failure after BEGUN is the text's doing.
"""

from __future__ import annotations

import json
import resource
import sys
import tokenize
from typing import Any

from arena.judge.fingerprints import of_python, packed
from arena.judge.forbidden import forbidden

BEGUN = "reading\n"
MOST_USES = 5


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


if __name__ == "__main__":
    most_cpu_s, most_bytes = map(int, sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s + 5))  # so that SIGXCPU ends it, and not SIGKILL
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    sys.stdout.write(BEGUN)
    sys.stdout.flush()
    sys.stdout.write(json.dumps(shown(sys.stdin.buffer.read().decode(), sys.argv[3:])))
