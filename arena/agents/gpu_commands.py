"""The command `gpu` of a session that shares GPUs: each of its commands runs in a sandbox beside the session's, for one lease.

The session's own sandbox has no GPU. When the command's sandbox is proven empty, no CUDA context is left of it: that is the end
of the lease. A command that is still there at the end of its lease is killed, and its client exits with 124.

The time that a session waits for others is added to its budget, but only while no request to its model is under way, and only
for waits that end in a lease: to ask and to give up gains nothing. At most one budget is added.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from arena.errors import ArenaError, SandboxError
from arena.sandboxes import Limits, RunningSandbox, SandboxSpec, bwrap
from arena.sandboxes.profile import OWN_VARIABLES
from arena.sandboxes.programs import gpu as client
from arena.sandboxes.programs import no_sockets
from arena.sandboxes.running import await_dying

TURN = Path(__file__).with_name("gpu_turn.py")
FOLDER, PORT = "/opt/arena", client.PORT
NO_SOCKETS = f"{FOLDER}/no_sockets"
"""Runs a session's command, and each of its commands on a GPU: none makes a socket in the workspace, by which the other would get
the GPU's open files, and could compute on after its turn."""
PROGRAMS = {f"{FOLDER}/gpu": Path(client.__file__).read_bytes(), NO_SOCKETS: Path(no_sockets.__file__).read_bytes()}
CONNECTIONS = 16
"""Commands of one session at once; they have their turns one after the other."""
ORDER_BYTES = 32 << 20
ORDER_S = 10.0
POLL_S = 0.1
NOTE_S = 10.0
"""Between two notes to a client that waits."""
CHUNK_BYTES = 1 << 16
PENDING_BYTES = 1 << 20
"""What a client has not read yet, before its command has to wait."""
CUT = 124
"""Exit code of a command whose lease was over, as of `timeout`."""
FAILED = client.FAILED
ENDS_S = 30.0
LOGGED = 100
"""Events of a session's commands in its log."""


class Lease(NamedTuple):
    """A turn on a GPU."""

    gpu: int | None
    """The number of its device node; None where there is no GPU."""
    lease_s: float
    over: Callable[[], bool]
    """Whether it has been cut before its time."""


class Turns(Protocol):
    """Where a session gets its turns."""

    def take(self, left: Callable[[], bool], told: Callable[[int], None]) -> Lease | None:
        """Wait for a turn; None once `left()`, called all the time. `told` hears how many are before this one."""

    def give_back(self) -> None:
        """The turn's command has ended, and its sandbox is empty."""


class OwnTurns:
    """Turns of a session that shares its GPU with no other one."""

    def __init__(self, gpu: int | None, lease_s: float) -> None:
        self._lease = Lease(gpu, lease_s, lambda: False)

    def take(self, left: Callable[[], bool], told: Callable[[int], None]) -> Lease | None:
        """At once."""
        return self._lease

    def give_back(self) -> None:
        """Nothing to do: the next command takes the same turn."""


@dataclass
class Use:
    """What a session has had of the GPUs, in seconds."""

    leases: int = 0
    leased_s: float = 0.0
    waited_s: float = 0.0
    """For leases that it got."""
    longest_wait_s: float = 0.0
    long_waits: int = 0
    """Waits of more than `LONG_S`."""
    credit_s: float = 0.0
    """Of them, what was added to its budget."""


LONG_S = 60.0


class Order(NamedTuple):
    """What a client asks for."""

    command: tuple[str, ...]
    stdin: bytes


