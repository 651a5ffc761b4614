"""Where the seconds of one score go: samples of the judge's stack every 5 ms while it scores an oracle.

    python scripts/sample_score.py --hardware h200 [--problem NAME ...] [--solution oracle] [--json FILE]

Prints, for each problem, the seconds that the judge's main thread spent in each function of arena and of the problem, by step, by
shape and by callers. Work that the GPU does later counts where the judge waits for it. Adds the samples to `--json FILE`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from measure_oracles import scored

from arena import catalog, paths
from arena.judge.context import shape_text

EVERY_S = 0.005
OURS = (str(paths.problems()), str(Path(catalog.__file__).parent))
"""Functions of other files count for their callers."""
STEPS = {
    "measure_overhead": "own part",
    "build": "build",
    "check": "check",
    "_window_specs": "window specs",
    "_settled_gb_s": "trusted copies",
    "_time_process": "timed",
    "launched_kernels": "evidence",
    "wait_until_ready": "start of workers",
    "start": "start of workers",
}
"""What the innermost of these functions is called in the table."""
PRINTED = 40

Sample = tuple[str, str, str]
"""(step, shape, functions from the outermost in)."""


def sample(frame: FrameType | None) -> Sample:
    """What a stack shows."""
    step, shape, names = "", "", list[str]()
    while frame:
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            names.append(code.co_name)
            step = step or STEPS.get(code.co_name, "")
            found = frame.f_locals.get("shape")
            if found and not shape and hasattr(found, "items"):
                shape = shape_text(found)
        frame = frame.f_back
    return step or "rest", shape, " > ".join(reversed(names))


@contextmanager
def sampling() -> Iterator[dict[Sample, float]]:
    """Seconds by sample of the calling thread."""
    spent, ended, thread_id = defaultdict[Sample, float](float), threading.Event(), threading.get_ident()

    def run() -> None:
        last_s = time.monotonic()
        while not ended.wait(EVERY_S):
            found, now_s = sample(sys._current_frames().get(thread_id)), time.monotonic()
            spent[found] += now_s - last_s
            last_s = now_s

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield spent
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--problem", nargs="*", help="all without it")
    parser.add_argument("--solution", default="oracle")
    parser.add_argument("--json", type=Path, help="file that the samples are added to")
    options = parser.parse_args()
    hardware = catalog.hardware(options.hardware)
    for name in options.problem or catalog.problems():
        with sampling() as spent:
            record = scored(name, hardware, options.solution)
        print(f"\n{name}: {record['score']['verdict']}, {record['score'].get('peak_fraction')}, {record['score']['timings']}")
        for (step, shape, functions), seconds in sorted(spent.items(), key=lambda each: -each[1])[:PRINTED]:
            print(f"{seconds:7.2f} s  {step:14} {shape:40} {functions}")
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps({**record, "samples": [[*key, seconds] for key, seconds in spent.items()]}) + "\n")


if __name__ == "__main__":
    main()
