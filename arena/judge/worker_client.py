"""The judge's end of one worker: its sandbox, its channel, its limits, its logs and its end."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from arena.errors import JudgeError, SandboxError, message_of
from arena.judge import absent_libraries, stub_library
from arena.judge.channel import Channel, Log
from arena.judge.device.memory import Buffer, Gate, Memory
from arena.judge.problem_code import kit
from arena.judge.rejection import SHORT_TEXTS, Rejection, shortage
from arena.judge.worker import main
from arena.sandboxes import RunningSandbox, Sandbox, SandboxSpec
from arena.sandboxes.limits import limits_for
from arena.sandboxes.watchdog import Watchdog
from arena.schema import VendorLibrary
from arena.submission import Submission

START_LIMIT_S = 120.0
"""For importing torch and opening the device, which takes seconds on an idle machine."""
SEND_LIMIT_S = 5.0
"""The socket holds more orders than are ever under way. If one does not fit, the worker does not read them."""
END_LIMIT_S = 5.0
"""For the end of a worker that has closed its channel, which tells how it ended."""
GRACE_S = 5.0
"""How long after a limit the watchdog ends the sandbox. The judge's own thread sees the limit pass unless it is stuck."""
CLOCK_MARGIN = 1.01
"""No window lasts longer than the time since its order. The device's clock may run faster than the judge's, by this at most."""
READ_BYTES = 4096
"""More than a reply, so that a longer message shows. In a pipe's packet mode (O_DIRECT) a read drops the rest of a packet, and no
packet is longer than this."""
LATER_ORDERS = ("map", "shape", "choose", "trim")
"""Orders that wait for the GPU, so that an error of what a call started may show."""
SANDBOX_PATHS = {
    "worker": "/run/arena/worker.py",
    "kit": "/run/arena/benchmark.py",
    "cuda_driver": "/run/arena/cuda_driver.py",
    "cupti": "/run/arena/cupti.py",
    "solution": "/workspace/solution.py",
}


class Uncapturable(Exception):  # noqa: N818  an answer, not an error
    """The solution's calls cannot be captured in a CUDA graph. The worker is damaged and must be replaced."""


@contextmanager
def as_judge_failure() -> Iterator[None]:
    """No code of the submission has run yet, so the machine or arena is at fault."""
    try:
        yield
    except (Rejection, Uncapturable) as failure:
        text = failure.message if isinstance(failure, Rejection) else f"it could not time the judge's own calls{failure}"
        raise JudgeError(f"a worker failed before it loaded the solution: {text}; see `arena doctor`") from None


