"""Two GPUs of one host: agents that share one by turns, while an oracle is scored on the other.

    python scripts/measure_leases.py beside [--scores 10] [--problem fp8_gemm] [--hardware h100-sxm] [--json FILE]
    python scripts/measure_leases.py shared
    python scripts/measure_leases.py ends

`beside` scores on GPU 0 while twelve scripted sessions think, compile and take turns on GPU 1, and as often alone. Half of
the scores beside them come before those alone, half after. A score has one process and no counters. `shared` has these sessions
at work without any score, and then one of them with GPU 1 to itself. Both print the use of GPU 1 as the driver reports it: the
part of time in which a kernel ran, read five times a second. `ends` holds a lease for ever, and kills a client.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml

from arena import catalog, judge, paths
from arena.judge.device import nvml
from arena.judge.sampling import GPU
from arena.sandboxes.backends import backend
from arena.schema import Passed
from arena.submission import collect

NAME = "measured-leases"
AT_ONCE, THINK_S, WORK_S, LEASE_S = 12, 14, 2, 10
JUDGE_CORES = 2
"""The sweep keeps so many processors for its judge, the last ones; the scores are taken on them."""
READ_EVERY_S = 0.2
SHARED_S = 64
WORK = f"""import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + {WORK_S}
while time.monotonic() < end:
    a @ a
    torch.cuda.synchronize()
"""
ENDLESS = 1000
"""Turns: a session that does not end while scores are taken, so that the sweep's own judge never asks for GPU 0."""
AGENT = f"""import subprocess, sys, time
open("kernel.c", "w").write("int f(int x) {{ return x; }}")
for turn in range(int(sys.argv[1])):
    end = time.monotonic() + {THINK_S}
    while time.monotonic() < end:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", "kernel.so", "kernel.c"], check=False)
        time.sleep(1)
    subprocess.run([*sys.argv[2:], "python", "-c", {WORK!r}], check=True)
"""
ENDS = f"""import os, subprocess, time
SPIN = {WORK.replace(f"+ {WORK_S}", "+ 600")!r}
def taken(command):
    began = time.monotonic()
    code = subprocess.run(command).returncode
    return code, round(time.monotonic() - began, 2)
taken(["gpu", "true"])
print("a turn of nothing (exit code, s):", taken(["gpu", "true"]), flush=True)
print("held for ever (exit code, s):", taken(["gpu", "python", "-c", SPIN]), flush=True)
open("spin.py", "w").write(SPIN.replace("end =", "open('held', 'w').close(); end ="))
held = subprocess.Popen(["gpu", "python", "spin.py"])
while not os.path.exists("held"):
    time.sleep(0.01)
time.sleep(1)
held.kill()
print("the next turn after kill -9 of a client (exit code, s):", taken(["gpu", "true"]), flush=True)
"""


