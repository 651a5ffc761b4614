"""Times solution.py on the shapes of problem.json: `python benchmark.py [--solution PATH] [--windows N]`.

A window is one run over many input sets with different values, so that no call finds its inputs in a near cache. Each call
writes into outputs of its own. The time of a call is the window's time divided by the number of calls. On a GPU calls are
timed alone, too, each from a cold cache; such a time counts where it is longer by more than a margin (`counted`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
WINDOW_S = 0.020
ALONE_CALLS = 32
MARGIN, MOST_MARGIN_S = 0.015, 10e-6
"""How much shorter a call alone may count than it was measured, relative and absolute."""
TIMES_THE_CACHE = 3
HOST_AHEAD_CYCLES = 1_000_000
"""A kernel that spins for some 0.5 ms: the host queues calls meanwhile."""
MOST_SETS = 512
MOST_BYTES = 256 << 20
"""Size of all input sets on the CPU; on a GPU they take a quarter of the free memory."""

WRONG_RETURN, WRONG_STORAGE = 1, 2
"""Codes of `BadOutput`."""

# Bound before any solution is loaded, so that a solution which replaces them later fools only itself.
ALIAS = torch.Tensor.detach
IS_SET_TO = torch.Tensor.is_set_to

Solution = Callable[..., object]
Sets = Sequence[tuple[Tensor, ...]]


class BadOutput(Exception):  # noqa: N818
    """The solution returned something, or put its results elsewhere than into its outputs."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class BadSolution(Exception):  # noqa: N818
    """The file does not define what it should."""