class GpuCommands:
    """Serves one session's `gpu` commands from a unix socket."""

    def __init__(
        self,
        turns: Turns,
        limits: Limits,
        asking: Callable[[], bool],
        event: Callable[..., None],
        cpus: frozenset[int] | None = None,
        await_empty: Callable[[float], None] = await_dying,
    ) -> None:
        """`asking`: whether a request to the session's model is under way. `event` writes into the run's log. `cpus`: as the
        session's. `await_empty` waits so long until no command is dying; SandboxError when one is.
        """
        self._await_empty = await_empty
        self.use = Use()
        self._turns, self._limits, self._asking, self._event, self._cpus = turns, limits, asking, event, cpus
        self._session: RunningSandbox | None = None
        self._over = threading.Event()
        self._one = threading.Lock()
        """Held by the client whose turn it is: a session has one lease, and one request for it."""
        self._logged = 0
        self._pending_s = 0.0
        """Of the wait that is under way: what it adds to the budget if it ends in a lease."""

    @property
    def credit_s(self) -> float:
        """Seconds to add to the budget, so far."""
        return self.use.credit_s + self._pending_s

    def attach(self, session: RunningSandbox) -> None:
        """From now on commands can be run: beside this sandbox."""
        self._session = session

    def close(self) -> None:
        """Serve nothing more, and kill what runs: when this returns, no command is left."""
        self._over.set()
        with self._one:
            pass

    @contextmanager
    def serving(self, path: Path) -> Iterator[None]:
        """Serve for the length of the block; at its end every command has ended. OSError."""
        with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(CONNECTIONS + 1, "gpu") as threads:
            listener.bind(str(path))
            path.chmod(0o666)
            listener.listen(CONNECTIONS)
            listener.settimeout(POLL_S)
            accepting = threads.submit(self._accept, listener, threads)
            try:
                yield
            finally:
                self.close()
                accepting.result()

    def _accept(self, listener: socket.socket, threads: ThreadPoolExecutor) -> None:
        places = threading.BoundedSemaphore(CONNECTIONS)
        while not self._over.is_set():
            if not places.acquire(timeout=POLL_S):
                continue
            try:
                connection, _ = listener.accept()
            except OSError:  # no client for now, or gone again
                places.release()
                continue
            threads.submit(self._serve, connection).add_done_callback(lambda _: places.release())

    def _serve(self, connection: socket.socket) -> None:
        """One client, to its end."""
        with connection:
            answer = Answers(connection)
            try:
                order = read_order(connection)
            except ValueError as error:
                answer.last(FAILED, str(error))
                return
            except OSError:
                return

            def left() -> bool:
                return self._over.is_set() or answer.gone()

            while not self._one.acquire(timeout=POLL_S):
                if left():
                    return
            lease = None
            try:
                lease = None if left() else self._wait(answer, left)
                code, note = self._turn(order, lease, answer, left) if lease else (FAILED, "")
            except (ArenaError, OSError, ValueError, RecursionError) as error:  # whatever an order does, it ends with an answer
                code, note = FAILED, str(error)
                self._log("gpu_failed", message=note)
            if lease is None or self._ended_turn(0.0):  # before a client that may be slow to read
                self._one.release()
                answer.last(code, note)
                return
            answer.last(code, note)
            while not self._ended_turn(POLL_S) and not self._over.is_set():
                pass
            self._one.release()

    def _turn(self, order: Order, lease: Lease, answer: Answers, left: Callable[[], bool]) -> tuple[int, str]:
        """Run the command under its lease; its exit code, and a note to the client."""
        begun_s = time.monotonic()
        try:
            return self._run(order, lease, answer, left)
        finally:
            self.use.leased_s += time.monotonic() - begun_s

    def _ended_turn(self, limit_s: float) -> bool:
        """Give the turn back, if the command's sandbox is empty within this time.

        While it is dying its context may be on the GPU: the broker leaves the GPU out until then, or until the session's end.
        """
        try:
            self._await_empty(limit_s)
        except SandboxError:
            return False
        self._turns.give_back()
        return True

    def _wait(self, answer: Answers, left: Callable[[], bool]) -> Lease | None:
        began_s = looked_s = time.monotonic()
        noted_s = -NOTE_S

        def look() -> bool:
            nonlocal looked_s
            now_s = time.monotonic()
            if not self._asking():
                self._pending_s += now_s - looked_s
            looked_s = now_s
            return left()

        def told(ahead: int) -> None:
            nonlocal noted_s
            if time.monotonic() - noted_s >= NOTE_S:
                noted_s = time.monotonic()
                before = "the turn is next" if ahead <= 1 else f"{ahead - 1} before this one"
                answer.note(f"waiting for the GPU: {before}")

        lease = None
        try:
            lease = self._turns.take(look, told)
        finally:
            credit_s, self._pending_s = self._pending_s, 0.0
            if lease is not None:
                waited_s = time.monotonic() - began_s
                self.use.credit_s += credit_s
                self.use.leases += 1
                self.use.waited_s += waited_s
                self.use.long_waits += waited_s > LONG_S
                self.use.longest_wait_s = max(self.use.longest_wait_s, waited_s)
        return lease

    def _run(self, order: Order, lease: Lease, answer: Answers, left: Callable[[], bool]) -> tuple[int, str]:
        end_s = time.monotonic() + lease.lease_s
        while self._session is None:  # its first command may come before arena knows that it has started
            if left() or time.monotonic() > end_s:
                return FAILED, "the session is over"
            time.sleep(0.01)
        spec = SandboxSpec(
            kind="agent",
            command=(NO_SOCKETS, *order.command),
            programs={NO_SOCKETS: PROGRAMS[NO_SOCKETS]},
            stdin=order.stdin,
            env={"GPU_TURN": "1"},
            gpu=lease.gpu,
            limits=self._limits,
            cpus=self._cpus,
        )
        with bwrap.run_beside(self._session, spec) as running:
            ended = answer.pump(running, end_s, lambda: left() or lease.over())
            if ended:
                code = running.wait(ENDS_S)
                return (FAILED if code is None else code), ""
            running.kill()
        if left():
            return FAILED, ""
        self._log("gpu_cut", lease_s=lease.lease_s, command=list(order.command[-8:]))
        return CUT, f"killed: a turn on the GPU is {lease.lease_s:g} s at most"

    def _log(self, kind: str, **data: object) -> None:
        """Write into the run's log: an agent can cause any number of such events."""
        self._logged += 1
        if self._logged <= LOGGED:
            self._event(kind, **data)


