"""A problem with a correctness check of its own: the two largest of each row, exactly, with any choice among ties."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena import catalog, paths  # noqa: E402
from arena.authoring import contract  # noqa: E402
from arena.errors import DataError, JudgeError  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge import problem_code, verify  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.results import run_folder  # noqa: E402
from arena.schema import Problem  # noqa: E402

KIT = paths.problems() / "kit"
BENCHMARK = problem_code.kit("benchmark")
FACTS = """\
schema_version: 2
version: 1
title: The two largest
operator: the two largest of each row, and where they are
inputs: [{name: x, shape: [R, N], dtype: float32}]
outputs: [{name: values, shape: [R, 2], dtype: float32}, {name: places, shape: [R, 2], dtype: int64}]
shapes: {cpu: [{R: 3, N: 8}]}
tolerance: {values: 0, strays: 0, sum: 0.25}
correctness: |
  Exact, with any choice among ties; the sums are within {sum} of each other.
work: {flops: R*N, bytes: 4*R*N}
distribution: whole numbers
"""
REFERENCE = """\
import torch

def make_inputs(shape, seed, mode="public", device="cpu"):
    made = torch.Generator(device).manual_seed(seed % 2**32)
    return (torch.randint(0, 5, (shape["R"], shape["N"]), generator=made, device=device).float(),)

def reference(x):
    found = x.topk(2)
    return found.values.double(), found.indices

def errors(outs, refs, inputs):
    (values, places), (wanted, _), (x,) = outs, refs, inputs
    strays = (places < 0) | (places >= x.shape[1]) | (places[:, :1] == places[:, 1:])
    strays |= x.gather(1, places.clamp(0, x.shape[1] - 1)) != values
    apart = values.sum() - wanted.sum()
    return {"values": (values != wanted).sum(), "strays": strays.sum(), "sum": apart.abs().nan_to_num(0)}

def worst(outs, refs, inputs):
    return f"row {(outs[0] != refs[0]).any(1).nonzero().flatten().tolist()} is off"
"""
HIDDEN = "CEILING_DTYPE, EXTRA_SHAPES, INPUT_CLASSES, make_inputs = 'fp32', {}, (), None\n"
HONEST = """\
def solution(x, values, places):
    found = x.topk(2)
    values.copy_(found.values)
    places.copy_(found.indices)
"""
OTHER_TIES = """\
def solution(x, values, places):
    found = x.flip(1).topk(2)
    values.copy_(found.values)
    places.copy_(x.shape[1] - 1 - found.indices)
