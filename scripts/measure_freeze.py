"""How often a frozen sandbox's CPU clocks still move, and by how much. Its threads sleep or spin; it is frozen and resumed over
and over, with or without other load on the machine.

    python scripts/measure_freeze.py [--sleeping 2] [--spinning 2] [--load 0] [--times 2000] [--apart-ms 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from arena.sandboxes import SandboxSpec, bwrap

BUSY = "while True: sum(range(10000))"
THREADS = """
import sys, threading, time
def sleep():
    while True: time.sleep(0.001)
def spin():
    while True: sum(range(1000))
for work, count in ((sleep, sys.argv[1]), (spin, sys.argv[2])):
    for _ in range(int(count)): threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
time.sleep(1e6)
"""


def moved_ns(sleeping: int, spinning: int, times: int, apart_ms: int) -> list[int]:
    """By how much the clocks of the frozen sandbox grew, for each freeze in which they did."""
    grown = []
    with bwrap.run(SandboxSpec("worker", ("python", "-c", THREADS, str(sleeping), str(spinning)))) as running:
        running.stdout.readline()
        for _ in range(times):
            stopped_ns = running.freeze()
            time.sleep(apart_ms / 1e3)
            grown.append(running.cpu_ns() - stopped_ns)
            running.resume()
            time.sleep(0.003)
    return [ns for ns in grown if ns]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    for name, default in (("sleeping", 2), ("spinning", 2), ("load", 0), ("times", 2000), ("apart-ms", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
    try:
        moved = moved_ns(options.sleeping, options.spinning, options.times, options.apart_ms)
    finally:
        for process in load:
            process.kill()
    most = f", by {max(moved) / 1e3:.0f} us at most" if moved else ""
    print(f"the clocks moved in {len(moved)} of {options.times} freezes{most}")


if __name__ == "__main__":
    main()
