"""The channel between judge and worker: what a submission does to it gets a verdict that counts, within its limit."""

import errno
import os
import socket
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import needs_sandbox

torch = pytest.importorskip("torch")

import replies  # noqa: E402
from submission import ATTACKS, GIVEN, header, source_of, submitted  # noqa: E402

from arena import catalog, judge  # noqa: E402
from arena.errors import JudgeError, SandboxError  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge import worker_client  # noqa: E402
from arena.judge.channel import HEAD_BYTES, TAIL_BYTES, Channel, Log  # noqa: E402
from arena.judge.device.memory import HostMemory  # noqa: E402
from arena.judge.rejection import SHORT_TEXTS, Rejection, crowded, refusal_under_way, shortage  # noqa: E402
from arena.judge.sampling import CPU  # noqa: E402
from arena.judge.worker import main  # noqa: E402
from arena.sandboxes import MIB, bwrap  # noqa: E402
from arena.schema import Problem  # noqa: E402

HERE = ATTACKS / "channel"
HONEST = source_of(ATTACKS / "cpu" / "honest.py")
PROBLEM = documents.read_yaml(GIVEN / "problem.yaml", Problem, name="given")
QUICK = replace(
    CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3, call_limit_s=6.0, first_call_limit_s=6.0, build_limit_s=60.0
)
LIMIT_S = 90.0
"""For any score here, many times what an idle machine takes. The attacks that it bounds last 600 s."""


def source(name):
    return source_of(HERE / f"{name}.py")


class Small:
    """A sandbox with little memory: a submission that takes all of it must not take the machine's."""

    def __init__(self, proof_s: float = 60.0):
        self.proof_s = proof_s

    def missing(self):
        return bwrap.missing()

    @contextmanager
    def run(self, spec):
        with bwrap.run(replace(spec, limits=replace(spec.limits, memory_bytes=1024 * MIB))) as running:
            running.proof_s = self.proof_s
            yield running


def scored(source, *, sandbox=None, logs=None, **sampling):
    began_s = time.monotonic()
    result = judge.score(
        submitted(source),
        PROBLEM,
        catalog.hardware("cpu"),
        digest="",
        sandbox=sandbox or Small(),
        sampling=replace(QUICK, **sampling),
        folder=GIVEN,
        logs=logs,
    )
    assert time.monotonic() - began_s < LIMIT_S
    return result


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.py")))
def test_verdict(name, monkeypatch):
    monkeypatch.setattr(worker_client, "GRACE_S", 1.0)
    result = scored(source(name))
    assert result.verdict == header((HERE / f"{name}.py").read_text(), "verdict"), result.message


# ------------------------------------------------------------------ descriptors


def test_nothing_can_be_queued_towards_the_judge():
    channel = Channel()
    theirs = socket.socket(fileno=os.dup(channel.worker_fds[0]))
    with theirs, socket.socket() as sent:
        for message, fds in ((b"x", [sent.fileno()]), (b"x", [sent.fileno()] * 250), (b"", [sent.fileno()]), (b"x", [])):
            with pytest.raises(BrokenPipeError):
                socket.send_fds(theirs, [message], fds)
        channel.orders.send(b"order")
        assert theirs.recv(16) == b"order"
        with pytest.raises(BrokenPipeError):
            socket.send_fds(theirs, [b"x"], [sent.fileno()])
        channel.orders.setblocking(False)
        assert socket.recv_fds(channel.orders, 16, 250)[:2] == (b"", [])
    channel.close()


def test_the_channel_leaves_no_descriptor():
    before = len(list(Path("/proc/self/fd").iterdir()))
    channel = Channel()
    channel.release_worker_fds()
    channel.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


PROFILER = "import subprocess, sys; print(subprocess.call(sys.argv[1:], close_fds=False), 'is how it ended')"


