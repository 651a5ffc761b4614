"""Solutions that write into given outputs: their verdicts in the real sandbox, and what the outputs hold before a call."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena import catalog, judge  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.sampling import CPU  # noqa: E402
from arena.judge.window import Sets, poison  # noqa: E402
from arena.sandboxes import bwrap  # noqa: E402
from arena.schema import Problem  # noqa: E402
from arena.submission import Submission  # noqa: E402

FOLDER = Path(__file__).parents[1] / "given"
SUBMISSIONS = Path(__file__).parents[1] / "submissions_given"
PROBLEM = documents.read_yaml(FOLDER / "problem.yaml", Problem, name="given")
QUICK = replace(
    CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3, call_limit_s=5.0, first_call_limit_s=5.0, build_limit_s=20.0
)


def header(source: str, key: str) -> str:
    """The value of `key` in the comment lines at the top."""
    found = [line.removeprefix(f"# {key}: ") for line in source.splitlines()[:3] if line.startswith(f"# {key}: ")]
    return found[0] if found else ""


@pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")
@pytest.mark.parametrize("path", sorted(SUBMISSIONS.glob("*.py")), ids=lambda path: path.stem)
def test_verdict(path: Path) -> None:
    text = path.read_text()
    before = header(text, "follows")
    source = ((SUBMISSIONS / f"{before}.py").read_text() + "\n\n" if before else "") + text
    submission = Submission(source.encode(), hashlib.sha256(source.encode()).hexdigest())
    result = judge.score(submission, PROBLEM, catalog.hardware("cpu"), digest="", sandbox=bwrap, sampling=QUICK, folder=FOLDER)
    assert result.verdict == header(text, "verdict"), result.message
    assert header(text, "message") in result.message


FLOATS = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


def sets(given: bool, kinds: tuple[Any, ...]) -> Sets:
    """Two sets of outputs of these kinds, all zeros."""
    memory = HostMemory()
    outputs = layout([((64,), kind) for kind in kinds])
    buffer = memory.buffer(2 * outputs.set_bytes)
    return Sets(memory, buffer.bytes, buffer, buffer, outputs, outputs, 2, given, 0.0)


def test_given_outputs_hold_no_answer_before_a_call() -> None:
    made = sets(True, (*FLOATS, *INTEGERS, torch.bool))
    poison(made, 1, seed=1)
    first = [view.clone() for view in made.output(0)]
    assert all(view.float().isnan().all() for view in first if view.is_floating_point())
    integers = [view for view in first if not view.is_floating_point()]
    assert all(len(view.unique()) > 1 for view in integers) and all((view[:8] > 127).any() for view in integers[:2])
    assert not any(view.view(torch.uint8).any() for view in made.output(1))
    poison(made, 1, seed=2)
    assert all(not torch.equal(old, new) for old, new in zip(integers, made.output(0)[-len(integers) :], strict=True))


def test_buffers_for_copies_look_like_results() -> None:
    made = sets(False, (*FLOATS, *INTEGERS))
    poison(made, 2, seed=1)
    assert all(view.float().isfinite().all() and view.float().abs().max() <= 127 for view in made.output(1))
