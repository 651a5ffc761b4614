"""A submission's text is read in a process of its own: whatever the text is, the judge has an answer within limits."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.errors import JudgeError
from arena.judge.fingerprints import of_python
from arena.judge.reader import BEGUN
from arena.judge.reading import Reading, read
from arena.judge.rejection import Rejection
from arena.system import process
from arena.system.process import Finished

SLOW = b"\n".join([b"x = [" + b"(a, [b])," * 1_000 + b"]"] * 400)
"""20 s, more than an honest file of 1 MiB takes."""
NUMBERS = b"x = [" + b"1," * 100_000 + b"]"


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
        read(SLOW, (), most_cpu_s=1)
    assert refused.value.verdict == "crashed"
    assert read(SLOW[: SLOW.index(b"\n")], (), most_cpu_s=1).uses == (), "a short one has time enough"


def test_a_text_that_takes_much_memory_is_a_verdict() -> None:
    with pytest.raises(Rejection, match="does not parse: MemoryError"):
        read(NUMBERS, (), most_bytes=60 << 20)
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
        (Finished(2, b"", b"", 0.1, timed_out=False), "status 2"),
        (Finished(-9, b"", b"", 0.1, timed_out=False), "signal 9"),
        (Finished(-9, b"", b"", 600.0, timed_out=True), "the machine is too busy"),
    ],
)
def test_a_reader_that_does_not_begin_is_the_judges_failure(done: Finished, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", lambda *a, **k: done)
    with pytest.raises(JudgeError, match=why):
        read(b"x", ())


def test_neither_folder_nor_environment_changes_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not another arena, where this one was started or that is found first, nor what Python runs at its start."""
    (tmp_path / "arena" / "judge").mkdir(parents=True)
    for name in ("arena/__init__.py", "arena/judge/__init__.py", "arena/judge/reader.py", "sitecustomize.py", "ast.py"):
        (tmp_path / name).write_text("print('hello')\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    assert read("x = 'ä'\nimport torch\ntorch.bmm".encode(), ("torch.bmm",)).uses == (("torch.bmm", 3),)


def test_a_machine_with_lower_limits_reads_too() -> None:
    limited = f'ulimit -v 1900000; ulimit -t 50; exec {sys.executable} -c "$0"'
    program = "from arena.judge.reading import read; print(read(b'x = 1', ()).uses)"
    done = subprocess.run(["sh", "-c", limited, program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "()\n", done.stderr
