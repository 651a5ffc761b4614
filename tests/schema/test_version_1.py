"""Files of schema version 1 are read as version 2."""

from pathlib import Path

import pytest

from arena.errors import DataError
from arena.files.documents import read_yaml, to_yaml
from arena.schema import Annotation, Baselines, JudgeFailed, Passed, Problem, Rejected, Routes

CELL = """cell:
  {problem: p, problem_version: 1, problem_digest: d, harness: h, harness_digest: d, model: m, hardware: cpu, budget_s: 60}
session: {agent_status: complete, exit_code: 0, started_at: '2026-11-01T00:00:00Z', elapsed_s: 1, sandbox: bwrap}
submission: null
"""
HEAD = "schema_version: 1\nrun_id: r\narena_version: 0.1.0\n" + CELL
SHAPE = (
    "{shape: {n: 1}, ceiling_s: 1, bound: memory, rate: fp32, measured_s: 2, ci95: [2, 2], mode: MODE, vetoed: false, wall_s: 2, "
    "calls_per_window: 1, windows: 1, process_medians_s: [2], samples_s: [[2]], disturbed: [], "
    "error: {row: 0}, peak_fraction: 0.5}"
)
SCORE = "score:\n  schema_version: 1\n  problem: p\n  problem_digest: d\n  hardware: cpu\n"
TIMINGS = "  timings: {build_s: 1, check_s: 1, benchmark_s: 1, audit_s: 0.5, total_s: 4}\n"
PASSED = (
    SCORE
    + "  verdict: passed\n  peak_fraction: 0.5\n  device: {name: c, bandwidth_gb_s: 1, tflops: {fp32: 1}, ceilings: measured}\n"
    f"  shapes: [{SHAPE}]\n" + TIMINGS
)
WRONG = SCORE + "  verdict: incorrect\n  message: off\n  shape: {n: 1}\n  mode: wide\n  error: {row: 1}\n" + TIMINGS
FAILED = SCORE + "  verdict: judge_failed\n  message: no memory\n  shape: null\n  mode: null\n  error: null\n" + TIMINGS


def annotation(score: str, tmp_path: Path) -> Annotation:
    (tmp_path / "r.yaml").write_text(HEAD + score)
    return read_yaml(tmp_path / "r.yaml", Annotation)


@pytest.mark.parametrize(("mode", "launch_mode"), [("graph", "graph"), ("stream", "stream"), ("wall", "call")])
def test_passed_scores_are_read(mode, launch_mode, tmp_path):
    found = annotation(PASSED.replace("MODE", mode), tmp_path)
    assert isinstance(found.score, Passed)
    assert found.score.shapes[0].launch_mode == launch_mode
    assert (found.score.unsteady, found.score.shapes[0].unsteady) == (False, False)
    assert found.score.timings.evidence_s == 0.5
    assert (found.schema_version, found.score.schema_version) == (2, 2)


def test_rejected_scores_are_read(tmp_path):
    score = annotation(WRONG, tmp_path).score
    assert isinstance(score, Rejected)
    assert score.input_class == "wide"


def test_judge_failures_are_read(tmp_path):
    assert isinstance(annotation(FAILED, tmp_path).score, JudgeFailed)


def test_what_was_read_is_written_as_version_2(tmp_path):
    found = annotation(PASSED.replace("MODE", "wall"), tmp_path)
    text = to_yaml(found)
    assert "schema_version: 1" not in text and "launch_mode: call" in text
    (tmp_path / "again.yaml").write_text(text)
    assert read_yaml(tmp_path / "again.yaml", Annotation) == found


def test_unknown_keys_of_version_1_are_still_errors(tmp_path):
    with pytest.raises(DataError, match=r"r\.yaml:\d+:\d+: .*colour: unknown key"):
        annotation(WRONG.replace("  message: off", "  colour: red\n  message: off"), tmp_path)


def test_version_2_keys_have_no_old_names(tmp_path):
    with pytest.raises(DataError, match="unknown key 'mode'"):
        annotation(WRONG.replace("schema_version: 1", "schema_version: 2"), tmp_path)


def test_later_versions_are_refused(tmp_path):
    with pytest.raises(DataError, match="schema_version"):
        annotation(WRONG.replace("schema_version: 1", "schema_version: 3"), tmp_path)


def test_baselines_are_read(tmp_path):
    shape = "{shape: {n: 1}, fraction: 0.5, ceiling_s: 1, measured_s: 2, mode: wall, error: {row: 0}}"
    line = f"[{{name: a, title: A, verdict: passed, fraction: 0.5, shapes: [{shape}]}}]"
    (tmp_path / "b.yaml").write_text(
        "schema_version: 1\nproblem: p\nproblem_version: 1\nproblem_digest: d\nhardware: cpu\ndevice: null\n"
        f"measured_at: '2026-11-01T00:00:00Z'\narena_version: 0.1.0\nversions: {{}}\nlines: {line}\n"
    )
    assert read_yaml(tmp_path / "b.yaml", Baselines).lines[0].shapes[0].launch_mode == "call"


def test_problems_are_read(tmp_path):
    (tmp_path / "p.yaml").write_text(
        "schema_version: 1\nversion: 1\ntitle: t\noperator: o\ninputs: [{name: x, shape: [n], dtype: float32}]\n"
        "outputs: [{name: y, shape: [n], dtype: float32}]\nshapes: {cpu: [{n: 1}]}\ntolerance: {off: 0.5}\ngate: within {off}\n"
        "work: {flops: n, bytes: n}\ndistribution: d\n"
    )
    assert read_yaml(tmp_path / "p.yaml", Problem, name="p").correctness_text() == "within 0.5"


def test_routes_are_read(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "schema_version: 1\nroutes: {b: {title: B, apis: [chat], base_url: 'https://b.test', key: null, pinned: true}}\n"
    )
    assert read_yaml(tmp_path / "r.yaml", Routes).routes["b"].broker


@pytest.mark.parametrize("shapes", ["null", "5", "{a: 1}"])
def test_malformed_lists_of_version_1_are_data_errors(shapes, tmp_path):
    with pytest.raises(DataError, match=r"r\.yaml:\d+:\d+: .*shapes"):
        annotation(PASSED.replace(f"[{SHAPE}]", shapes), tmp_path)
    head = "schema_version: 1\nproblem: p\nproblem_version: 1\nproblem_digest: d\nhardware: cpu\ndevice: null\n"
    head += "measured_at: '2026-11-01T00:00:00Z'\narena_version: 0.1.0\nversions: {}\n"
    (tmp_path / "b.yaml").write_text(f"{head}lines: {shapes}\n")
    with pytest.raises(DataError, match=r"b\.yaml:\d+:\d+: .*lines"):
        read_yaml(tmp_path / "b.yaml", Baselines)
