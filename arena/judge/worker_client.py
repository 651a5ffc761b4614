"""The judge's end of one worker: its sandbox, its socket, its logs and its end."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from arena.errors import JudgeError, SandboxError
from arena.judge.problem_code import kit
from arena.judge.rejection import Rejection
from arena.judge.worker import main
from arena.sandboxes import RunningSandbox, Sandbox, SandboxSpec
from arena.sandboxes.limits import limits_for
from arena.submission import Submission

LOG_BYTES = 1 << 20
"""How much the judge keeps of each of the worker's streams. It reads and drops the rest, so that the worker never blocks."""
START_LIMIT_S = 120.0
"""For importing torch and opening the device, which takes seconds on an idle machine."""
SEND_LIMIT_S = 5.0
"""The socket holds more orders than are ever under way. If one does not fit, the worker does not read them."""
SANDBOX_PATHS = {
    "worker": "/run/arena/worker.py",
    "kit": "/run/arena/benchmark.py",
    "vmm": "/run/arena/vmm.py",
    "solution": "/workspace/solution.py",
}


class Uncapturable(Exception):  # noqa: N818  an answer, not an error
    """The solution's calls cannot be captured in a CUDA graph. The worker is damaged and must be replaced."""


@contextmanager
def as_judge_failure() -> Iterator[None]:
    """No code of the submission has run yet, so the machine or arena is at fault."""
    try:
        yield
    except Rejection as rejection:
        raise JudgeError(f"a worker failed before it loaded the solution: {rejection.message}; see `arena doctor`") from None


class Log:
    """The beginning of a stream, read by a thread until it ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._kept = bytearray()
        self._fd = os.dup(stream.fileno())  # a copy: the sandbox closes its own when it ends
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._fd, 1 << 16):
            self._kept += chunk[: max(0, LOG_BYTES - len(self._kept))]
        os.close(self._fd)

    def last_line(self) -> str:
        """The last line that is not blank, made safe to print."""
        lines = [line.strip() for line in bytes(self._kept).decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(c if c.isprintable() else "?" for c in lines[-1])[:300] if lines else ""

    def text(self) -> bytes:
        """All that was kept."""
        self._thread.join(timeout=1)
        return bytes(self._kept)


class Worker:
    """One worker process. It is frozen outside its windows; CPU time it uses meanwhile is proof of tampering."""

    def __init__(self, running: RunningSandbox, channel: socket.socket, total_limit_s: float) -> None:
        self._sandbox, self._channel, self._sequence = running, channel, 0
        self._cpu_at_freeze_ns: int | None = None
        self._total_limit_s, self._deadline_s = total_limit_s, math.inf
        self.stdout, self.stderr = Log(running.stdout), Log(running.stderr)

    def wait_until_ready(self, memory: str) -> None:
        """Wait until the worker has imported its modules and opened the device. It runs only the judge's own program so far."""
        with as_judge_failure():
            self.order("open", limit_s=START_LIMIT_S, memory=memory)

    def load(self, limit_s: float) -> None:
        """Have the worker import the submission. From here on its time counts against its total limit."""
        self._deadline_s = time.monotonic() + self._total_limit_s
        self.resume()
        self.order("load", limit_s=limit_s)

    def order(self, op: str, *, limit_s: float, fds: list[int] | None = None, **fields: object) -> float:
        """Send an order and wait for its reply; return the seconds by the device's clock. Rejection when no good reply comes."""
        self.send(op, fds=fds, **fields)
        return self.reply(op, limit_s)

    def send(self, op: str, *, fds: list[int] | None = None, **fields: object) -> None:
        """Send an order. The worker must be running or about to be resumed."""
        self._sequence += 1
        message = json.dumps({"op": op, "seq": self._sequence, **fields}).encode()
        self._channel.settimeout(SEND_LIMIT_S)
        try:
            socket.send_fds(self._channel, [message], fds or [])
        except TimeoutError:
            raise Rejection("cheated", "The worker answered the judge's orders without reading them from the socket") from None
        except OSError:
            raise self._died() from None

    def reply(self, op: str, limit_s: float) -> float:
        """Wait for the reply to the last order: exactly one packet."""
        left_s = self._deadline_s - time.monotonic()
        total = f"One worker took longer than {self._total_limit_s:.4g} s for its build, checks and timing together"
        if left_s <= 0:
            raise Rejection("timed_out", total)
        self._channel.settimeout(min(limit_s, left_s))
        try:
            packet = self._channel.recv(main.REPLY.size + 1)
        except TimeoutError:
            if left_s < limit_s:
                raise Rejection("timed_out", total) from None
            what = "Importing solution.py" if op == "load" else "The call"
            raise Rejection("timed_out", f"{what} took longer than {limit_s:.4g} s") from None
        except OSError:
            packet = b""
        if not packet:
            raise self._died()
        if len(packet) != main.REPLY.size:
            raise Rejection("cheated", "The worker sent a packet of the wrong size over the judge's socket")
        magic, sequence, status, device_s = main.REPLY.unpack(packet)
        if magic != main.MAGIC or sequence != self._sequence:
            raise Rejection("cheated", "The worker sent a reply to no order over the judge's socket")
        if status != main.DONE:
            raise self._failed(op, status)
        if not 0 <= device_s < math.inf:
            raise Rejection("cheated", f"The worker reported an impossible {device_s} s for a window")
        return float(device_s)

    def _failed(self, op: str, status: int) -> Exception:
        """The exception for a status other than DONE, given this order."""
        stderr = self._stderr_note()
        if status == main.UNCAPTURABLE and op == "capture":
            return Uncapturable(stderr)
        if status == main.UNUSABLE and op == "load":
            return Rejection("crashed", f"solution.py could not be loaded{stderr}")
        if status == main.RAISED:
            return Rejection("crashed", f"solution() raised an exception{stderr}")
        if 0 < status < main.RAISED:
            return Rejection("incorrect", f"solution() returned something other than the problem asks for{stderr}")
        return Rejection("cheated", f"The worker answered the order {op!r} with status {status}, which that order never has")

    def finish(self, limit_s: float) -> bytes:
        """Close the socket, let the process end by itself, and return its stdout: a profiler around it reports at the end."""
        self._channel.close()
        self._sandbox.wait(timeout_s=limit_s)
        return self.stdout.text()

    def reject_stray_packets(self) -> None:
        """Reject a worker that has sent a packet without an order."""
        if not select.select([self._channel], [], [], 0)[0]:
            return
        if not self._channel.recv(1, socket.MSG_PEEK):
            raise self._died()
        raise Rejection("cheated", "The worker sent a packet over the judge's socket between two orders")

    def freeze(self) -> None:
        """Stop every process in the worker's sandbox."""
        if self._cpu_at_freeze_ns is None:
            with self._alive():
                self._cpu_at_freeze_ns = self._sandbox.freeze()

    def ran_ns(self) -> int:
        """CPU time its processes used since `freeze` or the last call of this; where it is not 0, freeze them again."""
        assert self._cpu_at_freeze_ns is not None, "not frozen"
        with self._alive():
            used_ns = self._sandbox.cpu_ns() - self._cpu_at_freeze_ns
            if used_ns:
                self._cpu_at_freeze_ns = self._sandbox.freeze()
        return used_ns

    def resume(self) -> None:
        """Let the worker continue."""
        self._cpu_at_freeze_ns = None
        with self._alive():
            self._sandbox.resume()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """A sandbox that fails to freeze or resume has ended, or a process in it keeps undoing what the judge does."""
        try:
            yield
        except SandboxError as error:
            if self._sandbox.wait(timeout_s=2) is not None:
                raise self._died() from None
            raise Rejection("cheated", f"The submission's processes could not be stopped between two windows: {error}") from None

    def _died(self) -> Rejection:
        status = self._sandbox.wait(timeout_s=5)
        if status is None:
            self._sandbox.kill()
            return Rejection("crashed", "The process running solution.py closed the judge's socket and continued to run")
        how = f"was ended by signal {status - 128}" if status > 128 else f"exited with status {status}"
        return Rejection("crashed", f"The process running solution.py {how}{self._stderr_note()}")

    def _stderr_note(self) -> str:
        time.sleep(0.05)  # the line is in the pipe by now; give the reading thread its turn
        line = self.stderr.last_line()
        return f"; its last line on stderr: {line}" if line else ""


