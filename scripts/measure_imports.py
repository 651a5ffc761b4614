"""Imported problems on a GPU: what `arena check` finds, and eager, compiled and TF32 against each other.

    arena import kernelbench kb/KernelBench/level1/1 ... --out kbp
    python scripts/measure_imports.py kbp --hardware h100-sxm [--gpu 0] [--problem NAME ...] --json FILE
    python scripts/measure_imports.py --table FILE ...

One process for each score and no counters. Adds a line to FILE for each problem once it is measured; `--table` prints what such
files hold, for docs/tables/kernelbench_gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from arena import catalog
from arena.authoring.baseline import measure
from arena.authoring.check import check_problem
from arena.errors import ArenaError
from arena.judge.sampling import CPU, GPU
from arena.sandboxes.backends import backend

LINES = ("eager", "compiled", "eager_tf32")
THRESHOLDS = (0.5, 0.8, 1.0, 1.5, 2.0)


def measured(name: str, hardware_name: str, gpu: int) -> dict[str, Any]:
    """The findings and the baselines of one problem, as JSON."""
    problem, hardware = catalog.problem(name), catalog.hardware(hardware_name)
    sampling = replace(GPU if hardware.profile == "gpu" else CPU, processes=1, counters=False, build_limit_s=200.0)
    begin_s = time.monotonic()
    report = check_problem(problem, hardware, backend(), gpu=gpu, sampling=sampling)
    checked_s = time.monotonic()
    lines = measure(problem, hardware, backend(), gpu=gpu, sampling=sampling)
    seconds = {"check": round(checked_s - begin_s, 1), "baselines": round(time.monotonic() - checked_s, 1)}
    return {
        "problem": name,
        "title": problem.title,
        "seconds": seconds,
        "findings": report.model_dump(mode="json")["findings"],
        "baselines": lines.model_dump(mode="json"),
    }


def times_s(record: dict[str, Any]) -> dict[str, float]:
    """Seconds of one call by baseline, of those within the tolerance."""
    lines = record["baselines"]["lines"]
    return {line["name"]: line["shapes"][0]["measured_s"] for line in lines if line["verdict"] == "passed" and line["shapes"]}


def table(records: list[dict[str, Any]]) -> None:
    """Print Markdown."""
    print("| problem | task | checks | " + " | ".join(f"{name}, us" for name in LINES) + " |")
    print("|---" * (3 + len(LINES)) + "|")
    for record in records:
        failed = [each for each in record["findings"] if not each["ok"]]
        checks = "; ".join(f"{each['name']}: {each['got']}" for each in failed) or f"{len(record['findings'])} passed"
        took = times_s(record)
        verdicts = {line["name"]: line["verdict"] for line in record["baselines"]["lines"]}
        cells = [f"{took[name] * 1e6:.1f}" if name in took else str(verdicts.get(name, "none")) for name in LINES]
        print(f"| {record['problem']} | {record['title']} | {checks} | {' | '.join(cells)} |")
    print("\n| fast_p of | against | " + " | ".join(f"p = {p:g}" for p in THRESHOLDS) + " |")
    print("|---" * (2 + len(THRESHOLDS)) + "|")
    every = [times_s(record) for record in records]
    for own in LINES:
        for other in LINES:
            if own != other:
                ratios = [each[other] / each[own] if own in each else 0.0 for each in every if other in each]
                shares = [sum(ratio > p for ratio in ratios) / len(ratios) if ratios else 0.0 for p in THRESHOLDS]
                print(f"| {own} | {other} ({len(ratios)}) | {' | '.join(f'{share:.2f}' for share in shares)} |")


def main() -> None:
    """Measure, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--problem", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    options = parser.parse_args()
    if options.table:
        table([json.loads(line) for file in options.table for line in file.read_text().splitlines()])
        return
    if not options.folder or not options.json:
        parser.error("give a folder of imported problems and --json FILE, or --table FILE")
    os.environ["ARENA_PROBLEMS"] = str(options.folder.resolve())
    for name in options.problem or sorted(each.parent.name for each in options.folder.glob("*/problem.yaml")):
        try:
            record = measured(name, options.hardware, options.gpu)
        except ArenaError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        failed = [f"{each['name']}: {each['got']} {each['detail']}" for each in record["findings"] if not each["ok"]]
        print(f"{name} {record['seconds']} {failed} {times_s(record)}", file=sys.stderr, flush=True)
        with options.json.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