@pytest.mark.slow
@needs_sandbox
def test_the_channel_reaches_a_worker_inside_a_profiler():
    how: dict[str, Any] = {"sandbox": bwrap, "cpus": None, "gpu": None, "env": {}, "logs": None, "total_limit_s": 60.0}
    with worker_client.start(submitted(HONEST), wrapper=("python", "-I", "-c", PROFILER), **how) as worker:
        worker.wait_until_ready(HostMemory())
        worker.load(60.0)
        assert worker.finish(30.0) == b"0 is how it ended\n"


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize(
    ("last", "how"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
        ("time.sleep(60)", "did not end in 1 s"),
        ("os.write(1, b'x' * (20 << 20))", "printed more text than is kept"),
    ],
    ids=["killed", "stays", "floods"],
)
def test_a_worker_that_does_not_end_by_itself_leaves_no_report(last, how):
    with loaded(f"import atexit, os, time\n{HONEST}\natexit.register(lambda: {last})") as worker:
        with pytest.raises(Rejection, match=how) as caught:
            worker.finish(1.0 if "sleep" in last else 30.0)
        assert caught.value.verdict == "crashed"


def test_a_log_keeps_the_beginning_and_the_end_of_a_stream():
    lines = b"".join(b"line %d\n" % number for number in range(2_000_000))
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb") as stream, open(write_fd, "wb") as writing:
        log = Log(stream)
        writing.write(lines)
        writing.close()
        kept = log.text()
    assert log.last_error(SHORT_TEXTS["Memory"]) == "line 1999999"
    head, told, tail = kept[:HEAD_BYTES], kept[HEAD_BYTES:-TAIL_BYTES], kept[-TAIL_BYTES:]
    assert lines.startswith(head) and lines.endswith(tail) and len(told) <= TAIL_BYTES
    lost = int(told.partition(b"\n[")[2].partition(b" bytes")[0])
    assert lost + len(kept) - len(b"\n[%d bytes are left out here]\n" % lost) == len(lines)
    with Path(os.devnull).open("rb") as stream:
        assert Log(stream).text() == b""


# ------------------------------------------------------------------ limits


@contextmanager
def loaded(source, **limits):
    with worker_client.start(
        submitted(source), sandbox=bwrap, cpus=None, gpu=None, env={}, logs=None, **{"total_limit_s": 60.0, **limits}
    ) as worker:
        worker.wait_until_ready(HostMemory())
        worker.load(60.0)
        yield worker


@pytest.mark.slow
@needs_sandbox
def test_the_turns_of_others_are_no_time_of_a_worker():
    """Of three slow workers the last waits for longer than it computes."""
    with loaded(HONEST, total_limit_s=2.0) as worker:
        time.sleep(1.0)
        worker.set_aside()
        time.sleep(2.5)
        worker.resume()
        worker.order("trim", limit_s=5.0)
        assert not worker.overdue
        worker.load(5.0)  # as when its build is repeated
        time.sleep(1.2)
        assert worker.overdue, "a second load gives no new time"


@pytest.mark.slow
@needs_sandbox
def test_a_worker_stopped_in_its_own_turn_has_no_more_time():
    with pytest.raises(Rejection, match="One worker took longer than 2 s") as caught, loaded(HONEST, total_limit_s=2.0) as worker:
        worker.freeze()
        time.sleep(2.5)
        worker.resume()
        worker.order("trim", limit_s=5.0)
    assert caught.value.verdict == "timed_out"


@pytest.mark.slow
@needs_sandbox
def test_a_stuck_judge_is_freed_at_the_workers_deadline():
    """The judge's thread waits for the sandbox without a limit, as it would in a system call or for a device."""
    began_s = time.monotonic()
    with (
        pytest.raises(Rejection, match="One worker took longer than 1 s") as caught,
        loaded(HONEST, total_limit_s=1.0) as worker,
    ):
        assert worker._sandbox.wait(None) == 137
        worker.freeze()
    assert caught.value.verdict == "timed_out"
    assert time.monotonic() - began_s < LIMIT_S


@pytest.mark.slow
@needs_sandbox
def test_a_worker_that_is_in_time_is_left_alone():
    with loaded(HONEST) as worker:
        time.sleep(1.0)
        assert worker._sandbox.wait(0.0) is None and not worker._watchdog.finding