@contextmanager
def sweep(agent: str, turns: int, trials: int, problem: str, place: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Such sessions at work as one sweep, which is killed at the end."""
    harness = paths.harnesses() / f"{NAME}.yaml"
    command = ["python", "-c", agent, str(turns), *(["gpu"] if place.get("access") == "leased" else [])]
    harness.write_text(yaml.safe_dump({"schema_version": 1, "title": NAME, "command": command, "models": {NAME: {}}}))
    cell = {"models": [NAME], "problems": [problem], "budget": "1h"}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.yaml"
        name = f"{NAME}-{time.time_ns()}"
        file.write_text(yaml.safe_dump({"name": name, "trials": trials, "cells": [cell], "place": place}))
        process = subprocess.Popen([sys.executable, "-m", "arena", "sweep", str(file)], stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            harness.unlink()


@contextmanager
def use(gpu: int) -> Iterator[list[int]]:
    """Readings of a GPU's use in percent of time."""
    readings, ended = list[int](), threading.Event()
    with nvml.opened(f"GPU-{torch.cuda.get_device_properties(gpu).uuid}") as device:
        if device is None:
            sys.exit("pynvml finds no driver here: pip install nvidia-ml-py")

        def read() -> None:
            while not ended.wait(READ_EVERY_S):
                readings.append(device.ask("UtilizationRates").gpu)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield readings
        finally:
            ended.set()
            thread.join()


def scores(count: int, options: argparse.Namespace, beside: str) -> list[Passed]:
    """So many scores of the oracle on GPU 0."""
    hardware, problem = catalog.hardware(options.hardware), catalog.problem(options.problem)
    path = catalog.solutions(paths.problems() / problem.name, hardware.profile)["oracle"]
    found = []
    for _ in range(count):
        result = judge.score(
            collect(path.parent, path.name),
            problem,
            hardware,
            digest=catalog.problem_digest(problem.name),
            sandbox=backend(),
            sampling=replace(GPU, processes=1, counters=False),
        )
        if not isinstance(result, Passed):
            sys.exit(f"not passed: {result.message}")
        found.append(result)
        print(f"{beside}: {result.peak_fraction:.4f} in {result.timings.total_s:.1f} s", flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps({"beside": beside, "score": result.model_dump(mode="json")}) + "\n")
    return found


def beside(options: argparse.Namespace) -> None:
    """Scores beside the sessions, alone, and beside them again."""
    place = {"gpus": [0, 1], "judge": [0], "access": "leased", "parallel": AT_ONCE, "lease": f"{LEASE_S}s"}
    every = sorted(os.sched_getaffinity(0))
    near, used = list[Passed](), list[int]()

    def again(count: int) -> None:
        with sweep(AGENT, ENDLESS, AT_ONCE, options.problem, place):
            time.sleep(THINK_S)  # until the first of them takes its turn
            os.sched_setaffinity(0, every[-JUDGE_CORES:])
            with use(1) as readings:
                near.extend(scores(count, options, "agents"))
            os.sched_setaffinity(0, every)
        used.extend(readings)

    again((options.scores + 1) // 2)
    alone = scores(options.scores, options, "nothing")
    again(options.scores // 2)
    print(f"GPU 1 in use for {statistics.mean(used):.1f} % of the time beside the scores")
    both = [statistics.median(one.peak_fraction for one in some) for some in (near, alone)]
    print(f"medians beside and alone {both[0]:.4f} and {both[1]:.4f}, ratio {both[0] / both[1]:.4f} (wanted: 0.995 to 1.005)")
    for number, shape in enumerate(alone[0].shapes):
        among = [statistics.median(one.shapes[number].measured_s for one in some) for some in (near, alone)]
        print(f"  {shape.shape}: calls among others take {among[0] / among[1]:.4f} of the time alone")


def shared(options: argparse.Namespace) -> None:
    """The use of a GPU that twelve sessions share, and of one that each has to itself, without their starts and ends."""
    common: dict[str, Any] = {"gpus": [0, 1], "judge": [0]}
    places = {
        f"{AT_ONCE} sessions by turns": {**common, "access": "leased", "parallel": AT_ONCE, "lease": f"{LEASE_S}s"},
        "one session after the other": {**common, "access": "exclusive", "parallel": 1},
    }
    for name, place in places.items():
        with sweep(AGENT, ENDLESS, place["parallel"], options.problem, place):
            time.sleep(2 * THINK_S)  # until all have started and some have had their first turn
            with use(1) as readings:
                time.sleep(SHARED_S)
        print(f"{name}: GPU 1 in use for {statistics.mean(readings):.1f} % of {SHARED_S} s", flush=True)


def ends(options: argparse.Namespace) -> None:
    """What the end of a lease takes."""
    place = {"gpus": [0, 1], "judge": [0], "access": "leased", "parallel": 1, "lease": f"{LEASE_S}s"}
    before = set(paths.workspaces().rglob("stdout.jsonl"))
    with sweep(ENDS, 1, 1, options.problem, place) as process:
        process.wait()
    for path in set(paths.workspaces().rglob("stdout.jsonl")) - before:
        print(path.read_text(), end="")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("beside", "shared", "ends"))
    parser.add_argument("--scores", type=int, default=10)
    parser.add_argument("--problem", default="fp8_gemm")
    parser.add_argument("--hardware", default="h100-sxm")
    parser.add_argument("--json", type=Path, help="file that every score is added to")
    options = parser.parse_args()
    {"beside": beside, "shared": shared, "ends": ends}[options.part](options)


if __name__ == "__main__":
    main()
