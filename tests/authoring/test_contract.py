"""The contract of every problem: small problems that break one rule each, and their honest twin."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from arena import paths  # noqa: E402
from arena.authoring import contract  # noqa: E402
from arena.errors import DataError  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge import problem_code, score_math, verify  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.results import run_folder  # noqa: E402
from arena.schema import Device, Problem  # noqa: E402

FACTS = """\
schema_version: 2
version: 1
title: Gathered rows
operator: y[i] = x[pick[i]], and their total
inputs:
  - {name: x, shape: [rows, N], dtype: float32, note: rows is what the shape leaves open}
  - {name: pick, shape: [R], dtype: int32}
outputs: [{name: y, shape: [R, N], dtype: float32}]
shapes: {cpu: [{R: 6, N: 8}, {R: 60, N: 80}]}
tolerance: {rel_fro: 1.0e-6, row: 1.0e-6, el: 1.0e-6}
work: {flops: R*N, bytes: 8*R*N}
distribution: Standard normal.
"""
REFERENCE = """\
import hashlib, time
import torch

def make_inputs(shape, seed, input_class="public", device="cpu"):
    made = torch.Generator(device)
    made.manual_seed(int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=4).digest(), "little"))
    x = torch.randn(2 * shape["R"], shape["N"], generator=made, device=device)
    pick = torch.randperm(2 * shape["R"], generator=made, device=device)[: shape["R"]].int()
    return x, pick

def reference(x, pick):
    return x.double()[pick.long()]
"""
HIDDEN = """\
from .reference import make_inputs as make_public
CEILING_DTYPE, INPUT_CLASSES, EXTRA_SHAPES = "fp32", ("zeros",), {"cpu": ({"R": 5, "N": 3},)}

def make_inputs(shape, seed, input_class, device="cpu"):
    x, pick = make_public(shape, seed, device=device)
    return x.fill_(0), pick
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "gathered"
    made.mkdir()
    for name, text in (("problem.yaml", FACTS), ("reference.py", REFERENCE), ("hidden.py", HIDDEN)):
        (made / name).write_text(text)
    return made


def edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def read(folder: Path) -> Problem:
    return documents.read_yaml(folder / "problem.yaml", Problem, name=folder.name)


def broken(folder: Path) -> dict[str, str]:
    """The rules that the problem breaks, each with the finding's detail."""
    findings = list(contract.check(read(folder), folder))
    assert [finding.name for finding in findings] == [f"contract: {rule}" for rule in contract.RULES]
    assert {finding.kind for finding in findings} == {"contract"}
    return {finding.name.removeprefix("contract: "): finding.detail for finding in findings if not finding.ok}


def test_an_honest_problem_keeps_every_rule(folder: Path) -> None:
    before = torch.get_rng_state()
    assert broken(folder) == {}
    assert torch.equal(torch.get_rng_state(), before)


SEED, PICK = "str(seed)", "    return x, pick"


