"""A submission's text is read in a process of its own: whatever the text is, the judge has an answer within limits."""

import os
import signal
from pathlib import Path

import pytest

from arena.errors import JudgeError
from arena.judge import reading
from arena.judge.fingerprints import of_python
from arena.judge.reading import BEGUN, Reading, read
from arena.judge.rejection import Rejection
from arena.system import process
from arena.system.process import Finished

SLOW = b"x = f'" + b"{a}" * 50_000 + b"'"
"""2 s on Python 3.11, and four times as long for twice as much."""
NUMBERS = b"x = [" + b"1," * 500_000 + b"]"


def test_uses_and_fingerprints_are_those_of_the_text() -> None:
    source = Path(__file__).parents[2] / "problems" / "paged_attention" / "solutions" / "oracle_gpu.py"
    text = source.read_text() + "import torch\ntorch.bmm(a, b)\n"
    found = read(text.encode(), ("torch.bmm", "torch.matmul"))
    assert found == Reading((("torch.bmm", len(text.splitlines())),), frozenset(of_python(text)))
    assert len(found.fingerprints) > 100


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def broken(", "line 1: '\\(' was never closed"),
        ("x = 1\nx = = 2", "line 2: invalid syntax"),
        ("x = '\0'", "null bytes"),
        ("-" * 100_000 + "1", "MemoryError|RecursionError|too many nested|nested too deep"),
    ],
)
def test_what_is_not_python_is_a_verdict(source: str, why: str) -> None:
    with pytest.raises(Rejection, match=f"solution.py does not parse: .*({why})") as refused:
        read(source.encode(), ())
    assert refused.value.verdict == "crashed"


def test_a_text_that_takes_long_is_a_verdict() -> None:
    with pytest.raises(Rejection, match="takes more than 1 s of processor time to read") as refused:
        read(SLOW * 3, (), most_cpu_s=1)
    assert refused.value.verdict == "crashed"
    assert read(NUMBERS[:1000] + b"]", ()).uses == (), "a short one has time enough"


def test_a_text_that_takes_much_memory_is_a_verdict() -> None:
    with pytest.raises(Rejection, match="does not parse: MemoryError"):
        read(NUMBERS, (), most_bytes=150 << 20)
    assert read(NUMBERS, ()).uses == (), "with the published limit it is read"


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Finished(-signal.SIGSEGV, BEGUN, b"", 0.1, timed_out=False), "signal 11 ended the process that read it"),
        (Finished(1, BEGUN, b"Traceback\nSystemError: AST depth\n", 0.1, timed_out=False), "SystemError: AST depth"),
    ],
)
def test_a_parser_that_ends_is_a_verdict(done: Finished, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", lambda *a, **k: done)
    with pytest.raises(Rejection, match=f"solution.py does not parse: {why}"):
        read(b"x", ())


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Finished(1, b"", b"Traceback\nModuleNotFoundError: arena\n", 0.1, timed_out=False), "ModuleNotFoundError: arena"),
        (Finished(2, b"", b"", 0.1, timed_out=False), "exit status 2"),
        (Finished(-9, b"", b"", 600.0, timed_out=True), "the machine is too busy"),
    ],
)
def test_a_reader_that_fails_is_the_judges_failure(done: Finished, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", lambda *a, **k: done)
    with pytest.raises(JudgeError, match=why):
        read(b"x", ())


def test_the_reader_is_arenas_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that lies in the folder where arena was started."""
    (tmp_path / "arena" / "judge").mkdir(parents=True)
    for name in ("__init__.py", "judge/__init__.py", "judge/reader.py"):
        (tmp_path / "arena" / name).write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(reading.__file__).parents[2]) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    assert read(b"x = 1", ()).uses == ()