class Worker:
    """One worker process. It is frozen outside its windows; CPU time it uses meanwhile is proof of tampering.

    Every wait for it has a limit. A watchdog ends the sandbox when the limit has passed and the judge's thread has not returned:
    a process can hold the lock of the pipe while the judge reads (splice), or the device while the judge waits for a copy.
    """

    def __init__(self, running: RunningSandbox, channel: Channel, total_limit_s: float) -> None:
        self._sandbox, self._channel, self._sequence = running, channel, 0
        self._cpu_at_freeze_ns: int | None = None
        self._total_limit_s, self._deadline_s = total_limit_s, math.inf
        self._aside_s: float | None = None  # since when it waits its turn
        self.buffers: tuple[Buffer, Buffer] | None = None
        """Its inputs and outputs, mapped on both sides."""
        self.gate: Gate | None = None
        self._sent_s = time.monotonic()
        self._poll = select.poll()
        self._poll.register(channel.replies, select.POLLIN)
        self._poll.register(running.hangup_fd, 0)
        self._due = (math.inf, "")
        self._passed: tuple[float, str] | None = None
        self._watchdog = Watchdog(running.begin_kill, [self._overdue])
        self.stdout, self.stderr = Log(running.stdout), Log(running.stderr)

    @property
    def loaded(self) -> bool:
        """Whether code of the submission may have run."""
        return self._deadline_s < math.inf

    def wait_until_ready(self, memory: Memory) -> None:
        """Wait until the worker has imported its modules and opened the device. It runs only the judge's own program so far."""
        self.gate = memory.gate()
        with as_judge_failure():
            self.order("open", fds=[self.gate.fd] if self.gate else [], limit_s=START_LIMIT_S, memory=memory.kind)

    @property
    def overdue(self) -> bool:
        """Whether the worker has had all of its time, or was ended by the watchdog."""
        return time.monotonic() >= self._deadline_s or bool(self._watchdog.finding)

    def load(self, limit_s: float) -> None:
        """Have the worker import the submission. From the first time on its time counts against its total limit."""
        if not self.loaded:
            self._deadline_s = time.monotonic() + self._total_limit_s
            self._set_due(self._deadline_s, self._total_text())
        self.resume()
        self.order("load", limit_s=limit_s)

    def order(self, op: str, *, limit_s: float, fds: list[int] | None = None, **fields: object) -> float:
        """Send an order and wait for its reply; return the seconds by the device's clock. Rejection when no good reply comes."""
        self.reject_stray_packets()
        self.send(op, fds=fds, **fields)
        return self.reply(op, limit_s)

    def send(self, op: str, *, fds: list[int] | None = None, **fields: object) -> None:
        """Send an order. The worker must be running or about to be resumed."""
        self._sequence += 1
        message = json.dumps({"op": op, "seq": self._sequence, **fields}).encode()
        self._channel.orders.settimeout(SEND_LIMIT_S)
        self._sent_s = time.monotonic()
        try:
            socket.send_fds(self._channel.orders, [message], fds or [])
        except TimeoutError:
            raise Rejection("cheated", "The worker answered the judge's orders without reading them from the socket") from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None
        except OSError as error:  # the submission's processes may use up what the kernel allows one user to have under way
            raise Rejection("crashed", f"No order could be sent to the process running solution.py: {error.strerror}") from None

    def reply(self, op: str, limit_s: float) -> float:
        """Wait for the reply to the last order: exactly one, in one piece. A write of a reply to a pipe is atomic."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise Rejection("timed_out", self._total_text())
        what = "Importing solution.py" if op == "load" else "The call"
        text = self._total_text() if left_s < limit_s else f"{what} took longer than {limit_s:.4g} s"
        limit_s = min(limit_s, left_s)
        self._set_due(time.monotonic() + limit_s + GRACE_S, text)
        message = self._next_message(limit_s)
        if op != "run":  # Its outputs are copied before the next freeze or order, and that, too, waits for the device.
            self._set_due(self._deadline_s, self._total_text())
        if message is None or self._watchdog.finding:
            raise Rejection("timed_out", self._watchdog.finding or text)
        if not message:
            raise self._died()
        if len(message) != main.REPLY.size:
            raise Rejection("cheated", "The worker sent a message of the wrong size to the judge")
        magic, sequence, status, device_s = main.REPLY.unpack(message)
        if magic != main.MAGIC or sequence != self._sequence:
            raise Rejection("cheated", "The worker sent a reply to no order to the judge")
        if status != main.DONE:
            raise self._failed(op, status)
        if not 0 <= device_s <= CLOCK_MARGIN * (time.monotonic() - self._sent_s):
            raise Rejection("cheated", f"The worker reported an impossible {device_s} s for a window")
        return float(device_s)

    def _next_message(self, limit_s: float) -> bytes | None:
        """What the worker has sent; empty when it has ended or closed its end, None when the limit passed first."""
        end_s = time.monotonic() + limit_s
        while True:
            events = dict(self._poll.poll(max(0.0, end_s - time.monotonic()) * 1e3))
            if events:
                try:
                    return os.read(self._channel.replies, READ_BYTES)
                except BlockingIOError:  # nothing is there, or a process of the sandbox took it
                    if self._sandbox.hangup_fd in events:
                        return b""
                except OSError as error:  # pages of a file that is no longer there, spliced into the pipe
                    raise Rejection("cheated", f"The worker sent what cannot be read to the judge: {error.strerror}") from None
            if time.monotonic() >= end_s:
                return None

    def _failed(self, op: str, status: int) -> Exception:
        """The exception for a status other than DONE, given this order."""
        stderr = self._stderr_note()
        if status == main.UNCAPTURABLE and op == "capture":
            return Uncapturable(stderr)
        if status == main.UNUSABLE and op == "load":
            return Rejection("crashed", f"solution.py could not be loaded{stderr}")
        if status == main.RAISED:
            own = not self.loaded or op == "start_profiler"  # nothing of the submission was called
            what = f"The judge's order {op!r} failed" if own else "solution() raised an exception"
            if not own and op in ("profile", "count"):
                what = "The call of solution() failed, or the profiler"
            if not own and op in LATER_ORDERS:
                what = "What solution() started failed, or left too little memory, after it had returned"
            return Rejection("crashed", f"{what}{stderr}")
        if 0 < status < main.RAISED:
            return Rejection("incorrect", f"solution(*inputs, *outputs) must write its outputs in place{stderr}")
        return Rejection("cheated", f"The worker answered the order {op!r} with status {status}, which that order never has")

    def close_buffers(self) -> None:
        """Release the judge's mapping of its buffers."""
        buffers, self.buffers = self.buffers or (), None
        for buffer in buffers:
            buffer.close()

    def finish(self, limit_s: float) -> bytes:
        """Close the socket, let the process end by itself, and return its stdout: a profiler around it reports at the end.

        Rejection where it does not end within the limit, is killed, or more was printed than is kept: the report may then be
        anyone's.
        """
        self._channel.orders.close()
        status = self._status(limit_s)
        if status is None or status > 128:
            how = f"did not end in {limit_s:.4g} s" if status is None else f"was ended by signal {status - 128}"
            raise Rejection("crashed", f"The process running solution.py {how} when it was done")
        text = self.stdout.text()
        if self.stdout.lost_bytes:
            raise Rejection("crashed", "The process running solution.py printed more text than is kept")
        return text

    def reject_stray_packets(self) -> None:
        """Reject a worker that has sent a message without an order."""
        if message := self._next_message(0.0):
            raise Rejection("cheated", f"The worker sent {len(message)} bytes to the judge between two orders")
        if message is not None:
            raise self._died()

    @property
    def frozen(self) -> bool:
        """Whether its processes are stopped."""
        return self._cpu_at_freeze_ns is not None

    def freeze(self) -> None:
        """Stop every process in the worker's sandbox."""
        self._set_due(self._deadline_s, self._total_text())
        if self._cpu_at_freeze_ns is None:
            with self._alive():
                self._cpu_at_freeze_ns = self._sandbox.freeze()

    def set_aside(self) -> None:
        """Stop it until its next turn. What others take meanwhile does not count against its total limit."""
        self.freeze()
        self._aside_s = time.monotonic()
        self._set_due(math.inf, "")

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
        if self._aside_s is not None:
            self._deadline_s += time.monotonic() - self._aside_s
            self._aside_s = None
            self._set_due(self._deadline_s, self._total_text())
        self._cpu_at_freeze_ns = None
        with self._alive():
            self._sandbox.resume()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """A sandbox that fails to freeze or resume has ended, or a process in it keeps undoing what the judge does."""
        try:
            yield
        except SandboxError as error:
            if self._status(2.0) is not None or self._hung_up() or self._watchdog.finding:
                raise self._died() from None
            raise Rejection("cheated", f"The submission's processes could not be stopped between two windows: {error}") from None

    def _died(self) -> Rejection:
        """The verdict when the process has ended, or has closed its end of the channel."""
        status = self._status(END_LIMIT_S)
        if self._watchdog.finding:
            return Rejection("timed_out", self._watchdog.finding)
        if status is None and not self._hung_up():
            return Rejection("crashed", "The process running solution.py closed its channel to the judge and continued to run")
        if status == stub_library.STATUS:
            text = "The process running solution.py ended as a call to an excluded library ends it"
            return Rejection("forbidden", f"{text}{self._stderr_note()}")
        how = "ended" if status is None else f"exited with status {status}"
        if status is not None and status > 128:
            how = f"was ended by signal {status - 128}"
        return Rejection("crashed", f"The process running solution.py {how}{self._stderr_note()}")

    def _status(self, limit_s: float) -> int | None:
        """The exit status of a sandbox that is empty within the limit, else None."""
        with suppress(SandboxError):  # empty, but what started it does not end: the end of its block reports that
            return self._sandbox.wait(timeout_s=limit_s)
        return None

    def _hung_up(self) -> bool:
        """Whether the command has ended, be its sandbox empty or not."""
        return self._sandbox.hangup_fd in dict(self._poll.poll(0))

    def _set_due(self, at_s: float, text: str) -> None:
        """From when on the watchdog ends the sandbox, and the verdict's message then."""
        self._due = (at_s, text)

    def _overdue(self) -> str:
        """The message of a limit that has passed; empty while none has. Called by the watchdog's thread.

        A limit counts when it is found passed twice: after a stop of arena (Ctrl-Z) the judge's thread gets its turn in between.
        """
        due = self._due
        before, self._passed = self._passed, due if time.monotonic() > due[0] else None
        return due[1] if self._passed and self._passed is before else ""

    def _total_text(self) -> str:
        return f"One worker took longer than {self._total_limit_s:.4g} s for its build, checks and timing together"

    @contextmanager
    def charging_shortages(self) -> Iterator[None]:
        """What the submission can take from the judge, it is charged with: memory, processes, the system's file table."""
        try:
            yield
        except (MemoryError, OSError, RuntimeError) as error:
            if charge := self.charge(error):
                raise charge from error
            raise

    def charge(self, error: MemoryError | OSError | RuntimeError) -> Rejection | None:
        """The verdict where the judge met a shortage with the submission loaded here, else None."""
        if not self.loaded or not (what := shortage(error)):
            return None
        return Rejection("crashed", f"{what} ran out for the judge with the solution loaded ({message_of(error)}): use less")

    def begin_kill(self) -> None:
        """Kill its processes without waiting for their end. What a thread has this worker do fails soon."""
        self._sandbox.begin_kill()

    def exceeded(self) -> tuple[str, ...]:
        """The limits that its sandbox has reached, in words, once it has ended."""
        return self._sandbox.exceeded

    def stop_watchdog(self) -> None:
        """End the watchdog, before the sandbox's descriptors close."""
        self._watchdog.stop()

    def _stderr_note(self) -> str:
        time.sleep(0.05)  # the line is in the pipe by now; give the reading thread its turn
        text = self.stderr.last_error(SHORT_TEXTS["Memory"])
        return f"; on stderr: {text}" if text else ""


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
    absent: tuple[VendorLibrary, ...] = (),
    packages: tuple[str, ...] = (),
    wrapper: tuple[str, ...] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Worker]:
    """A worker in a sandbox of its own, with the submission and nothing else to read. Its logs go to the folder `logs`.

    On a GPU the libraries `absent` are not there. The distributions `packages` may be imported, too. `wrapper` is the start of
    a command line that runs the worker inside a profiler. `note` receives what went wrong besides the verdict: cleaning up never
    replaces an exception that leaves the block.
    """
    channel = Channel()
    worker: Worker | None = None
    under_way: BaseException | None = None
    empty = False
    try:
        with sandbox.run(_spec(submission, wrapper, channel, cpus, gpu, env, absent, packages)) as running:
            channel.release_worker_fds()
            worker = Worker(running, channel, total_limit_s)
            try:
                with worker.charging_shortages():
                    yield worker
            except BaseException as error:
                under_way = error
                raise
            finally:
                worker.stop_watchdog()
                try:
                    running.kill()
                    empty = True
                finally:
                    if empty:
                        _release(worker, note)
                    elif worker.gate is not None:
                        worker.gate.passed()
                    _keep_logs(worker, logs, note)
    except SandboxError as trouble:
        if worker is None or trouble is under_way:
            raise
        if under_way is None and (empty or not worker.loaded):
            raise
        if under_way is None:
            raise Rejection("timed_out", f"The processes of solution.py took too long to die: {trouble}") from None
        note(str(trouble))
    finally:
        channel.close(lock_held=worker is not None and not empty)
        for limit in worker.exceeded() if worker else ():
            note(f"a worker's sandbox: {limit}")
    if under_way is not None:
        raise under_way


