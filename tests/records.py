"""Builders of records that several test files use: cells, problems, annotations and baselines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from arena.schema import Annotation, BaselineLine, Baselines, Cell, Passed, Problem

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHAPE = {  # a TimedShape
    "shape": {"N": 8},
    "ceiling_s": 1e-6,
    "bound": "memory",
    "rate": "bf16",
    "measured_s": 2e-6,
    "ci95": [1.9e-6, 2.1e-6],
    "launch_mode": "graph",
    "wall_s": 2.1e-6,
    "calls_per_window": 10,
    "windows": 3,
    "process_medians_s": [2e-6],
    "samples_s": [[2e-6]],
    "error": {"rel_fro": 1e-4, "row": 1e-4, "el": 1e-4},
}


def trial(
    outcome: str | float, number: int = 0, review: str | None = None, status: str = "complete", network: str = "none", **cell: Any
) -> Annotation:
    """An annotation. A number as `outcome` is the peak_fraction of a passed trial; above 0.95 it asks for a review."""
    known: dict[str, Any] = {
        "problem": "paged_attention",
        "problem_version": 1,
        "problem_digest": "a" * 64,
        "harness": "builtin",
        "harness_digest": "b" * 64,
        "model": "oracle",
        "hardware": "h200",
        "budget_s": 2700,
    }
    known |= cell
    head = {"problem": known["problem"], "problem_digest": known["problem_digest"], "hardware": known["hardware"]}
    head |= {"timings": {"build_s": 1, "check_s": 1, "benchmark_s": 1, "total_s": 3}}
    if isinstance(outcome, float):
        device = {"name": "NVIDIA H200", "bandwidth_gb_s": 4800, "tflops": {"bf16": 989}, "ceilings": "datasheet"}
        shape = SHAPE | {"peak_fraction": outcome}
        score = head | {
            "verdict": "passed",
            "peak_fraction": outcome,
            "device": device,
            "shapes": [shape],
            "review_suggested": outcome > 0.95,
        }
    else:
        score = head | {"verdict": outcome, "message": f"why it is {outcome}"}
    return Annotation.model_validate(
        {
            "run_id": f"20260102T030405Z_{known['harness']}_{known['model'].replace('/', '-')}_{known['problem']}_{number:04x}",
            "arena_version": "0.1",
            "cell": known,
            "session": {
                "agent_status": status,
                "exit_code": 0,
                "started_at": START + timedelta(days=number),
                "elapsed_s": 5,
                "sandbox": "bwrap",
                "network": network,
                "unsealed": network == "open",
                "allowed": ["mirror.test"] if network == "allow" else [],
            },
            "submission": None,
            "score": score,
            "review": review
            and {"verdict": review, "summary": f"It is {review}.", "implication": "So it is.", "reviewed_at": START},
        }
    )


def unsteady(found: Annotation) -> Annotation:
    """A passed trial as it would be with scattered timings."""
    assert isinstance(found.score, Passed)
    scattered = {"unsteady": True, "ci95": (1.5e-6, 2.6e-6), "process_medians_s": (1.6e-6, 2e-6, 2.4e-6)}
    shape = found.score.shapes[0].model_copy(update=scattered)
    marks = {"unsteady": True, "review_suggested": True, "shapes": (shape,)}
    return found.model_copy(update={"score": found.score.model_copy(update=marks)})


def record(problem: str = "paged_attention", hardware: str = "h200", digest: str = "a", **given: object) -> Baselines:
    """Baselines with three lines: one within the tolerance, one outside it, one absent."""
    inside = BaselineLine(name="eager", title="torch | eager", verdict="passed", fraction=0.25)
    rough = BaselineLine(name="rough", title="a rough one", verdict="incorrect", fraction=0.5, message="row 3 is off")
    absent = BaselineLine(name="lib", title="a library", verdict=None, message="lib is not installed")
    fields = {
        "problem": problem,
        "problem_version": 1,
        "problem_digest": digest * 64,
        "hardware": hardware,
        "device": None,
        "measured_at": datetime(2026, 1, 2, tzinfo=UTC),
        "arena_version": "0.1",
        "versions": {"torch": "2.13.0"},
        "lines": (inside, rough, absent),
    }
    return Baselines.model_validate(fields | given)


def cell(**given) -> Cell:
    """The oracle on the problem of `problem`."""
    known: dict[str, Any] = {
        "problem": "add",
        "problem_version": 1,
        "problem_digest": "0" * 64,
        "harness": "builtin",
        "harness_digest": "1" * 64,
        "model": "oracle",
        "hardware": "cpu",
        "budget_s": 60,
    }
    return Cell(**known | given)


def problem() -> Problem:
    """Addition of two vectors."""
    return Problem.model_validate(
        {
            "schema_version": 1,
            "name": "add",
            "version": 1,
            "title": "Addition",
            "operator": "out = a + b",
            "inputs": [{"name": "a", "shape": ["N"], "dtype": "float32"}, {"name": "b", "shape": ["N"], "dtype": "float32"}],
            "outputs": [{"name": "out", "shape": ["N"], "dtype": "float32"}],
            "shapes": {"cpu": [{"N": 16}, {"N": 32}], "gpu": [{"N": 1 << 20}]},
            "tolerance": {"rel_fro": 1e-6, "row": 1e-6, "el": 1e-6},
            "work": {"flops": "N", "bytes": "12*N"},
            "distribution": "standard normal",
            "stress": ["very large values"],
            "forbidden": ["torch.add"],
        }
    )


def folders(tmp_path: Path) -> dict[str, Path]:
    """A problem's folder and a kit. The problem's folder also holds files that no agent may see."""
    home, kit = tmp_path / "problems" / "add", tmp_path / "problems" / "kit"
    (home / "solutions").mkdir(parents=True)
    kit.mkdir()
    (home / "reference.py").write_text("# the reference\n")
    (home / "hidden.py").write_text("# HIDDEN\n")
    (home / "solutions" / "oracle.py").write_text("# ORACLE\n")
    (kit / "check.py").write_text("# check\n")
    (kit / "benchmark.py").write_text("# benchmark\n")
    (kit / "time_left.py").write_text("# time left\n")
    (kit / "prompt.md.j2").write_text(
        "{{ problem.title }} on {{ machine }} ({{ profile }})\n{% for shape in shapes %}\n- N = {{ shape.N }}\n{% endfor %}\n"
    )
    return {"problem_folder": home, "kit_folder": kit}