def test_a_limit_passed_in_a_stop_of_arena_waits_for_the_judge():
    channel, sandbox = Channel(), replies.Sandbox()
    worker = worker_client.Worker(sandbox, channel, 60.0)
    worker.stop_watchdog()
    worker._set_due(0.0, "late")
    assert worker._overdue() == ""
    worker._set_due(0.0, "the next")
    assert [worker._overdue(), worker._overdue()] == ["", "the next"]
    channel.close()
    sandbox.close()


# ------------------------------------------------------------------ the end


@pytest.mark.slow
@needs_sandbox
def test_a_refusal_stays_when_the_sandbox_dies_slowly():
    result = scored(source("raises_and_dies_slowly"), sandbox=Small(proof_s=0.05))
    assert result.verdict == "crashed" and "ValueError" in result.message
    assert "is not empty 0.05 s after its kill" in result.environment["notes"]


@pytest.mark.slow
@needs_sandbox
def test_a_slow_death_of_an_honest_worker_counts():
    result = scored(source("dies_slowly"), sandbox=Small(proof_s=0.05))
    assert result.verdict == "timed_out" and "took too long to die" in result.message


class Unending:
    """A sandbox whose end fails for a reason of its own."""

    def __init__(self, kind):
        self.kind = kind

    @contextmanager
    def run(self, spec):
        try:
            with bwrap.run(spec) as running:
                yield running
        finally:
            raise self.kind("the engine is gone")


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("kind", [SandboxError, OSError])
def test_trouble_of_the_machine_is_noted_beside_a_refusal(kind):
    result = scored("raise ValueError", sandbox=Unending(kind))
    assert (result.verdict, "ValueError" in result.message) == ("crashed", True), result.message
    assert "the engine is gone" in result.environment["notes"]
    assert scored(HONEST, sandbox=Unending(kind)).verdict == "judge_failed"


@pytest.mark.slow
@needs_sandbox
def test_logs_that_cannot_be_written_are_noted(tmp_path):
    (tmp_path / "logs").write_text("a file")
    result = scored("raise ValueError", logs=tmp_path / "logs")
    assert result.verdict == "crashed" and "logs could not be written" in result.environment["notes"]


@pytest.mark.slow
@needs_sandbox
def test_memory_used_up_is_noted():
    result = scored(source("exhausts_memory"))
    assert result.verdict == "crashed" and "memory" in result.environment["notes"]


# ------------------------------------------------------------------ who is charged


@pytest.mark.parametrize(
    ("error", "charged"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "no memory"), True),
        (OSError(errno.ENFILE, "file table"), True),
        (BlockingIOError(errno.EAGAIN, "fork"), True),
        (OSError(errno.EMFILE, "own descriptors"), False),
        (OSError(errno.ENOSPC, "disk"), False),
        (torch.OutOfMemoryError("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), False),
        (RuntimeError("CUDA error: unspecified launch failure"), False),
        (RuntimeError("size mismatch"), False),
    ],
    ids=str,
)
def test_shortages_that_a_submission_can_cause(error, charged):
    assert bool(shortage(error)) == charged


def test_the_texts_of_torch_are_still_the_same():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert shortage(caught.value)


@pytest.mark.slow
@needs_sandbox
def test_a_shortage_is_charged_once_the_solution_is_loaded():
    with pytest.raises(Rejection, match="Memory ran out") as caught, loaded(HONEST):
        raise MemoryError
    assert caught.value.verdict == "crashed"
    with pytest.raises(RuntimeError, match="ECC"), loaded(HONEST):
        raise RuntimeError("uncorrectable ECC error")
    how: dict[str, Any] = {"sandbox": bwrap, "cpus": None, "gpu": None, "env": {}, "logs": None, "total_limit_s": 60.0}
    with pytest.raises(MemoryError), worker_client.start(submitted(HONEST), **how):
        raise MemoryError


