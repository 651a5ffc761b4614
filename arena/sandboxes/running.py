"""A started box: what `RunningSandbox` promises, over a descriptor of its process 1 and a socket to it."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from arena.errors import SandboxError
from arena.sandboxes import LostFiles
from arena.sandboxes.programs.init import REPLY
from arena.sandboxes.programs.launch import prctl

CREDENTIALS = struct.Struct("3i")
PR_SET_CHILD_SUBREAPER = 36
PROOF_S = 60.0
"""Killing takes milliseconds, but 2000 processes that fork while the machine is busy with others took 20 s to die."""
START_LIMIT_S = 30.0
ANSWER_S = 5.0
"""More than init.py takes before it gives up on freezing."""


class Started(Protocol):
    """What arena started and what ends with the box: bwrap, or a container."""

    pid: int
    returncode: int | Any
    """None until `wait` has returned."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Read end of the command's standard output."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """And of its standard error."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, -n for signal n."""


class Live:
    """One running box. Its methods belong to one thread, but for `kill`, `terminate` and `wait`.

    The kernel lets process 1 of a pid namespace end only after every other process of it has been killed and reaped. So a
    readable pidfd of process 1 is the proof that the box is empty, whatever the processes did (setsid, double fork, ignored
    signals), and the kernel lets no fork outrun it: a namespace whose process 1 is dying takes no new process. Process 1 is
    reaped by bwrap, our own child, or by us when something killed bwrap (`adopt`).
    """

    def __init__(self, bwrap: Started, init: int, control: socket.socket, limits: Mapping[str, str]) -> None:
        assert bwrap.stdout is not None and bwrap.stderr is not None
        self.stdout: BinaryIO = bwrap.stdout  # type: ignore[assignment]  # typeshed has IO[bytes]
        self.stderr: BinaryIO = bwrap.stderr  # type: ignore[assignment]
        self.limits = limits
        self.workspace: Path | None = None
        self.exceeded: tuple[str, ...] = ()
        self.lost = LostFiles()
        self.empty = False
        """Whether the kernel has confirmed that nothing runs in it any more."""
        self.hurry: Callable[[int], None] = lambda pid: None
        """What is to be done with process 1 just before it is killed."""
        self._bwrap = bwrap
        self._init = init
        self._control = control
        self._turn = threading.Lock()
        self._reaped = False

    @property
    def pid(self) -> int:
        """Of bwrap, which everything in the box descends from."""
        return self._bwrap.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The command's exit status (128 + n for signal n), or None when `timeout_s` passed first. 137 after `kill`."""
        if self._bwrap.returncode is None:
            if not ended(self._init, timeout_s):
                return None
            self.empty = True
            try:
                self._bwrap.wait(PROOF_S)
            except subprocess.TimeoutExpired:
                raise SandboxError(f"the box is empty, but bwrap (process {self._bwrap.pid}) has not ended; kill it") from None
            self._reap()
        code = int(self._bwrap.returncode)
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """SIGTERM to the command's process group, passed on by process 1. To bwrap it would end everything without grace."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to process 1, and with it to all; back when the kernel confirms that the box is empty."""
        if self._bwrap.returncode is None:
            with contextlib.suppress(OSError):  # ended meanwhile; a plain user may not
                pid = number_of(self._init)
                self.hurry(pid)
                os.setpriority(os.PRIO_PROCESS, pid, -20)  # where there are no groups: half of the wait among 2000 processes
        self._signal(signal.SIGKILL)
        if self.wait(PROOF_S) is None:
            raise SandboxError(
                f"the box is not empty {PROOF_S:.0f} s after it was killed: a process in it hangs in the kernel (in a driver?). "
                "Look for state D in `ps ax`, trust nothing that was measured meanwhile, and restart the machine if it stays"
            )

    def freeze(self) -> int:
        """Stop every process inside but process 1. CPU time in ns of those that exist: compare it with `cpu_ns` before `thaw`."""
        return self._ask(b"f")

    def thaw(self) -> None:
        """Let them go on."""
        self._ask(b"t")

    def cpu_ns(self) -> int:
        """CPU time in ns of every process inside but process 1. The ended ones are not in it.

        While frozen: what `freeze` returned, plus every change since, so a process that grew, came, vanished or runs makes
        the two differ, and none of it can be made up by another.
        """
        return self._ask(b"c")

    def close(self) -> None:
        """Kill what is left, prove it, give everything back. SandboxError when it cannot be proven."""
        if self._control.fileno() < 0:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._init)
            stack.callback(self._control.close)
            stack.callback(self.stderr.close)
            stack.callback(self.stdout.close)
            self.kill()

    def _reap(self) -> None:
        """Take process 1 if bwrap has not. Once: by the next time the descriptor may have been given back."""
        with self._turn:
            if not self._reaped:
                self._reaped = True
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)

    def _signal(self, number: signal.Signals) -> None:
        # Returns when the box is empty already.
        if self._bwrap.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, number)

    def _ask(self, order: bytes) -> int:
        try:
            self._control.send(order)
            answer = self._control.recv(REPLY.size)
        except TimeoutError:
            raise SandboxError(f"process 1 of the box did not answer within {ANSWER_S:.0f} s") from None
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            raise SandboxError("the box has ended: nothing is left to freeze, thaw or measure")
        failed, value = REPLY.unpack(answer)
        if failed:
            raise SandboxError(
                "some process in the box could not be stopped: it hangs in the kernel, or is continued all the time"
            )
        return int(value)


@functools.cache
def adopt() -> None:
    """Have orphans of our children given to us: where nobody reaps them, a dead process 1 goes on counting for its user."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def number_of(pidfd: int) -> int:
    """The process id that a pidfd stands for. ProcessLookupError when it has been reaped."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
    if (pid := int(fields.get("Pid", 0))) <= 0:
        raise ProcessLookupError(pidfd)
    return pid


def ended(pidfd: int, timeout_s: float | None) -> bool:
    """Whether the process ends within that time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))


def hail(control: socket.socket, timeout_s: float, processes: int | None = None) -> int | None:
    """Wait for process 1 to report; its pidfd, or None when the box ended first. TimeoutError.

    `processes` bounds the box's processes, those of its user namespace: process 1 sets it when told to start the command.

    Its pid comes from the kernel with the message (SO_PASSCRED), and it starts the command only when told to, so it cannot
    have ended and its number cannot be somebody else's. `--info-fd` gives a number that may have been used again.
    """
    control.settimeout(timeout_s)
    try:
        message, ancillary, _, _ = control.recvmsg(16, socket.CMSG_SPACE(CREDENTIALS.size))
        if not message:
            return None
        pid, _, _ = CREDENTIALS.unpack(ancillary[0][2])
        init = os.pidfd_open(pid)
    except (ConnectionResetError, ProcessLookupError):
        return None
    control.settimeout(ANSWER_S)
    try:
        control.send(b"go" if processes is None else b"go %d" % processes)
    except (BrokenPipeError, ConnectionResetError):
        os.close(init)
        return None
    return init
