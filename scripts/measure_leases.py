"""Two GPUs: leased agents at work on one while an oracle is scored on the other. `python scripts/measure_leases.py [SCORES]`

Six sessions run check.py for ten seconds of every minute by turns on GPU 1, as one sweep with `access: leased` does. Meanwhile an
oracle is scored on GPU 0, then as often alone. Prints both medians, their ratio, and what nvidia-smi saw of the GPUs' use.
Not run yet: it needs two GPUs on one host.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from arena import paths

PROBLEM, SESSIONS, TURN_S, PERIOD_S = "paged_attention", 6, 10, 60
AGENT = f"""import subprocess, time
while True:
    subprocess.run(["gpu", "timeout", "{TURN_S}", "sh", "-c", "while :; do python check.py; done"])
    time.sleep({PERIOD_S - TURN_S})
"""


def scores(count: int) -> list[float]:
    """So many scores of the oracle on GPU 0."""
    folder = paths.problems() / PROBLEM / "solutions"
    file = next(path for name in ("oracle_gpu.py", "oracle.py") if (path := folder / name).exists())
    found = []
    for _ in range(count):
        command = [sys.executable, "-m", "arena", "score", str(file), "--problem", PROBLEM, "--gpu", "0", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        score = json.loads(done.stdout)
        if score["verdict"] != "passed":
            sys.exit(f"not passed: {score['message']}")
        found.append(float(score["peak_fraction"]))
        print(f"{found[-1]:.4f}", flush=True)
    return found


def use() -> str:
    """Percent of time in use, by GPU."""
    query = ["nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.replace("\n", "; ")


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    harness = paths.harnesses() / "measured-leases.yaml"
    document = {"schema_version": 1, "title": "measured", "command": ["python", "-c", AGENT], "models": {"measured-leases": {}}}
    harness.write_text(yaml.safe_dump(document))
    place = {"gpus": [0, 1], "judge": [0], "access": "leased", "parallel": SESSIONS}
    cell = {"models": ["measured-leases"], "problems": [PROBLEM], "budget": "4h"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "leases.yaml"
        file.write_text(yaml.safe_dump({"name": "measured-leases", "trials": SESSIONS, "cells": [cell], "place": place}))
        agents = subprocess.Popen([sys.executable, "-m", "arena", "sweep", str(file)])
        try:
            print("beside six agents:")
            beside = scores(count)
            print(use())
        finally:
            agents.kill()
            agents.wait()
            harness.unlink()
    print("alone:")
    alone = scores(count)
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"medians {statistics.median(beside):.4f} and {statistics.median(alone):.4f}")
    print(f"ratio {ratio:.4f} (wanted: 0.995 to 1.005)")


if __name__ == "__main__":
    main()