@pytest.mark.parametrize(
    ("file", "old", "new", "rules", "words"),
    [
        ("reference.py", SEED, "str(1)", {"seeds"}, "input class 'public', shape {'R': 6, 'N': 8}: 1 and 2 give the same set"),
        ("reference.py", SEED, "str(seed % 2**32)", {"seeds"}, "1 and 4294967297 give the same set"),
        ("reference.py", PICK, "    return x + torch.rand(()), pick", {"repeat", "generator", "threads"}, "seed 1 gave two"),
        ("reference.py", PICK, "    torch.rand(())\n" + PICK, {"generator"}, "its state has changed"),
        ("reference.py", PICK, "    return x[: -1 - seed % 3], pick.clamp(max=3)", {"sizes"}, "1 and 4294967297 give"),
        ("reference.py", PICK, "    return x.bfloat16(), pick", {"inputs"}, "x is torch.bfloat16, and declared as float32"),
        ("reference.py", PICK, "    return x, pick.repeat(2)", {"inputs", "outputs"}, "pick has the sizes [12], and"),
        ("reference.py", PICK, "    return x.T.contiguous().T, pick", {"inputs"}, "x is not contiguous"),
        ("reference.py", "[pick.long()]", "[pick.long()].sum(1)", {"outputs"}, "y has the sizes [6], and"),
        ("reference.py", "[pick.long()]", "[pick.long()].long()", {"outputs"}, "y is torch.int64, and declared as float32"),
        ("hidden.py", '"R": 5, ', "", {"hidden shapes"}, "{'N': 3} lacks one of R, N"),
        ("hidden.py", '"R": 5, "N": 3', '"R": 60, "N": 80', {"hidden shapes"}, "{'R': 60, 'N': 80} is a timed shape"),
        ("hidden.py", "return x.fill_(0), pick", "return x.fill_(0), pick.mul_(0)", {"seeds"}, "input class 'zeros'"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(folder: Path, file: str, old: str, new: str, rules: set[str], words: str) -> None:
    edit(folder, file, old, new)
    found = broken(folder)
    assert found.keys() == rules
    assert any(words in detail for detail in found.values()), found


def test_a_generator_shared_by_two_threads_is_found(folder: Path) -> None:
    edit(folder, "reference.py", "import torch\n", "import torch\n\nSHARED = torch.Generator()\n")
    edit(folder, "reference.py", "made = torch.Generator(device)", "made = SHARED")
    edit(folder, "reference.py", "    pick =", "    time.sleep(0.02)\n    pick =")
    assert broken(folder).keys() == {"threads"}


# ------------------------------------------------------------------ what problem.yaml itself must keep


def fault_of(folder: Path, old: str, new: str) -> str:
    edit(folder, "problem.yaml", old, new)
    with pytest.raises(DataError) as caught:
        read(folder)
    return str(caught.value)


def test_an_output_size_must_be_named_by_every_shape(folder: Path) -> None:
    text = fault_of(folder, "y, shape: [R, N]", "y, shape: [R, M]")
    assert "problem.yaml" in text
    assert "outputs.y: 'M' is no size of shape {'R': 6, 'N': 8}: write a name that every shape has, or an integer" in text


@pytest.mark.parametrize("formula", ["R - 6", "0*R", "R - 60"])
def test_flops_are_positive_or_declared_as_zero(folder: Path, formula: str) -> None:
    assert "it must be positive; `flops: 0` declares a problem that memory bounds" in fault_of(
        folder, "flops: R*N", f"flops: {formula}"
    )


def test_bytes_are_positive(folder: Path) -> None:
    assert "work.bytes" in fault_of(folder, "bytes: 8*R*N", "bytes: 0")


def test_a_problem_may_declare_that_memory_bounds_it(folder: Path) -> None:
    edit(folder, "problem.yaml", "flops: R*N", "flops: 0")
    problem = read(folder)
    shape = problem.shapes["cpu"][0]
    device = Device(name="a device", bandwidth_gb_s=1, tflops={"fp32": 1}, ceilings="datasheet")
    least = score_math.ceiling(problem.flops(shape), problem.bytes(shape), device, "fp32")
    assert (problem.flops(shape), least.bound, least.seconds) == (0, "memory", 8 * 6 * 8 / 1e9)
    assert broken(folder) == {}


# ------------------------------------------------------------------ outputs without dimensions

RIGHT = """\
def solution(x, pick, y, total, picks):
    y.copy_(x[pick.long()])
    total.copy_(y.abs().sum())
    picks.copy_(pick.sum())
"""


@pytest.fixture
def scalars(folder: Path) -> Path:
    """The problem with two further outputs, each one number."""
    edit(
        folder,
        "problem.yaml",
        "dtype: float32}]",
        "dtype: float32}, {name: total, shape: [], dtype: float32}, {name: picks, shape: [], dtype: int32}]",
    )
    edit(folder, "problem.yaml", "1.0e-6}", "1.0e-4}")
    edit(
        folder,
        "reference.py",
        "    return x.double()[pick.long()]",
        "    y = x.double()[pick.long()]\n    return y, y.abs().sum(), pick.sum()",
    )
    return folder


def test_scalar_outputs_keep_the_contract(scalars: Path) -> None:
    assert broken(scalars) == {}


def test_scalar_outputs_are_compared_by_the_judge(scalars: Path) -> None:
    problem, code = read(scalars), problem_code.load(read(scalars), "cpu", scalars)
    inputs = code.make_inputs({"R": 6, "N": 8}, 1, "public", "cpu")
    refs = code.outputs(inputs)
    right = tuple(ref.to(getattr(torch, declared.dtype)) for ref, declared in zip(refs, problem.outputs, strict=True))

    def judged(outs: tuple) -> Mapping[str, float]:
        return verify._within(outs, refs, inputs, code, problem, {"R": 6, "N": 8}, "public")

    assert judged(right)["el"] < 1e-4
    for wrong, words in ((right[1] * 2, "total is "), (right[1] * torch.nan, "total")):
        with pytest.raises(Rejection, match=words):
            judged((right[0], wrong, right[2]))


def test_scalar_outputs_have_degenerate_answers(scalars: Path) -> None:
    findings = list(contract.check_degenerate(read(scalars), "cpu", scalars))
    assert [finding.name for finding in findings if not finding.ok] == []
    assert {"degenerate: zeros", "degenerate: rows permuted"} <= {finding.name for finding in findings}


@pytest.mark.slow
def test_scalar_outputs_pass_the_kits_check(scalars: Path, tmp_path: Path) -> None:
    problem, run = read(scalars), run_folder.RunFolder(tmp_path / "run")
    run.work.mkdir(parents=True)
    folders = {"problem_folder": scalars, "kit_folder": paths.problems() / "kit"}
    run_folder.fill_workspace(run, problem, "cpu", problem.shapes["cpu"], "a machine", None, **folders)

    def ran(script: str, source: str, *arguments: str) -> tuple[int, str]:
        (run.work / "solution.py").write_text(source)
        done = subprocess.run(
            [sys.executable, script, *arguments], cwd=run.work, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    code, text = ran("check.py", RIGHT, "--seeds", "1", "--seed", "3")
    assert (code, text.splitlines()[-1]) == (0, "PASS")
    code, text = ran("check.py", RIGHT.replace("y.abs", "2 * y.abs"), "--seeds", "1", "--seed", "3")
    assert code == 1 and "      total is " in text
    code, text = ran("benchmark.py", RIGHT, "--windows", "1")
    assert code == 0 and "us per call" in text
