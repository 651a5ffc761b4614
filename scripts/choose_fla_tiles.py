"""Choose the tiles of flash-linear-attention's kernels on a GPU: `python scripts/choose_fla_tiles.py`.

`chunk_kda` tries some 80 variants of its kernels on the first call, one after the other, which takes minutes. Here several
processes compile them at once into one cache. Then one process times them all, on the first timed shape of kda_cutlass. Prints as
JSON what `problems/kda_cutlass/baselines/fla_gpu.py` holds as TILES; `--write` writes it there. Took 48 s on an H200.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from typing import Any

from arena import catalog, paths
from arena.judge import problem_code

PROBLEM = "kda_cutlass"


def main() -> None:
    """Compile, time and print; with `--share I/N` compile one share of the variants and end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="that compile at once")
    parser.add_argument("--write", action="store_true", help="write the choice into the baseline")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.share:
        compile_share(*map(int, options.share.split("/")))
        return
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        # Without the second, the compiling processes' times would count as measured.
        os.environ |= {"TRITON_CACHE_DIR": cache, "FLA_CACHE_RESULTS": "0", "FLA_CACHE_MODE": "disabled"}
        shares = [f"{index}/{options.processes}" for index in range(options.processes)]
        compiling = [subprocess.Popen([sys.executable, __file__, "--share", share]) for share in shares]
        if any([process.wait() for process in compiling]):
            raise SystemExit("A process that compiled failed; its message is above.")
        print(f"compiled after {time.monotonic() - started:.0f} s", file=sys.stderr)
        call()
        tiles = chosen()
    print(f"chosen after {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(json.dumps(tiles, indent=4))
    if options.write:
        import torch

        write(tiles, f"fla-core {version('fla-core')}, {torch.cuda.get_device_name()}")


def call() -> None:
    """One call of `chunk_kda` on the first timed shape."""
    import torch
    from fla.ops.kda import chunk_kda

    problem = catalog.problem(PROBLEM)
    shape = problem.shapes["gpu"][0]
    q, k, v, g, beta, state = problem_code.load(problem, "gpu").make_inputs(shape, 1, "public", "cuda")
    chunk_kda(q, k, v, g, beta, scale=q.shape[-1] ** -0.5, initial_state=state, output_final_state=True)
    torch.cuda.synchronize()


def compile_share(index: int, count: int) -> None:
    """Make the call, and of the variants tried on the way compile only every `count`-th, from `index` on."""
    from triton.runtime.autotuner import Autotuner

    bench, turn = Autotuner._bench, [0]

    def one(self: Autotuner, *args: Any, config: Any, **meta: Any) -> Any:  # noqa: ANN401  as Triton has it
        turn[0] += 1
        self._do_bench = lambda call, **_: (call(), [1.0] * 3)[1]
        # The first variant serves all processes for the rest of the call.
        return bench(self, *args, config=config, **meta) if turn[0] % count == index or config is self.configs[0] else [2.0] * 3

    Autotuner._bench = one
    call()


def chosen() -> dict[str, dict[str, Any]]:
    """The variant that each kernel of this process chose, by the kernel's name."""
    from fla.ops.utils.cache import CachedAutotuner

    found = {}
    for tuner in gc.get_objects():
        if type(tuner) is CachedAutotuner and tuner.cache:  # isinstance would ask proxies of things that are gone
            config, *others = tuner.cache.values()
            if others:
                print(f"{tuner.kernel_name} was tuned for {1 + len(others)} keys: the first choice is taken", file=sys.stderr)
            found[tuner.kernel_name] = {"kwargs": config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return dict(sorted(found.items()))


def write(tiles: dict[str, dict[str, Any]], where: str) -> None:
    """Put the choice into the baseline's file, and where it was made."""
    path = paths.problems() / PROBLEM / "baselines" / "fla_gpu.py"
    lines = "".join(f'    "{name}": {json.dumps(tile)},\n' for name, tile in tiles.items())
    text, found = re.subn(r"(?ms)^TILES = \{.*?^\}\n", lambda _: f"TILES = {{  # {where}\n{lines}}}\n", path.read_text(), count=1)
    if not found:
        raise SystemExit(f"{path}: has no TILES: the choice above was not written")
    path.write_text(text)


if __name__ == "__main__":
    main()