@contextmanager
def start(
    submission: Submission,
    *,
    sandbox: Sandbox,
    cpus: frozenset[int] | None,
    gpu: int | None,
    env: Mapping[str, str],
    logs: Path | None,
    total_limit_s: float,
    wrapper: tuple[str, ...] = (),
) -> Iterator[Worker]:
    """A worker in a sandbox of its own, with the submission and nothing else to read. Its logs go to the folder `logs`.

    `wrapper` is the beginning of a command line that runs the worker inside a profiler.
    """
    judge_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = {
        SANDBOX_PATHS["worker"]: Path(main.__file__).read_bytes(),
        SANDBOX_PATHS["kit"]: Path(str(kit("benchmark").__file__)).read_bytes(),
        SANDBOX_PATHS["vmm"]: (Path(__file__).with_name("worker") / "vmm.py").read_bytes(),
        SANDBOX_PATHS["solution"]: submission.source,
    }
    program, *rest = (SANDBOX_PATHS[name] for name in ("worker", "solution", "kit", "vmm"))
    fd, limits = worker_end.fileno(), limits_for("worker")
    command = (*wrapper, "python", "-I", "-B", program, str(fd), *rest)
    spec = SandboxSpec("worker", command, files=files, env=env, pass_fds=(fd,), cpus=cpus, gpu=gpu, limits=limits)
    with judge_end, worker_end, sandbox.run(spec) as running:
        worker_end.close()
        worker = Worker(running, judge_end, total_limit_s)
        try:
            yield worker
        finally:
            running.kill()
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                number = len(list(logs.glob("*.stderr"))) + 1  # in the order of their ends
                (logs / f"worker-{number}.stdout").write_bytes(worker.stdout.text())
                (logs / f"worker-{number}.stderr").write_bytes(worker.stderr.text())
