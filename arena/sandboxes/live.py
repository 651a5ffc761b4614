"""A started box: what `Running` promises, over a descriptor of its process 1 and a socket to it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping
from typing import BinaryIO

from arena.errors import SandboxError
from arena.sandboxes.init import REPLY

CREDENTIALS = struct.Struct("3i")
PROOF_S = 10.0
ANSWER_S = 5.0
"""More than init.py takes before it gives up on freezing."""


class Live:
    """One running box. Its methods belong to one thread, but for `kill`, `terminate` and `wait`.

    The kernel lets process 1 of a pid namespace end only after every other process of it has been killed and reaped. So a
    readable pidfd of process 1 is the proof that the box is empty, whatever the processes did (setsid, double fork, ignored
    signals). bwrap, which reaps process 1, is our own child and is reaped here: nothing is orphaned, so no subreaper is needed.
    """

    def __init__(self, bwrap: subprocess.Popen[bytes], init: int, control: socket.socket, limits: Mapping[str, str]) -> None:
        assert bwrap.stdout is not None and bwrap.stderr is not None
        self.stdout: BinaryIO = bwrap.stdout  # type: ignore[assignment]  # typeshed has IO[bytes]
        self.stderr: BinaryIO = bwrap.stderr  # type: ignore[assignment]
        self.limits = limits
        self._bwrap = bwrap
        self._init = init
        self._control = control

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The command's exit status (128 + n for signal n), or None when `timeout_s` passed first. 137 after `kill`."""
        if self._bwrap.returncode is None:
            if not ended(self._init, timeout_s):
                return None
            try:
                self._bwrap.wait(PROOF_S)
            except subprocess.TimeoutExpired:
                raise SandboxError(f"the box is empty, but bwrap (process {self._bwrap.pid}) has not ended; kill it") from None
        code = self._bwrap.returncode
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """SIGTERM to the command's process group, passed on by process 1. To bwrap it would end everything without grace."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to process 1, and with it to all; back when the kernel confirms that the box is empty."""
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


def ended(pidfd: int, timeout_s: float | None) -> bool:
    """Whether the process ends within that time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))


def hail(control: socket.socket, timeout_s: float) -> int | None:
    """Wait for process 1 to report; its pidfd, or None when the box ended first. TimeoutError.

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
        control.send(b"go")
    except (BrokenPipeError, ConnectionResetError):
        os.close(init)
        return None
    return init
