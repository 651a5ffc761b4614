"""Homes with runs, for the tests of the pages: made of records, without a session or a judge."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from records import record, trial

from arena.files import documents
from arena.results import annotations, baselines, curves
from arena.schema import Annotation, Baselines, Curve
from arena.site import build, results

SOURCE = '''import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <cuda.h>
__global__ void add(float *a) { a[threadIdx.x] += 1.0f; }
"""


def solution(a, out):
    out.copy_(a)  # one more
'''
EVIDENCE = {
    "shape": {"N": 8},
    "kernels": [{"name": "void add<float>(float*)", "launches": 3}],
    "proof": "counters",
    "note": "",
    "tensor_ops": {"bf16": 1e9},
    "dram_read_bytes": 1e6,
    "dram_write_bytes": 2e6,
}


def passed(number: int, fraction: float = 0.4, **cell: Any) -> Annotation:
    """A passed run with known work, evidence, usage and a latency shape."""
    made = trial(fraction, number, **cell).model_dump(mode="json")
    shape = made["score"]["shapes"][0] | {"flops": 1e6, "bytes": 1e6}
    small = {name: value for name, value in shape.items() if name != "peak_fraction"}
    made["score"] |= {"shapes": [shape], "latency": [small | {"shape": {"N": 1}}], "evidence": [EVIDENCE]}
    made["session"]["usage"] = {
        "requests": 3,
        "input_tokens": 1000,
        "output_tokens": 50,
        "cost_usd": 0.5,
        "cost_source": "prices",
    }
    made["session"]["clock_offset_s"] = 0.5
    return Annotation.model_validate(made)


def baseline(**given: Any) -> Baselines:
    """A record whose first line has the shape of `passed`."""
    made = record(**given)
    shape = {"shape": {"N": 8}, "fraction": 0.25, "ceiling_s": 1e-6, "measured_s": 4e-6, "launch_mode": "graph", "error": {}}
    line = made.lines[0].model_dump(mode="json") | {"shapes": [shape | {"flops": 1e6, "bytes": 1e6}]}
    device = passed(1).model_dump(mode="json")["score"]["device"]
    return Baselines.model_validate(
        made.model_dump(mode="json") | {"device": device, "lines": [line, *made.model_dump(mode="json")["lines"][1:]]}
    )


def curve(run: Annotation) -> Curve:
    """Two snapshots, of which the second passed."""
    known = {"at_s": 1.0, "sha256": "a" * 64, "verdict": "incorrect", "message": "row 3 is off"}
    good = {"at_s": 60.0, "sha256": "b" * 64, "verdict": "passed", "peak_fraction": 0.3}
    return Curve.model_validate(
        {
            "run_id": run.run_id,
            "problem": run.cell.problem,
            "problem_digest": run.cell.problem_digest,
            "hardware": run.cell.hardware,
            "device": "a device",
            "processes": 1,
            "snapshots": 5,
            "measured_at": "2026-01-02T03:04:05Z",
            "arena_version": "0.1",
            "points": [known, good],
        }
    )


def steps(text: str = "I write it now.") -> list[dict[str, Any]]:
    """One step of each kind, with `text` in each field that the agent fills."""
    usage = {"input_tokens": 10, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 5, "reasoning_tokens": 0}
    return [
        {"at_s": 0.0, "kind": "session", "id": text},
        {"at_s": 0.1, "kind": "thinking", "text": text},
        {"at_s": 0.2, "kind": "text", "text": text},
        {"at_s": 0.3, "kind": "call", "id": text, "tool": text, "input": {text: text, "more": {text: [text]}}},
        {"at_s": 0.9, "kind": "result", "id": text, "output": text, "ok": False},
        {"at_s": 1.0, "kind": "usage", **usage},
        {"at_s": 1.1, "kind": "result", "id": "unknown", "output": text, "ok": True},
        {"at_s": 1.2, "kind": "error", "text": text, "status": None},
        {"at_s": 1.3, "kind": "end", "ok": True, "text": text},
    ]


def run_files(home: Path, run: Annotation, trajectory: Iterable[Mapping[str, Any]], sources: Sequence[str] = (SOURCE,)) -> Path:
    """The run's folder, with its snapshots a minute apart."""
    folder = home / "workspaces" / run.run_id
    (folder / "snapshots").mkdir(parents=True)
    (folder / "trajectory.jsonl").write_text("".join(json.dumps(step) + "\n" for step in trajectory))
    for number, source in enumerate(sources):
        data = source.encode(errors="replace")
        (folder / "snapshots" / f"{1000 + 60_000 * number:08d}_{hashlib.sha256(data).hexdigest()[:8]}.py").write_bytes(data)
        (folder / "solution.py").write_bytes(data)
    return folder


def home(path: Path, runs: Iterable[Annotation], lines: Iterable[Baselines] = (), scored: Iterable[Curve] = ()) -> Path:
    """A results home with these records."""
    for folder in ("annotations", "baselines", "curves", "workspaces"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for run in runs:
        (path / "annotations" / f"{run.run_id}.yaml").write_text(documents.to_yaml(run), encoding="utf-8")
    for line in lines:
        baselines.write(path / "baselines", line)
    for one in scored:
        curves.write(path / "curves", one)
    return path


def render(
    path: Path,
    out: Path,
    shown: results.Shown = "all",
    *,
    source: bool = True,
    hardware: str | None = None,
    compared: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """The site of a home."""
    folders = {name: path / name for name in ("annotations", "baselines", "curves", "workspaces")}
    return build.build(results.read(folders, shown=shown, source=source, hardware=hardware), out, compared)


def small(path: Path) -> tuple[Path, Annotation, Annotation]:
    """A home with two passed runs of two models and a failed one; the first has files, a curve and a review."""
    first, second = passed(1, 0.4), passed(2, 0.3, harness="claude", model="opus", effort="high")
    failed = trial("incorrect", 3, harness="claude", model="opus", effort="high")
    made = home(path, [first, second, failed], [baseline()], [curve(first)])
    folder = made / "workspaces" / first.run_id
    texts = [SOURCE, SOURCE.replace("one more", "and another")]
    write = {"at_s": 0.3, "kind": "call", "id": "w", "tool": "write", "input": {"path": "solution.py", "text": texts[1]}}
    run_files(made, first, [*steps(), write], texts)
    run_files(made, second, steps())
    annotations.annotate(
        made / "annotations" / f"{first.run_id}.yaml",
        folder,
        verdict="clean",
        summary="It is a kernel of its own.",
        quotes=["trajectory.jsonl:3", "solution.py:2"],
        labels=["what it said", "what it imports"],
        now=first.session.started_at,
    )
    return made, annotations.read(made / "annotations" / f"{first.run_id}.yaml"), second