def _spec(
    submission: Submission,
    wrapper: tuple[str, ...],
    channel: Channel,
    cpus: frozenset[int] | None,
    gpu: int | None,
    env: Mapping[str, str],
    absent: tuple[VendorLibrary, ...],
    packages: tuple[str, ...],
) -> SandboxSpec:
    """The worker's sandbox. It has the worker's ends of the channel under their numbers here, also inside a profiler."""
    files = {
        SANDBOX_PATHS["worker"]: Path(main.__file__).read_bytes(),
        SANDBOX_PATHS["kit"]: Path(str(kit("benchmark").__file__)).read_bytes(),
        **{SANDBOX_PATHS[name]: Path(main.__file__).with_name(f"{name}.py").read_bytes() for name in ("cuda_driver", "cupti")},
        SANDBOX_PATHS["solution"]: submission.source,
    }
    program, *rest = (SANDBOX_PATHS[name] for name in ("worker", "solution", "kit", "cuda_driver", "cupti"))
    fds, limits = channel.worker_fds, limits_for("worker")
    command = (*wrapper, "python", "-I", "-B", program, *map(str, fds), *rest)
    spec = SandboxSpec(
        "worker", command, files=files, packages=packages, env=env, pass_fds=fds, cpus=cpus, gpu=gpu, limits=limits
    )
    return absent_libraries.without(spec, absent if gpu is not None else ())


def _release(worker: Worker, note: Callable[[str], None]) -> None:
    """Free the judge's stream and buffers of a dead worker. A live one could hold the stream by writing into the gate."""
    try:
        if worker.gate is not None:
            worker.gate.release()
            worker.gate.close()
        worker.close_buffers()
    except RuntimeError as error:  # the driver's: it must not replace the verdict
        note(f"the buffers of a worker could not be released: {error}")


def _keep_logs(worker: Worker, logs: Path | None, note: Callable[[str], None]) -> None:
    """Write the worker's streams into the folder `logs`. A full disk is noted: it must not replace a verdict."""
    if logs is None:
        return
    try:
        logs.mkdir(parents=True, exist_ok=True)
        number = len(list(logs.glob("*.stderr"))) + 1  # in the order of their ends
        (logs / f"worker-{number}.stdout").write_bytes(worker.stdout.text())
        (logs / f"worker-{number}.stderr").write_bytes(worker.stderr.text())
    except OSError as error:
        note(f"a worker's logs could not be written to {logs}: {error.strerror}")
