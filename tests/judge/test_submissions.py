"""Every honest, wrong and cheating submission gets the verdict on its first line, in the real sandbox."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from submission import SHIPPED, followed, header, read

from arena import catalog, judge
from arena.files import documents
from arena.judge.sampling import CPU
from arena.sandboxes import bwrap
from arena.schema import Problem

HERE = Path(__file__).parents[1] / "submissions"
FOLDER = HERE.with_name("given")
GIVEN = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
QUICK = replace(
    CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3, call_limit_s=5.0, first_call_limit_s=5.0, build_limit_s=20.0
)
"""Verdicts do not depend on how many windows are timed; the limits are short so that a hang ends soon."""


sandboxed = pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")


def scored(submission, problem=GIVEN, folder=FOLDER, sandbox=bwrap):
    hardware = catalog.hardware("cpu")
    return judge.score(submission, problem, hardware, digest="", sandbox=sandbox, sampling=QUICK, folder=folder)


class Broken:
    """A sandbox in which Python does not start."""

    def run(self, spec):
        return bwrap.run(replace(spec, command=("sh", "-c", "echo no library >&2; exit 1")))


@sandboxed
def test_worker_failing_before_the_solution_is_a_judge_failure():
    submission, _ = read(HERE / "honest.py")
    result = scored(submission, sandbox=Broken())
    assert (result.verdict, "no library" in result.message) == ("judge_failed", True), result.message


@sandboxed
@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.stem)
def test_verdict(path):
    submission, wanted = read(path)
    before = followed(path)
    shipped = (catalog.problem("paged_attention"), None)
    result = scored(submission, *(shipped if before and before.parent == SHIPPED else ()))
    assert result.verdict == wanted, result.message
    assert header(path.read_text(), "message") in result.message
    assert hasattr(result, "peak_fraction") == (wanted == "passed")
    assert "\n" not in result.message
