"""The versions that matter in a bug report, without importing torch."""

from __future__ import annotations

import platform

from arena import __version__
from arena.doctor.found import driver
from arena.system import process
from arena.system.provenance import commit, version

LIMIT_S = 10.0


def text() -> str:
    """One line each: arena, Python, torch, triton, bwrap, the kernel, and NVIDIA's driver where there is one."""
    built = f", commit {found}" if (found := commit()) else ""
    lines = [f"arena {__version__}{built}", f"Python {platform.python_version()}"]
    lines += [f"{name} {version(name) or 'not installed'}" for name in ("torch", "triton")]
    lines += [_bwrap(), f"Linux {platform.release()} {platform.machine()}"]
    if kernel_module := driver():
        lines.append(f"NVIDIA driver {kernel_module}")
    return "\n".join(lines)


def _bwrap() -> str:
    try:
        done = process.run(["bwrap", "--version"], limit_s=LIMIT_S)
    except OSError:
        return "bwrap not installed"
    return done.stdout.decode(errors="replace").strip().replace("bubblewrap", "bwrap")
