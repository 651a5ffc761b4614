"""Canaries: solutions to a trivial problem, scored by the real judge in the real sandbox, so that a failure is the machine's."""

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
"""The canaries of each profile: one for each way to write a kernel, and one that must be rejected."""


def score(
    name: str, hardware: Hardware, sandbox: Sandbox, *, gpu: int = 0, report: Callable[[str], None] = lambda _: None
) -> Check:
    """Score one canary: `missing`, with the judge's message, when it does not get the verdict of its first line."""
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
    fraction = f" at {result.peak_fraction:.3f} of the ceiling" if isinstance(result, Passed) else ""
    got = f"{result.verdict}{fraction} on {hardware.name}, {result.timings.total_s:.1f} s"
    expected = check.expected(path)
    if result.verdict == expected:
        return Check(f"canary {name}", "ok", got if isinstance(result, Passed) else f"{got}, as it must be")
    return Check(f"canary {name}", "missing", f"{got}, and should be {expected}: {result.message}")
