"""Measure the stubs of this machine's vendor libraries: time, size, whether symbols are the real ones, whether each stub loads.

Needs `nm`, and no GPU: a Python with a CUDA build of torch is enough.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from arena.judge import absent_libraries  # noqa: E402
from arena.sandboxes import SandboxSpec, bwrap  # noqa: E402
from arena.schema import VendorLibrary  # noqa: E402

ALL: tuple[VendorLibrary, ...] = get_args(VendorLibrary)
STARTS = 9
LOAD = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
IMPORT = "import torch; print(torch.__version__, (torch.ones(2) + 1).tolist())"


def symbols(path: Path) -> list[str]:
    """Names and versions of the symbols that a library defines."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True, text=True, check=True
    )
    return sorted(line.split()[-1] for line in listed.stdout.splitlines())


def start_ms(libraries: tuple[VendorLibrary, ...]) -> float:
    """Milliseconds to start and end a sandbox."""
    took = []
    for _ in range(STARTS):
        began = time.perf_counter()
        with bwrap.run(absent_libraries.without(SandboxSpec("worker", ("true",)), libraries)) as running:
            running.wait(60)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def main() -> None:
    """Print everything."""
    began = time.perf_counter()
    replaced = absent_libraries.without(SandboxSpec("worker", ("true",)), ALL).replaced
    print(f"{len(replaced)} files found and replaced in {time.perf_counter() - began:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for path, content in sorted(replaced.items()):
            made = Path(folder, path.name)
            made.write_bytes(content)
            line = f"{path}: {path.stat().st_size >> 20} MiB, stub {len(content) >> 10} KiB"
            if content.startswith(b"\x7fELF"):
                real = symbols(path)
                loads = subprocess.run([sys.executable, "-c", LOAD, made]).returncode == 0
                line += (
                    f", {len(real)} symbols, {'the same' if real == symbols(made) else 'OTHERS'}, {'loads' if loads else 'FAILS'}"
                )
            print(line)
    print(f"a sandbox starts and ends in {start_ms(()):.0f} ms, with stubs in {start_ms(ALL):.0f} ms")
    for libraries in ((), ALL):
        with bwrap.run(absent_libraries.without(SandboxSpec("worker", ("python", "-c", IMPORT)), libraries)) as running:
            print(f"torch without {', '.join(libraries) or 'nothing'}: {running.stdout.read().decode().strip()}")


if __name__ == "__main__":
    main()