class Answers:
    """What a client is sent: JSON lines. A client that is gone is sent nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = bytearray()
        connection.setblocking(False)

    def gone(self) -> bool:
        """Whether the client has ended: it sends nothing after its order."""
        try:
            return not self._connection.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def note(self, text: str) -> None:
        """A line for the client's standard error."""
        self._add(note=text)
        self._flush()

    def last(self, code: int, note: str) -> None:
        """The exit code, after all that is pending."""
        if note:
            self._add(note=note)
        self._add(exit=code)
        with suppress(OSError):
            self._connection.settimeout(ORDER_S)
            self._connection.sendall(self._pending)

    def pump(self, running: RunningSandbox, end_s: float, over: Callable[[], bool]) -> bool:
        """Pass the command's output on until both pipes end. False when its time or `over` came first."""
        pipes = {running.stdout: "out", running.stderr: "err"}
        while pipes or self._pending:
            if time.monotonic() >= end_s or over():
                return False
            reading = list(pipes) if len(self._pending) < PENDING_BYTES else []
            ready, _, _ = select.select(reading, [self._connection] if self._pending else [], [], POLL_S)
            for pipe in ready:
                if chunk := os.read(pipe.fileno(), CHUNK_BYTES):
                    self._add(**{pipes[pipe]: base64.b64encode(chunk).decode()})
                else:
                    del pipes[pipe]
            self._flush()
        return True

    def _add(self, **line: object) -> None:
        self._pending += json.dumps(line).encode() + b"\n"

    def _flush(self) -> None:
        with suppress(OSError):  # BlockingIOError: later; another one: gone
            del self._pending[: self._connection.send(self._pending)]


def read_order(connection: socket.socket) -> Order:
    """The client's order. ValueError with what is wrong with it, OSError when the client is gone."""
    whole, end_s = bytearray(), time.monotonic() + ORDER_S
    while not whole.endswith(b"\n"):
        if len(whole) > ORDER_BYTES or not select.select([connection], [], [], max(0.0, end_s - time.monotonic()))[0]:
            raise ValueError("no order came in time, or one that is too long")
        chunk = connection.recv(CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError
        whole += chunk
    given: Any = json.loads(whole)
    try:
        argv, cwd, env = list(given["argv"]), given["cwd"], dict(given["env"])
        stdin = base64.b64decode(given["stdin"])
    except (TypeError, KeyError, ValueError):
        raise ValueError("an order has argv, cwd, env and stdin") from None
    words = [cwd, *argv, *env, *env.values()]
    if not argv or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError("a command, its folder and its variables are text without NUL")
    try:
        os.fsencode("".join(words))
    except UnicodeEncodeError:
        raise ValueError("a command, its folder and its variables are text that the system can hold") from None
    # Set by `env` inside, and not for bwrap or process 1: LD_PRELOAD is the agent's own business.
    own = {name: value for name, value in env.items() if name and "=" not in name and name not in OWN_VARIABLES}
    return Order(("env", "-C", cwd, *(f"{name}={value}" for name, value in own.items()), *argv), stdin)


def share(work: Path, prompt: str, lease_s: float) -> str:
    """Tell the agent of the command, and make the kit's programs use it; the prompt.

    Written over the kit's files and not in them: no score of a problem depends on how its agent reached a GPU.
    """
    for name in ("check.py", "benchmark.py"):
        (work / name).write_text(_with_turn((work / name).read_text()))
    (work / "gpu_turn.py").write_bytes(TURN.read_bytes())
    prompt += _prompted(lease_s)
    (work / "PROMPT.md").write_text(prompt)
    return prompt


def _prompted(lease_s: float) -> str:
    """What PROMPT.md says of the command."""
    return (
        "\nThe GPUs of this machine are shared. `gpu COMMAND...` waits for a turn on one, runs the command there, and ends with "
        f"its exit code; a turn lasts {lease_s:g} s at most. `python check.py` and `python benchmark.py` do so by themselves. "
        "The time that you wait for others is added to yours.\n"
    )


def _with_turn(source: str) -> str:
    """A program of the kit that runs on the GPU in its turn."""
    head = 'if __name__ == "__main__":\n    import gpu_turn  # noqa: F401\n\n'
    before, mark, after = source.partition("import argparse\n")
    if not mark:
        raise SandboxError("the kit's program does not import argparse: it cannot be made to wait for its turn")
    return before + head + mark + after
