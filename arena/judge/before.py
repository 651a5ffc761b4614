"""What the judge knows without scoring: whether this machine can score, and the verdict on a run without a submission."""

from __future__ import annotations

from importlib.util import find_spec

from arena.schema import Hardware, Problem, Rejected, Timings


def preflight(hardware: Hardware, gpu: int, problem: Problem | None = None, *, shared: bool = False) -> int | None:
    """The number of the GPU's device node, None on a CPU. JudgeError when this machine cannot score on `hardware`.

    Args:
        problem: looks, too, whether the free memory suffices for each shape of it.
        shared: others may compute on the GPU now, as where agents take turns on it. What they hold may be free later.
    """
    if find_spec("torch") is None:  # before a session is spent
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    if hardware.profile == "cpu":  # measured when a score is taken, and nothing else is at work then
        return None
    from arena.judge.device.detect import open_device  # torch takes a second to import

    with open_device(hardware, gpu, shared=shared) as device:
        if problem and not shared:
            from arena.judge.context import require_room

            require_room(problem, hardware.profile, device)
        return device.gpu


def missing(reason: str, problem: Problem, hardware: Hardware, digest: str) -> Rejected:
    """The score of a run that left no usable solution.py."""
    return Rejected(
        problem=problem.name,
        problem_digest=digest,
        hardware=hardware.name,
        tolerance=problem.tolerance,
        verdict="missing",
        message=reason,
        timings=Timings(build_s=0.0, check_s=0.0, benchmark_s=0.0, evidence_s=0.0, total_s=0.0),
    )
