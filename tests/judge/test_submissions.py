"""Every honest, wrong and cheating submission for a CPU gets the verdict on its first line, in the real sandbox."""

from dataclasses import replace

import pytest
from command import needs_sandbox

pytest.importorskip("torch")

from attack_table import HONEST, entry, honest
from submission import ATTACKS, GIVEN, header, read

from arena import catalog, judge
from arena.files import documents
from arena.judge.sampling import CPU
from arena.sandboxes import bwrap
from arena.schema import Problem

PROBLEM = documents.read_yaml(GIVEN / "problem.yaml", Problem, name="given")
QUICK = replace(
    CPU,
    processes=1,
    min_windows=3,
    max_windows=3,
    empty_windows=3,
    audit_windows=4,
    audit_sample=16,
    call_limit_s=5.0,
    first_call_limit_s=5.0,
    build_limit_s=20.0,
)
"""Verdicts do not depend on how many windows are timed; the limits are short so that a hang ends soon. One process audits as much
as three do: with a third of it, a submission that is wrong in a quarter of the audited calls passed once in thirty."""


def scored(submission, problem=PROBLEM, folder=GIVEN, sandbox=bwrap):
    hardware = catalog.hardware("cpu")
    # Nothing for this problem compiles, and an endless import keeps a core busy for as long as it may.
    sampling = replace(QUICK, build_limit_s=5.0) if folder == GIVEN else QUICK
    return judge.score(submission, problem, hardware, digest="", sandbox=sandbox, sampling=sampling, folder=folder)


class Broken:
    """A sandbox in which Python does not start."""

    def run(self, spec):
        return bwrap.run(replace(spec, command=("sh", "-c", "echo no library >&2; exit 1")))


@needs_sandbox
def test_worker_failing_before_the_solution_is_a_judge_failure():
    submission, _ = read(ATTACKS / "cpu" / "honest.py")
    result = scored(submission, sandbox=Broken())
    assert (result.verdict, "no library" in result.message) == ("judge_failed", True), result.message


SLOW = {"prints_a_gigabyte": pytest.mark.slow}
PATHS = [pytest.param(path, id=path.stem, marks=SLOW.get(path.stem, ())) for path in sorted((ATTACKS / "cpu").glob("*.py"))]


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("path", PATHS)
def test_verdict(path):
    found = entry(f"cpu/{path.stem}", "cpu")
    assert found is not None
    submission, wanted = found.submission()
    result = scored(submission, found.problem, found.home)
    assert result.verdict == wanted, result.message
    assert header(path.read_text(), "message") in result.message
    assert hasattr(result, "peak_fraction") == (wanted == "passed")
    assert "\n" not in result.message


ANYWHERE = sorted({found.path for found in honest("cpu") if found.path.parent == HONEST})


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("path", ANYWHERE, ids=lambda path: path.stem)
def test_honest_submissions_pass(path):
    result = scored(read(path)[0], catalog.problem("paged_attention"), None)
    assert result.verdict == "passed", result.message
