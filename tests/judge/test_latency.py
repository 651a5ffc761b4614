"""Latency shapes: checked and timed like the others, reported in microseconds, and never part of a score."""

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from command import copy, needs_sandbox
from records import SHAPE
from records import trial as annotated

from arena import catalog, judge, paths
from arena.authoring import baseline
from arena.errors import DataError
from arena.files import documents
from arena.files.text import render
from arena.judge import evaluation, problem_code, worker_client
from arena.judge.anchor import Anchor
from arena.judge.context import ScoringContext, Stopwatch
from arena.judge.device.detect import open_device
from arena.judge.sampling import CPU
from arena.judge.score_math import peak_fraction
from arena.judge.sets import Seeds
from arena.results import annotations, leaderboard, run_folder
from arena.sandboxes import bwrap
from arena.schema import Annotation, Passed, Problem
from arena.submission import Submission

FOLDER = Path(__file__).parents[1] / "given"
HONEST = (FOLDER.parent / "attacks" / "cpu" / "honest.py").read_text()
FACTS = (FOLDER / "problem.yaml").read_text() + "latency: {cpu: [{R: 2, N: 64}]}\n"
SMALL = {"R": 2, "N": 64}
WRONG = HONEST + "    if len(x) == 2:\n        y.zero_()\n"
ROUGH = HONEST + "    y *= 1.5\n    if len(x) == 2:\n        raise ValueError\n"
# A window would be ten seconds long if nothing else bounded it.
QUICK = replace(CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3, window_s=10.0, max_calls=20)


def problem(folder: Path, facts: str = FACTS) -> Problem:
    (folder / "problem.yaml").write_text(facts)
    return documents.read_yaml(folder / "problem.yaml", Problem, name="given")


def scored(source: str, asked: Problem, **given: Any):
    submission = Submission(source.encode(), hashlib.sha256(source.encode()).hexdigest())
    how: dict[str, Any] = {"digest": "", "sandbox": bwrap, "sampling": QUICK, "folder": FOLDER}
    return judge.score(submission, asked, catalog.hardware("cpu"), **how | given)