def test_a_refusal_under_way_is_found():
    rejection = Rejection("crashed", "it crashed")
    try:
        try:
            raise rejection
        finally:
            raise OSError("while cleaning up")
    except OSError as error:
        assert refusal_under_way(error) is rejection
    try:
        try:
            raise rejection
        except Rejection:
            raise JudgeError("the judge's own words for it") from None
    except JudgeError as error:
        assert refusal_under_way(error) is None


@pytest.mark.parametrize(
    ("loaded", "op", "message"),
    [
        (True, "run", "solution() raised an exception"),
        (True, "profile", "The call of solution() failed, or the profiler"),
        (True, "trim", "What solution() started failed, or left too little memory, after it had returned"),
        (True, "start_profiler", "The judge's order 'start_profiler' failed"),
        (False, "count", "The judge's order 'count' failed"),
        (False, "map", "The judge's order 'map' failed"),
    ],
)
def test_the_judges_own_failure_is_not_the_solutions(loaded: bool, op: str, message: str) -> None:
    worker: Any = object.__new__(worker_client.Worker)
    worker._deadline_s = 1.0 if loaded else float("inf")
    worker.stderr = SimpleNamespace(last_error=lambda wanted: "OSError: libcupti.so.13")
    failure = worker._failed(op, main.RAISED)
    assert (failure.verdict, failure.message) == ("crashed", f"{message}; on stderr: OSError: libcupti.so.13")


def raised(last):
    return f'Traceback (most recent call last):\n  File "solution.py", line 3, in solution\n    launch()\n{last}\n'


ADVICE = (
    "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)
LAST = ADVICE.splitlines()[-1]
EARLIER = raised("torch.OutOfMemoryError: CUDA out of memory.")


@pytest.mark.parametrize(
    ("stderr", "told", "short"),
    [
        ("", "", False),
        ("compiling\n\nready\n", "ready", False),
        (raised("ZeroDivisionError: division by zero"), "ZeroDivisionError: division by zero", False),
        (raised("torch.OutOfMemoryError: CUDA out of memory. 1 GiB"), "torch.OutOfMemoryError: CUDA out of memory. 1 GiB", True),
        (raised(f"RuntimeError: CUDA error: out of memory\n{ADVICE}"), f"RuntimeError: CUDA error: out of memory … {LAST}", True),
        (raised(f"RuntimeError: CUDA error: bad address\n{ADVICE}"), f"RuntimeError: CUDA error: bad address … {LAST}", False),
        (
            raised("RuntimeError: Error building extension\n[1/2] nvcc\nptxas fatal : Memory allocation failure\nninja: stopped"),
            "RuntimeError: Error building extension … ptxas fatal : Memory allocation failure … ninja: stopped",
            True,
        ),
        (raised("MemoryError"), "MemoryError", True),
        (raised("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 EiB"), "Unable to allocate 8 EiB", True),
        (
            raised("Error building extension\n" + "-I x " * 100 + "out of memory\nstopped"),
            "-I x out of memory",
            True,
        ),
        (raised("Error building extension\n" + "line\n" * 100_000 + "out of memory\nstopped"), "out of memory … stopped", True),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", "bad_alloc", True),
        (EARLIER + raised("ZeroDivisionError"), "ZeroDivisionError", False),
        (EARLIER + "it goes on\n" * 20 + raised("ValueError: 3"), "ValueError: 3", False),
        ("out of memory, a smaller block then\n" + "\n".join(map(str, range(20))), "19", False),
        (raised("ValueError: \x1b[31mred"), "ValueError: ?[31mred", False),
        ("Traceback (most recent call last):\n", "Traceback (most recent call last):", False),
    ],
)
def test_the_last_error_is_told_in_short(stderr: str, told: str, short: bool) -> None:
    """And memory that was short is shown, wherever in the message it stands: others may have taken it."""
    with tempfile.TemporaryFile() as file:
        file.write(stderr.encode())
        file.seek(0)
        log = Log(file)
        log.text()
    found = log.last_error(SHORT_TEXTS["Memory"])
    assert (told in found) if short else found == told
    assert crowded(Rejection("crashed", f"solution() raised an exception; on stderr: {found}")) == short
