"""Canaries scored end to end: a problem that nobody can get wrong, in the real sandbox, by the real judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arena import catalog, judge, paths
from arena.authoring import check
from arena.doctor import Check
from arena.judge.sampling import CPU, GPU
from arena.sandboxes import Sandbox
from arena.schema import Hardware, Passed, Profile
from arena.submission import collect

SAMPLING = {"cpu": replace(CPU, processes=1), "gpu": replace(GPU, processes=1)}
SCORED: dict[Profile, tuple[str, ...]] = {"cpu": ("torch", "wrong_zeros"), "gpu": ("triton", "load_inline", "wrong_zeros")}
"""What is scored where: each way of making a kernel, and one that must be refused."""


def score(
    name: str, hardware: Hardware, sandbox: Sandbox, *, gpu: int = 0, report: Callable[[str], None] = lambda _: None
) -> Check:
    """Score one canary: `missing`, with the judge's words, when it does not get the verdict of its first line."""
    folder = paths.canary()
    path = folder / "solutions" / f"{name}.py"
    result = judge.score(
        collect(path.parent, path.name),
        catalog.problem(folder.name, folder.parent),
        hardware,
        digest=catalog.problem_digest(folder.name, folder.parent),
        sandbox=sandbox,
        report=report,
        sampling=SAMPLING[hardware.profile],
        gpu=gpu,
        folder=folder,
    )
    number = f" at {result.peak_fraction:.3f} of the ceiling" if isinstance(result, Passed) else ""
    got = f"{result.verdict}{number} on {hardware.name}, {result.timings.total_s:.1f} s"
    wanted = check.expected(path)
    if result.verdict == wanted:
        return Check(f"canary {name}", "ok", got if isinstance(result, Passed) else f"{got}, as it must be")
    return Check(f"canary {name}", "missing", f"{got}, and should be {wanted}: {result.message}")