"""
ONE_PLACE = HONEST.replace("found.indices", "found.indices[:, :1]")
OFF_BY_ONE = HONEST.replace("found.values", "found.values + 1")
NOT_A_NUMBER = HONEST.replace("found.values", "found.values * float('nan')")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "two"
    made.mkdir()
    for name, text in (("problem.yaml", FACTS), ("reference.py", REFERENCE), ("hidden.py", HIDDEN)):
        (made / name).write_text(text)
    return made


def read(folder: Path) -> Problem:
    return documents.read_yaml(folder / "problem.yaml", Problem, name="two")


def load(folder: Path) -> problem_code.ProblemCode:
    return problem_code.load(read(folder), "cpu", folder)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (FACTS[FACTS.index("correctness:") : FACTS.index("work:")], "", "names rel_fro, row, el, not"),
        ("within {sum} of", "near", "must hold {values}, {strays}, {sum}"),
        ("{sum} of", "{sums} of", "must hold {values}, {strays}, {sum}"),
        ("{sum} of", "{sum of", "correctness: "),
        ("sum: 0.25", "sum: -1", "tolerance.sum: should be greater than or equal to 0"),
        ("sum: 0.25", "sum: .inf", "tolerance.sum: should be a finite number"),
        ("tolerance: {values: 0, strays: 0, sum: 0.25}", "tolerance: {}", "tolerance: "),
    ],
)  # fmt: skip
def test_incomplete_correctness_text_is_an_error(folder: Path, old: str, new: str, words: str) -> None:
    assert old in FACTS
    (folder / "problem.yaml").write_text(FACTS.replace(old, new))
    with pytest.raises(DataError, match=r"problem\.yaml") as caught:
        read(folder)
    assert words in str(caught.value)


def test_problem_yaml_and_reference_must_agree_on_errors(folder: Path) -> None:
    (folder / "reference.py").write_text(REFERENCE.replace("def worst", "def worse"))
    with pytest.raises(DataError, match=r"reference.py: defines errors: define both where problem.yaml has `correctness`"):
        load(folder)
    (folder / "reference.py").write_text(REFERENCE.replace('"strays": strays', '"stray": strays'))
    loaded = load(folder)
    inputs = loaded.make_inputs({"R": 3, "N": 8}, 1, "public", "cpu")
    with pytest.raises(DataError, match=r"measures values, stray, sum; problem\.yaml has a tolerance for values, strays, sum"):
        loaded.measure(loaded.outputs(inputs), loaded.outputs(inputs), inputs)
    shared = catalog.problem("paged_attention")
    (folder / "reference.py").write_text(REFERENCE)
    with pytest.raises(DataError, match="and neither where it has not"):
        problem_code.load(shared, "cpu", folder)


def judged(folder: Path, source: str, x: Any) -> Mapping[str, float]:
    """The errors that the judge finds in one call."""
    made: dict = {}
    exec(source, made)
    loaded, problem, shape = load(folder), read(folder), {"R": len(x), "N": x.shape[1]}
    outputs = BENCHMARK.output_buffers(problem.model_dump(), shape, "cpu")
    BENCHMARK.fill(made["solution"], (x,), outputs)
    return verify._within(outputs, loaded.outputs((x,)), (x,), loaded, problem, shape, "public")


TIES = torch.tensor([[1.0, 3, 3, 3], [0, 0, 0, 0], [5, -1, -math.inf, 2]])


@pytest.mark.parametrize("source", [HONEST, OTHER_TIES])
def test_judge_accepts_any_choice_among_ties(folder: Path, source: str) -> None:
    assert judged(folder, source, TIES) == {"values": 0, "strays": 0, "sum": 0}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (ONE_PLACE, "row [] is off (values 0 of 0, strays 6 of 0, sum 0 of 0.25)"),
        (OFF_BY_ONE, "row [0, 1, 2] is off (values 6 of 0, strays 6 of 0, sum 6 of 0.25)"),
        (NOT_A_NUMBER, "values[0, 0] is nan where a finite value is expected"),
    ],
)
def test_judge_rejects_wrong_answers(folder: Path, source: str, words: str) -> None:
    with pytest.raises(Rejection) as caught:
        judged(folder, source, TIES)
    assert (caught.value.verdict, caught.value.message.partition(";")[0]) == ("incorrect", words)


def test_own_check_judges_infinities_and_nan_is_its_failure(folder: Path) -> None:
    assert judged(folder, HONEST, torch.full((2, 4), -math.inf))["values"] == 0
    with pytest.raises(Rejection, match=r"row \[0, 1\] is off"):
        judged(folder, OFF_BY_ONE.replace("found.values + 1", "-found.values"), torch.full((2, 4), -math.inf))
    with pytest.raises(JudgeError, match="not finite for input class"):
        judged(folder, HONEST, torch.full((2, 4), math.nan))


def test_nan_error_is_incorrect(folder: Path) -> None:
    (folder / "reference.py").write_text(REFERENCE.replace('"sum": apart.abs().nan_to_num(0)', '"sum": apart * torch.nan'))
    with pytest.raises(Rejection, match=r"sum nan of 0\.25"):
        judged(folder, HONEST, TIES)


def test_degenerate_answers_are_outside_the_tolerance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "problems", lambda: folder.parent)
    shutil.copytree(KIT, folder.parent / "kit")
    found = {finding.name: finding for finding in contract.check_degenerate(read(folder), "cpu")}
    assert [name for name, finding in found.items() if not finding.ok] == []
    assert found["reference rounded"].detail == "accepted 1 of 1 answers; values 0.0e+00 strays 0.0e+00 sum 0.0e+00"
    assert found["degenerate: zeros"].detail.startswith("rejected 2 of 2 answers; "), "each output by itself"


@pytest.mark.slow
def test_agents_check_and_prompt_use_the_own_check(folder: Path, tmp_path: Path) -> None:
    problem, run = read(folder), run_folder.RunFolder(tmp_path / "run")
    run.work.mkdir(parents=True)
    run_folder.fill_workspace(
        run, problem, "cpu", problem.shapes["cpu"], "a machine", None, problem_folder=folder, kit_folder=KIT
    )
    prompt = (run.work / "PROMPT.md").read_text()
    assert "\n\nExact, with any choice among ties; the sums are within 0.25 of each other.\n\nWherever the exact" in prompt
    assert "norm of e" not in prompt and "\n\n\n" not in prompt
    assert json.loads((run.work / "problem.json").read_text())["tolerance"] == {"values": 0, "strays": 0, "sum": 0.25}

    def checked(source: str) -> tuple[int, str]:
        (run.work / "solution.py").write_text(source)
        command = [sys.executable, "check.py", "--seeds", "1", "--seed", "3"]
        done = subprocess.run(command, cwd=run.work, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    exact = (
        "ok  R=3 N=8  seed 3: values, places values 0.00e+00 (limit 0), strays 0.00e+00 (limit 0), sum 0.00e+00 (limit 0.25)\n"
    )
    assert checked(HONEST) == (0, exact + "PASS\n")
    assert checked(OTHER_TIES) == (0, exact + "PASS\n")
    code, output = checked(OFF_BY_ONE)
    assert code == 1
    assert "values 6.00e+00 (limit 0)" in output and "      row [0, 1, 2] is off\nFAIL\n" in output
    code, output = checked(NOT_A_NUMBER)
    assert code == 1
    assert "sum inf (limit 0.25)" in output and "values[0, 0] is nan and should be" in output
