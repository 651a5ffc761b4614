"""A stub of a model provider: it plays one fixed script over the real wire formats of all four APIs.

`started` runs it in a process of its own, as `python -m tests.stub` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
NAIVE = ROOT / "problems" / "paged_attention" / "solutions" / "naive.py"
SUMMED = ("input", "cache_read", "cache_write", "output", "reasoning")


@dataclass(frozen=True)
class Stub:
    """A running stub."""

    port: int
    """0 on a unix socket."""
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The logged lines of that kind, `request` or `answer`."""
        if not self.log.exists():
            return []
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line["kind"] == kind]

    def requests(self) -> list[dict[str, Any]]:
        """The requests for an answer."""
        return [line for line in self.lines("request") if line["api"] and line["method"] == "POST"]

    def usage(self) -> dict[str, int]:
        """Tokens that all its complete answers report."""
        reported = [line["usage"] for line in self.lines("answer") if "usage" in line]
        return {name: sum(usage[name] for usage in reported) for name in SUMMED}

    def cost_usd(self) -> float:
        """Dollars that all its complete answers report, as a broker does."""
        return sum(line["usage"]["cost_usd"] or 0.0 for line in self.lines("answer") if "usage" in line)


@contextmanager
def started(log: Path, *words: str, solution: Path = NAIVE) -> Iterator[Stub]:
    """Run the stub for the length of the block, with `words` added to its command line."""
    command = [sys.executable, "-m", "tests.stub", "--solution", str(solution), "--log", str(log), *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Stub(int(process.stdout.readline()), log)
        finally:
            process.kill()