# ------------------------------------------------------------------ problem.yaml


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        ("{gpu: [{R: 2, N: 64}]}", "13:16: latency.gpu: `shapes` has none for this profile, and a score needs some"),
        ("{cpu: []}", "13:16: latency.cpu: a profile needs at least one shape"),
        (
            "{cpu: [{R: 8, N: 4096}]}",
            "13:16: latency.cpu: {'R': 8, 'N': 4096} is listed twice (`shapes` and `latency` share none)",
        ),
        ("{cpu: [{R: 1, N: 2}, {N: 2, R: 1}]}", "13:16: latency.cpu: {'R': 1, 'N': 2} is listed twice"),
        ("{cpu: [{R: 2}]}", "outputs.y: 'N' is no size of shape {'R': 2}: write a name that every shape has"),
        ("{cpu: [{R: 2, N: 0}]}", "is 0.0 for shape {'R': 2, 'N': 0}; it must be positive"),
        ("{tpu: [{R: 2, N: 64}]}", "13:11: latency.tpu: should be 'cpu' or 'gpu'"),
    ],
)
def test_invalid_latency_shapes_are_errors(latency: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        problem(tmp_path, FACTS.replace("{cpu: [{R: 2, N: 64}]}", latency))
    assert message in str(caught.value)


def test_scored_shape_listed_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shapes\.cpu: {'R': 8, 'N': 4096} is listed twice"):
        problem(tmp_path, FACTS.replace("{R: 8, N: 4096}", "{R: 8, N: 4096}, {R: 8, N: 4096}"))


# ------------------------------------------------------------------ the judge


@pytest.mark.timing
@needs_sandbox
def test_latency_is_reported_and_not_scored(tmp_path: Path) -> None:
    result = scored(HONEST, problem(tmp_path))
    assert isinstance(result, Passed), result.message
    [shape], [small] = result.shapes, result.latency
    assert (shape.shape, small.shape) == ({"R": 8, "N": 4096}, SMALL)
    assert result.peak_fraction == peak_fraction([shape.peak_fraction])
    assert not hasattr(small, "peak_fraction")
    assert 0 < small.ceiling_s < small.measured_s < 1e-3
    assert (shape.calls_per_window, small.calls_per_window) == (20, 20)
    assert set(small.error) == {"rel_fro", "row", "el"} and small.windows == 3


@needs_sandbox
def test_latency_shapes_are_timed_in_one_process(tmp_path: Path) -> None:
    result = scored(HONEST, problem(tmp_path), sampling=replace(QUICK, processes=2, max_calls=2, min_calls=2))
    assert isinstance(result, Passed), result.message
    [shape], [small] = result.shapes, result.latency
    assert [len(each.process_medians_s) for each in (shape, small)] == [2, 1]
    assert [each.windows for each in (shape, small)] == [6, 3]


@pytest.mark.slow
@needs_sandbox
def test_wrong_answer_on_a_latency_shape_is_incorrect(tmp_path: Path) -> None:
    result = scored(WRONG, problem(tmp_path))
    assert (result.verdict, result.shape, result.input_class) == ("incorrect", SMALL, "public")
    assert scored(WRONG, problem(tmp_path, FACTS.replace("latency", "# latency"))).verdict == "passed"


@pytest.mark.slow
@needs_sandbox
def test_impossible_latency_is_a_judge_failure(tmp_path: Path) -> None:
    much = FACTS.replace("bytes: 8*R*N + 8*R", "bytes: 8*R*N + 8*R + 10**9*(4096//N - 1)")
    result = scored(HONEST, problem(tmp_path, much))
    assert result.verdict == "judge_failed"  # ceilings that were measured here may be wrong; a datasheet's are not
    assert result.message.startswith("R=2, N=64: ") and " us, but the hardware needs " in result.message
    assert "; score again when nothing else uses this machine, and if it stays so, `arena calibrate " in result.message


@needs_sandbox
@pytest.mark.slow
def test_drift_on_latency_shapes_retimes_nothing(tmp_path: Path) -> None:
    """The trusted kernel slows down while latency shapes are timed: the scored times remain."""
    readings: list[float] = []

    def anchor() -> float:
        readings.append(time.monotonic())
        return 100.0 if readings[-1] - readings[0] < 3.0 else 50.0

    source = HONEST + "    if len(x) == 2:\n        import time\n        time.sleep(1)\n"
    asked = problem(tmp_path)
    few = replace(QUICK, min_calls=2, max_calls=2, min_windows=1, max_windows=1, audit_windows=0, drift=0.01, repeats=1)
    with open_device(catalog.hardware("cpu"), 0) as device:
        code = problem_code.load(asked, "cpu", FOLDER)
        context = ScoringContext(asked, code, device.record, device.memory, few, Seeds(), Stopwatch())
        submission = Submission(source.encode(), hashlib.sha256(source.encode()).hexdigest())
        how: dict[str, Any] = {"cpus": device.cpus, "gpu": None, "env": device.env, "logs": None, "total_limit_s": 300.0}
        start = partial(worker_client.start, submission, sandbox=bwrap, **how)
        [process] = evaluation.run(context, "cpu", start, Anchor(anchor, few.drift), lambda _: None)
    assert time.monotonic() - readings[0] > 3.0
    assert process.shapes[1].windows_s[0] > 1
    assert process.anchors_gb_s == (100.0, 100.0)
    assert process.dropped == ()


@pytest.mark.slow
@needs_sandbox
def test_baseline_outside_the_tolerance_skips_latency_shapes(tmp_path: Path) -> None:
    asked = baseline.without_tolerance(problem(tmp_path))
    assert scored(ROUGH, asked).verdict == "crashed"
    result = scored(ROUGH, asked, hidden=False)
    assert isinstance(result, Passed), result.message
    assert result.latency == ()


# ------------------------------------------------------------------ the agent's side


@pytest.mark.slow
def test_prompt_and_tools_of_the_agent_include_latency_shapes(tmp_path: Path) -> None:
    run = run_folder.RunFolder(tmp_path / "run")
    run.work.mkdir(parents=True)
    asked = problem(tmp_path)
    folders = {"problem_folder": FOLDER, "kit_folder": paths.problems() / "kit"}
    prompt = run_folder.fill_workspace(run, asked, "cpu", asked.shapes["cpu"], "a machine", None, **folders)
    listed = "These small ones must be right as well:\n\n- R = 2, N = 64\n"
    assert listed in prompt and "\n\n\n" not in prompt
    facts = json.loads((run.work / "problem.json").read_text())
    assert (facts["shapes"], facts["latency"]) == ([{"R": 8, "N": 4096}], [SMALL])

    def ran(script: str, source: str, *arguments: str) -> list[str]:
        (run.work / "solution.py").write_text(source)
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, cwd=run.work, capture_output=True, text=True, timeout=120).stdout.splitlines()

    *_, small, verdict = ran("check.py", HONEST, "--seeds", "1")
    assert small.startswith("ok  R=2 N=64  seed ") and verdict == "PASS"
    assert ran("check.py", WRONG, "--seeds", "1")[-1] == "FAIL"
    _, large, small = ran("benchmark.py", HONEST, "--windows", "1")
    assert large.startswith("R=8 N=4096: ") and "GB/s" in large
    assert small.startswith("R=2 N=64: ") and " us per call (" in small and "/s" not in small


def test_prompt_without_latency_shapes_mentions_none() -> None:
    asked = catalog.problem("fp8_gemm")
    template = paths.problems() / "kit" / "prompt.md.j2"
    cpu, gpu = (
        render(template, problem=asked, profile=profile, shapes=asked.shapes[profile], machine="a machine", budget=None)
        for profile in ("cpu", "gpu")
    )
    assert "small ones" not in cpu
    assert "- M = 16, N = 4096, K = 4096\n" in gpu


# ------------------------------------------------------------------ for people


def test_arena_show_lists_latency_as_not_scored(tmp_path: Path) -> None:
    plain = annotated(0.5)
    record = plain.model_dump(mode="json")
    record["score"]["latency"] = [SHAPE | {"shape": {"N": 1}, "measured_s": 7.3e-6}]
    annotation = Annotation.model_validate(record)
    arena = copy(tmp_path)
    annotations.write(arena.home / "annotations", annotation)
    done = arena("show", annotation.run_id)
    assert done.code == 0, done.err
    [row] = [line for line in done.out.splitlines() if line.startswith(" N=1")]
    assert " ".join(row.split()) == "N=1 7.3 us ± 1.4% not scored"
    assert "peak_fraction 0.5000" in done.out
    assert leaderboard.build([annotation]) == leaderboard.build([plain])
