"""Times of commands that do little: processor time and wall clock, the median of several starts. Needs arena installed."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

COMMANDS = (
    ("--help",),
    ("run", "--help"),
    ("--version",),
    ("list", "problems"),
    ("list", "models"),
    ("list", "runs"),
    ("doctor",),
    ("score", "problems/w4a16_gemm/solutions/wrong_zeros.py", "--problem", "w4a16_gemm", "--hardware", "cpu"),
)


def timed(words: tuple[str, ...]) -> tuple[float, float]:
    """(processor seconds of the command and its children, seconds by the clock)."""
    before, begun_s = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-m", "arena", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return used_s, time.monotonic() - begun_s


def main() -> None:
    """Print a row for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=9, help="of each command")
    starts = parser.parse_args().starts
    print("| command | processor time, s | wall clock, s |\n|---|---|---|")
    for words in COMMANDS:
        used_s, took_s = zip(*(timed(words) for _ in range(starts)), strict=True)
        print(f"| `arena {' '.join(words)}` | {statistics.median(used_s):.2f} | {statistics.median(took_s):.2f} |", flush=True)


if __name__ == "__main__":
    main()