def fill(solution: Solution, arguments: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """One call, which writes its results into `outputs`, in place; BadOutput when it does anything else."""
    # The solution gets tensor objects of its own for the same memory: whatever it does to them, the caller's keep their place.
    given = tuple([ALIAS(out) for out in outputs])
    returned = solution(*arguments, *given)
    if returned is not None:
        what = f"the solution returned a {type(returned).__name__}"
        raise BadOutput(WRONG_RETURN, f"{what}; write the results into the outputs, its last arguments, and return None")
    for i, (alias, out) in enumerate(zip(given, outputs, strict=True)):
        if not IS_SET_TO(alias, out):
            raise BadOutput(WRONG_STORAGE, f"output {i} was given another memory or shape; write into the tensor as it came")


def call_all(solution: Solution, inputs: Sets, outputs: Sets) -> None:
    """Call the solution once on every input set, with outputs of its own."""
    with torch.no_grad():
        for arguments, wanted in zip(inputs, outputs, strict=True):
            fill(solution, arguments, wanted)


def load_module(path: Path, name: str) -> ModuleType:
    """Run the file as a module of that name. Its exceptions pass through."""
    if not path.is_file():
        raise BadSolution(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadSolution(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton and dataclasses look a function's module up there
    spec.loader.exec_module(module)
    return module


def load_solution(path: Path | str) -> Solution:
    """The function `solution` of the file."""
    solution = getattr(load_module(Path(path), "solution"), "solution", None)
    if not callable(solution):
        raise BadSolution(f"{path} defines no function `solution`")
    return solution  # type: ignore[no-any-return]


def output_buffers(facts: Mapping[str, Any], shape: Mapping[str, int], device: str) -> tuple[Tensor, ...]:
    """Fresh buffers for one call, filled with NaN, or with random integers. Every size is a number or a name of the shape."""
    buffers = tuple(
        torch.empty([shape.get(n, n) for n in output["shape"]], dtype=getattr(torch, output["dtype"]), device=device)
        for output in facts["outputs"]
    )
    return tuple(out.fill_(math.nan) if out.is_floating_point() else out.random_() for out in buffers)


def main() -> int:
    """Print one line per shape."""
    parser = argparse.ArgumentParser(description="Time solution.py on the shapes of problem.json.")
    parser.add_argument("--solution", type=Path, default=Path("solution.py"))
    parser.add_argument("--windows", type=int, default=9, help="timed windows per shape (default 9)")
    options = parser.parse_args()
    # Read by the driver when CUDA starts: one hardware queue for all streams, as where the solution is measured. Set here alone:
    # a program that imports this file keeps its own.
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    facts = json.loads((HERE / "problem.json").read_text())
    device = "cuda" if facts["profile"] == "gpu" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        print("these shapes are for a GPU, and torch finds none here")
        return 2
    print(f"times on one GPU ({torch.cuda.get_device_name()})" if device == "cuda" else stay_on_one_core())
    make_inputs = load_module(HERE / "reference.py", "reference").make_inputs
    try:
        solution = load_solution(options.solution)
        for shape, flops, bytes_ in zip(facts["shapes"], facts["flops"], facts["bytes"], strict=True):
            samples_s, alone_s = measure(solution, make_inputs, facts, shape, device, options.windows)
            call_s = counted(statistics.median(samples_s), alone_s)
            rates = f"{bytes_ / call_s / 1e9:.1f} GB/s, {flops / call_s / 1e12:.4f} TFLOP/s"
            print(f"{row(shape, samples_s, alone_s)}, {rates}", flush=True)
        for shape in facts["latency"]:
            print(row(shape, *measure(solution, make_inputs, facts, shape, device, options.windows)), flush=True)
    except (BadOutput, BadSolution) as error:
        print(error)
        return 1
    return 0


def counted(call_s: float, alone_s: float) -> float:
    """The seconds of a captured call that count: the larger of those among others and those alone, less the margin.

    Where a call cannot be captured, its time alone counts whole.
    """
    return max(call_s, alone_s - min(MARGIN * alone_s, MOST_MARGIN_S))


def row(shape: Mapping[str, int], samples_s: Sequence[float], alone_s: float) -> str:
    """One shape and the time of a call on it, in words."""
    name = " ".join(f"{key}={value}" for key, value in shape.items())
    low_us, call_us, high_us = (1e6 * pick(samples_s) for pick in (min, statistics.median, max))
    alone = f", {1e6 * alone_s:.1f} us alone" if alone_s else ""
    return f"{name}: {call_us:.1f} us per call ({low_us:.1f}..{high_us:.1f}){alone}"


def measure(
    solution: Solution,
    make_inputs: Callable[..., Any],
    facts: Mapping[str, Any],
    shape: Mapping[str, int],
    device: str,
    windows: int,
) -> tuple[list[float], float]:
    """(seconds per call, one value per window; those of a call alone, 0 on a CPU)."""
    seed = int.from_bytes(os.urandom(6), "little")
    inputs, outputs = [make_inputs(shape, seed, device=device)], [output_buffers(facts, shape, device)]
    room = torch.cuda.mem_get_info()[0] // 4 if device == "cuda" else MOST_BYTES
    most = max(2, min(MOST_SETS, room // sum(t.nbytes for t in inputs[0])))
    timed(solution, inputs, outputs, device)  # builds and autotunes
    once_s = min(timed(solution, inputs, outputs, device) for _ in range(3))
    for i in range(1, max(2, min(most, math.ceil(WINDOW_S / once_s)))):
        inputs.append(make_inputs(shape, seed + i, device=device))
        outputs.append(output_buffers(facts, shape, device))
    # A call is slower on a set that the cache does not hold, so `once_s` gives enough sets or too many. Where memory
    # does not hold enough of them, the window goes over them several times.
    rounds = max(1, math.ceil(WINDOW_S / (once_s * len(inputs))))
    calls = rounds * len(inputs)
    samples_s = [timed(solution, inputs * rounds, outputs * rounds, device) / calls for _ in range(windows + 1)][1:]
    return samples_s, timed_alone(solution, inputs, outputs) if device == "cuda" else 0.0


def timed_alone(solution: Solution, inputs: Sets, outputs: Sets) -> float:
    """Seconds of a call alone on a GPU whose cache holds nothing of it: the median of some calls."""
    junk = torch.zeros(TIMES_THE_CACHE * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda")
    times_ms = []
    for number in range(ALONE_CALLS):
        index = number % len(inputs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOST_AHEAD_CYCLES)
        junk.sum()
        start.record()
        call_all(solution, inputs[index : index + 1], outputs[index : index + 1])
        end.record()
        torch.cuda.synchronize()
        times_ms.append(float(start.elapsed_time(end)))
    return statistics.median(times_ms) / 1e3


def timed(solution: Solution, inputs: Sets, outputs: Sets, device: str) -> float:
    """Seconds that `call_all` takes, by CUDA events on a GPU and by the clock elsewhere."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(HOST_AHEAD_CYCLES)
        start.record()
        call_all(solution, inputs, outputs)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3
    start_s = time.perf_counter()
    call_all(solution, inputs, outputs)
    return time.perf_counter() - start_s


def stay_on_one_core() -> str:
    """Pin this process to one core, where that is allowed, and return what was achieved, in words."""
    torch.set_num_threads(1)
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        try:
            os.sched_setaffinity(0, {max(cores)})
        except OSError:
            return f"times with one torch thread; this process may run on {len(cores)} cores and could not be pinned to one"
    return "times on one core"


if __name__ == "__main__":
    sys.exit(main())
