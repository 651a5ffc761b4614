"""Profile one call of a file on each size of the workspace: `python loop_profile.py FILE`. Needs torch, as check.py does.

It prints torch's own table of kernels and operators, and runs in the agent's sandbox: a hint for the model, never evidence.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch.profiler import ProfilerActivity, profile

ROWS = 12
WARM_UP = 3
SEED = 1


def load(path: Path, name: str) -> ModuleType:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Print a table for each size."""
    sys.path.insert(0, str(Path.cwd()))
    benchmark, reference = load(Path("benchmark.py"), "benchmark"), load(Path("reference.py"), "reference")
    facts = json.loads(Path("problem.json").read_text())
    device = "cuda" if facts["profile"] == "gpu" else "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    solution = benchmark.load_solution(Path(sys.argv[1]))
    for shape in facts["shapes"]:
        inputs = reference.make_inputs(shape, SEED, device=device)
        outputs = benchmark.output_buffers(facts, shape, device)
        with torch.no_grad():
            for _ in range(WARM_UP):
                solution(*inputs, *outputs)
            if device == "cuda":
                torch.cuda.synchronize()
            with profile(activities=activities) as found:
                solution(*inputs, *outputs)
                if device == "cuda":
                    torch.cuda.synchronize()
        print(" ".join(f"{name}={size}" for name, size in shape.items()))
        key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
        print(found.key_averages().table(sort_by=key, row_limit=ROWS, max_name_column_width=80), flush=True)


if __name__ == "__main__":
    main()
