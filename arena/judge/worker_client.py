"""The judge's end of one worker: its box, its socket, its logs and its death."""

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
"""What is kept of each of the worker's streams; the rest is read and dropped, so that it never blocks."""
START_LIMIT_S = 120.0
"""For importing torch and opening the device, which takes seconds on a quiet machine."""
SEND_LIMIT_S = 5.0
"""The socket holds more orders than are ever under way: one that does not fit means that nobody reads them."""
INSIDE = {
    "worker": "/run/arena/worker.py",
    "kit": "/run/arena/benchmark.py",
    "vmm": "/run/arena/vmm.py",
    "solution": "/workspace/solution.py",
}


class Uncapturable(Exception):  # noqa: N818  an answer, not an error
    """The solution's calls cannot be captured in a CUDA graph; the worker is damaged and must be replaced."""


@contextmanager
def ours() -> Iterator[None]:
    """Nothing of the submission's has run yet, so what goes wrong is the machine's or ours."""
    try:
        yield
    except Rejection as no:
        raise JudgeError(f"a worker failed before it had the solution: {no.message}; see `arena doctor`") from None


class Log:
    """The beginning of a stream, read by a thread until it ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._kept = bytearray()
        self._fd = os.dup(stream.fileno())  # ours: the box closes its own when it ends
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._fd, 1 << 16):
            self._kept += chunk[: max(0, LOG_BYTES - len(self._kept))]
        os.close(self._fd)

    def last_line(self) -> str:
        """The last line that says something, made safe to print."""
        lines = [line.strip() for line in bytes(self._kept).decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(c if c.isprintable() else "?" for c in lines[-1])[:300] if lines else ""

    def text(self) -> bytes:
        """All that was kept."""
        self._thread.join(timeout=1)
        return bytes(self._kept)


class Worker:
    """One worker process. Outside its windows it is stopped; CPU time it uses meanwhile is evidence."""

    def __init__(self, box: RunningSandbox, channel: socket.socket, total_limit_s: float) -> None:
        self._box = box
        self._channel = channel
        self._sequence = 0
        self._frozen_at_ns: int | None = None
        self._total_limit_s = total_limit_s
        self._deadline_s = math.inf
        self.stdout, self.stderr = Log(box.stdout), Log(box.stderr)

    def greet(self, memory: str) -> None:
        """Wait until the worker has imported what it needs and holds the device: the judge's own program, nobody else's yet."""
        with ours():
            self.order("greet", limit_s=START_LIMIT_S, memory=memory)

    def load(self, limit_s: float) -> None:
        """Have it import the submission. All that it does from here on counts against its total."""
        self._deadline_s = time.monotonic() + self._total_limit_s
        self.resume()
        self.order("load", limit_s=limit_s)

    def order(self, op: str, *, limit_s: float, fds: list[int] | None = None, **fields: object) -> float:
        """Give an order and wait for its reply; returns the device's own seconds. Refusal when it does not come."""
        self.send(op, fds=fds, **fields)
        return self.reply(op, limit_s)

    def send(self, op: str, *, fds: list[int] | None = None, **fields: object) -> None:
        """Give an order. The worker must be running or about to be resumed."""
        self._sequence += 1
        message = json.dumps({"op": op, "seq": self._sequence, **fields}).encode()
        self._channel.settimeout(SEND_LIMIT_S)
        try:
            socket.send_fds(self._channel, [message], fds or [])
        except TimeoutError:
            raise Rejection("cheated", "Orders were answered, but left unread in the judge's socket") from None
        except OSError:
            raise self._died() from None

    def reply(self, op: str, limit_s: float) -> float:
        """Wait for the reply to the last order, not a packet more and not a packet less."""
        left_s = self._deadline_s - time.monotonic()
        over = Rejection("timed_out", f"All that was asked of one worker together took longer than {self._total_limit_s:.4g} s")
        if left_s <= 0:
            raise over
        self._channel.settimeout(min(limit_s, left_s))
        try:
            packet = self._channel.recv(main.REPLY.size + 1)
        except TimeoutError:
            if left_s < limit_s:
                raise over from None
            what = "Importing solution.py" if op == "load" else "The call"
            raise Rejection("timed_out", f"{what} took longer than {limit_s:.4g} s") from None
        except OSError:
            packet = b""
        if not packet:
            raise self._died()
        if len(packet) != main.REPLY.size:
            raise Rejection("cheated", "A packet of the wrong size came over the judge's socket")
        magic, sequence, status, device_s = main.REPLY.unpack(packet)
        if magic != main.MAGIC or sequence != self._sequence:
            raise Rejection("cheated", "A reply that nobody had asked for came over the judge's socket")
        if status != main.DONE:
            raise self._failed(op, status)
        if not 0 <= device_s < math.inf:
            raise Rejection("cheated", f"The worker says that a window took {device_s} s")
        return float(device_s)

    def _failed(self, op: str, status: int) -> Exception:
        """What a status other than done means for this order."""
        said = self._said()
        if status == main.UNCAPTURABLE and op == "capture":
            return Uncapturable(said)
        if status == main.UNUSABLE and op == "load":
            return Rejection("crashed", f"solution.py could not be loaded{said}")
        if status == main.RAISED:
            return Rejection("crashed", f"solution() raised an exception{said}")
        if 0 < status < main.RAISED:
            return Rejection("incorrect", f"solution() returned something other than the problem asks for{said}")
        return Rejection("cheated", f"The worker answered {op!r} with status {status}, which it never does")

    def farewell(self, limit_s: float) -> bytes:
        """Hang up, let the process end by itself, and return what was printed: a profiler around it speaks last."""
        self._channel.close()
        self._box.wait(timeout_s=limit_s)
        return self.stdout.text()

    def no_packet_waits(self) -> None:
        """Refuse a worker that has spoken out of turn."""
        if not select.select([self._channel], [], [], 0)[0]:
            return
        if not self._channel.recv(1, socket.MSG_PEEK):
            raise self._died()
        raise Rejection("cheated", "A packet came over the judge's socket between two orders")

    def freeze(self) -> None:
        """Stop every process of the worker's box."""
        if self._frozen_at_ns is None:
            with self._alive():
                self._frozen_at_ns = self._box.freeze()

    def ran_ns(self) -> int:
        """CPU time that its processes used since `freeze`, or since this was asked last: 0, or it is stopped anew."""
        assert self._frozen_at_ns is not None, "not frozen"
        with self._alive():
            used_ns = self._box.cpu_ns() - self._frozen_at_ns
            if used_ns:
                self._frozen_at_ns = self._box.freeze()
        return used_ns

    def resume(self) -> None:
        """Let the worker go on."""
        self._frozen_at_ns = None
        with self._alive():
            self._box.resume()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """A box that no longer obeys has ended, or something in it keeps undoing what the judge does."""
        try:
            yield
        except SandboxError as error:
            if self._box.wait(timeout_s=2) is not None:
                raise self._died() from None
            raise Rejection("cheated", f"The submission's processes could not be stopped between two windows: {error}") from None

    def _died(self) -> Rejection:
        status = self._box.wait(timeout_s=5)
        if status is None:
            self._box.kill()
            return Rejection("crashed", "The worker closed its socket and went on running")
        how = f"was ended by signal {status - 128}" if status > 128 else f"exited with status {status}"
        return Rejection("crashed", f"The process running solution.py {how}{self._said()}")

    def _said(self) -> str:
        time.sleep(0.05)  # the line is in the pipe by now; give the reading thread its turn
        line = self.stderr.last_line()
        return f"; it said: {line}" if line else ""


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
    """A worker in a box of its own, with the submission and nothing else to read. Its logs go to the folder `logs`.

    `wrapper` is the beginning of a command line that runs the worker inside a profiler.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = {
        INSIDE["worker"]: Path(main.__file__).read_bytes(),
        INSIDE["kit"]: Path(str(kit("benchmark").__file__)).read_bytes(),
        INSIDE["vmm"]: (Path(__file__).with_name("worker") / "vmm.py").read_bytes(),
        INSIDE["solution"]: submission.source,
    }
    inside = (INSIDE["worker"], str(theirs.fileno()), INSIDE["solution"], INSIDE["kit"], INSIDE["vmm"])
    command = (*wrapper, "python", "-I", "-B", *inside)
    limits = limits_for("worker")
    box = SandboxSpec("worker", command, files=files, env=env, pass_fds=(theirs.fileno(),), cpus=cpus, gpu=gpu, limits=limits)
    with ours, theirs, sandbox.run(box) as running:
        theirs.close()
        link = Worker(running, ours, total_limit_s)
        try:
            yield link
        finally:
            running.kill()
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                number = len(list(logs.glob("*.stderr"))) + 1  # in the order of their ends
                (logs / f"worker-{number}.stdout").write_bytes(link.stdout.text())
                (logs / f"worker-{number}.stderr").write_bytes(link.stderr.text())
