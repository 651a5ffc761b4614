"""Score each problem's oracle once on this machine: where the seconds go, and the GPU memory at the peak.

    python scripts/measure_oracles.py --hardware h200 [--problem NAME ...] [--solution oracle] [--json FILE] [--samples]

Prints a Markdown table for docs/measurements/judge.md, a row for each problem. The marks count shapes. GPU memory is what all
processes of the GPU use together, read every 50 ms. Adds each score to `--json FILE` at once, with the second at which each step
began; what that file holds is left out.

`--samples` also looks at the judge's main thread every 5 ms, prints the seconds in each function of arena and of the problem, by
step and by callers, and adds them to the record. Work that the GPU does later counts where the judge waits for it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pydantic import TypeAdapter

from arena import catalog, judge, paths
from arena.judge.device import nvml
from arena.judge.sampling import CPU, GPU
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Passed, Score
from arena.submission import collect

READ_EVERY_S = 0.05
PHASES = ("build", "check", "benchmark", "evidence")
SAMPLE_EVERY_S, PRINTED = 0.005, 40
ARENA, PROBLEMS = str(Path(catalog.__file__).parent), str(paths.problems())
"""Functions of other files count for their callers."""
STEPS = {
    "measure_overhead": "own part",
    "build": "build",
    "check": "check",
    "_window_specs": "window specs",
    "fastest_gb_s": "trusted copies",
    "settled_gb_s": "trusted copies",
    "_time_process": "timed",
    "launched_kernels": "evidence",
    "wait_until_ready": "start of workers",
    "start": "start of workers",
}
"""What the innermost of these functions of arena is called in the table of samples."""
Sample = tuple[str, str]
"""(step, functions from the outermost in)."""
SCORE: TypeAdapter[Score] = TypeAdapter(Score)


@contextmanager
def peak_bytes(hardware: Hardware) -> Iterator[list[int]]:
    """A list whose one number is the most memory of GPU 0 in use so far; 0 on a CPU."""
    peak, ended = [0], threading.Event()
    if hardware.profile != "gpu":
        yield peak
        return
    with nvml.opened(f"GPU-{torch.cuda.get_device_properties(0).uuid}") as gpu:
        if gpu is None:
            sys.exit("pynvml finds no driver here: pip install nvidia-ml-py")

        def read() -> None:
            while not ended.wait(READ_EVERY_S):
                peak[0] = max(peak[0], gpu.ask("MemoryInfo").used)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield peak
        finally:
            ended.set()
            thread.join()


def sample(frame: FrameType | None) -> Sample:
    """What a stack shows. It reads no local variable: `f_locals` of a function that another thread runs ends the process now and
    then (SIGSEGV, Python 3.11 and 3.12)."""
    step, names = "", list[str]()
    while frame:
        code = frame.f_code
        if code.co_filename.startswith((ARENA, PROBLEMS)):
            names.append(code.co_name)
            step = step or (STEPS.get(code.co_name, "") if code.co_filename.startswith(ARENA) else "")
        frame = frame.f_back
    return step or "rest", " > ".join(reversed(names))


@contextmanager
def sampled(wanted: bool) -> Iterator[dict[Sample, float]]:
    """Seconds by sample of the calling thread; none where they are not wanted."""
    spent, ended, thread_id = defaultdict[Sample, float](float), threading.Event(), threading.get_ident()

    def run() -> None:
        last_s = time.monotonic()
        while not ended.wait(SAMPLE_EVERY_S):
            found, now_s = sample(sys._current_frames().get(thread_id)), time.monotonic()
            spent[found] += now_s - last_s
            last_s = now_s

    thread = threading.Thread(target=run)
    if wanted:
        thread.start()
    try:
        yield spent
    finally:
        ended.set()
        if wanted:
            thread.join()


def scored(name: str, hardware: Hardware, solution: str) -> dict[str, Any]:
    """The score of one problem's solution as JSON, with the peak of the GPU's memory beside it."""
    path = catalog.solutions(paths.problems() / name, hardware.profile)[solution]
    sampling, steps, begin_s = GPU if hardware.profile == "gpu" else CPU, list[tuple[float, str]](), time.monotonic()
    with peak_bytes(hardware) as peak:
        result = judge.score(
            collect(path.parent, path.name),
            catalog.problem(name),
            hardware,
            digest=catalog.problem_digest(name),
            sandbox=backend(),
            sampling=sampling,
            report=lambda step: steps.append((round(time.monotonic() - begin_s, 1), step)),
        )
    return {
        "problem": name,
        "peak_bytes": peak[0],
        "score": result.model_dump(mode="json"),
        "steps": [(0.0, "start"), *steps],
    }


def row(record: dict[str, Any]) -> str:
    """One problem's line of the table."""
    score, peak_gb = SCORE.validate_python(record["score"]), record["peak_bytes"] / 1e9
    seconds = [getattr(score.timings, f"{phase}_s") for phase in PHASES]
    rest_s = score.timings.total_s - sum(seconds)
    numbers = " | ".join(f"{each:.1f}" for each in (*seconds, rest_s, score.timings.total_s, peak_gb))
    if not isinstance(score, Passed):
        return f"| {record['problem']} | **{score.verdict}** at `{record['steps'][-1][1]}`: {score.message} | {numbers} | |"
    counts = {
        "disturbed": sum(bool(shape.disturbed) for shape in score.shapes),
        "unsteady": sum(shape.unsteady for shape in score.shapes),
        "in mode stream": sum(shape.launch_mode == "stream" for shape in score.shapes),
        "without counters": sum(each.proof != "counters" for each in score.evidence),
    }
    marks = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count)
    return f"| {record['problem']} | {score.peak_fraction:.4f} | {numbers} | {marks} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--problem", nargs="*", help="all without it")
    parser.add_argument("--solution", default="oracle")
    parser.add_argument("--json", type=Path, help="file that every score is added to")
    parser.add_argument("--samples", action="store_true", help="also where the judge's seconds go")
    options = parser.parse_args()
    hardware = catalog.hardware(options.hardware)
    records: dict[str, dict[str, Any]] = {}
    if options.json and options.json.exists():
        records = {record["problem"]: record for line in options.json.read_text().splitlines() for record in [json.loads(line)]}
    for name in options.problem or catalog.problems():
        if name in records:
            continue
        with sampled(options.samples) as spent:
            records[name] = scored(name, hardware, options.solution)
        print(f"  {row(records[name])}", file=sys.stderr, flush=True)
        if options.samples:
            records[name]["samples"] = [[*key, seconds] for key, seconds in spent.items()]
        for (step, functions), seconds in sorted(spent.items(), key=lambda each: -each[1])[:PRINTED]:
            print(f"{seconds:7.2f} s  {step:16} {functions}")
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(records[name]) + "\n")
    device = torch.cuda.get_device_name() if hardware.profile == "gpu" else platform.processor() or platform.machine()
    print(f"{device}, torch {torch.__version__}, Python {platform.python_version()}\n")
    columns = ("problem", options.solution, *(f"{phase}, s" for phase in (*PHASES, "rest", "all")), "GPU memory, GB", "marks")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for name in options.problem or sorted(records):
        print(row(records[name]))


if __name__ == "__main__":
    main()
