"""A started sandbox: `RunningSandbox` over a pidfd of its process 1 and a socket to it."""

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
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol

from arena.errors import SandboxError
from arena.sandboxes import LostFiles
from arena.sandboxes.programs.init import REPLY
from arena.sandboxes.programs.launch import prctl
from arena.sandboxes.watchdog import process_tree
from arena.system import tempdirs

if TYPE_CHECKING:
    from arena.sandboxes.shared_workspace import Another

CREDENTIALS = struct.Struct("3i")
PR_SET_CHILD_SUBREAPER = 36
PROOF_S = 60.0
"""How long arena waits for the end of a killed sandbox. Killing takes milliseconds. But 2000 processes that fork while others use
the machine took 20 s to die, and a sandbox can make it longer: the kernel frees page tables when their process dies."""
DYING_S = 900.0
"""How long an agent's workspace, and then its score, waits for the end of a sandbox that took longer."""
START_LIMIT_S = 30.0
REPLY_LIMIT_S = 5.0  # longer than the sandbox init tries to freeze


class LaunchedProcess(Protocol):
    """The process that arena started for a sandbox and that ends with it: bwrap, or a container."""

    pid: int
    returncode: int | Any  # None until `wait` has returned

    @property
    def stdout(self) -> IO[bytes] | None:
        """Read end of the command's standard output."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """And of its standard error."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, -n for signal n."""


class SandboxHandle:
    """One running sandbox. Its methods are for one thread, except `kill`, `begin_kill`, `terminate` and `wait`.

    The kernel lets process 1 of a pid namespace end only after every other process of it has been killed and reaped. So a
    readable pidfd of process 1 is the proof that the sandbox is empty, whatever the processes did (setsid, double fork, ignored
    signals), and the kernel lets no fork outrun it: a namespace whose process 1 is dying takes no new process. bwrap, our own
    child, reaps process 1; when something killed bwrap, we do (`become_subreaper`).
    """

    def __init__(self, process: LaunchedProcess, init: int, control: socket.socket, limits: Mapping[str, str]) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.stdout: BinaryIO = process.stdout  # type: ignore[assignment]  # typeshed has IO[bytes]
        self.stderr: BinaryIO = process.stderr  # type: ignore[assignment]
        self.limits = limits
        self.workspace: Path | None = None
        self.exceeded: tuple[str, ...] = ()
        self.lost = LostFiles()
        self.uid: int | None = None  # the throw-away user of a sandbox that was started by root
        self.another: Another | None = None  # one more mount of its workspace, if that is shared
        self.empty = False  # whether the kernel has confirmed that nothing runs in it any more
        self.before_kill: Callable[[int], None] = lambda pid: None  # called with the pid of process 1 just before it is killed
        self.proof_s = PROOF_S  # how long `kill` waits
        self._process = process
        self._init_pidfd = init
        self._control = control
        self._reap_lock = threading.Lock()
        self._reaped = False
        self._unproven = False  # whether a wait of `proof_s` was not enough

    @property
    def pid(self) -> int:
        """Pid of bwrap, or of the container's process 1: every process in the sandbox descends from it."""
        return self._process.pid

    @property
    def hangup_fd(self) -> int:
        """The socket to process 1, the only process that holds its other end."""
        return self._control.fileno()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The command's exit status (128 + n for signal n), or None when `timeout_s` passed first. 137 after `kill`."""
        if self._process.returncode is None:
            if not has_ended(self._init_pidfd, timeout_s):
                return None
            self.empty = True
            try:
                self._process.wait(PROOF_S)
            except subprocess.TimeoutExpired:
                raise SandboxError(f"the sandbox is empty, but bwrap (process {self.pid}) has not ended; kill it") from None
            self._reap()
        code = int(self._process.returncode)
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """Send SIGTERM to the command's process group through process 1. Sent to bwrap, it would end everything at once."""
        self._signal(signal.SIGTERM)

    def begin_kill(self) -> None:
        """Kill process 1, and with it every other, without waiting for their end."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):  # ended meanwhile; not permitted to a plain user
                pid = pid_of(self._init_pidfd)
                self.before_kill(pid)
                os.setpriority(os.PRIO_PROCESS, pid, -20)  # without control groups this halves the wait among 2000 processes
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill everything inside; return when the kernel confirms that the sandbox is empty. SandboxError after `proof_s`."""
        self.begin_kill()
        # The end of a sandbox kills it more than once: it waits only once.
        if self.wait(0.0 if self._unproven else self.proof_s) is None:
            self._unproven = True
            raise SandboxError(
                f"the sandbox of process {self.pid} is not empty {self.proof_s:.4g} s after its kill: a process in it is still "
                "giving back its memory, or hangs in the kernel (in a driver?). Arena goes on reaping it and starts no other "
                "sandbox meanwhile. Where it stays, look for states R and D in `ps ax`, and restart the machine"
            )

    def freeze(self) -> int:
        """Stop every process inside but process 1; their CPU time in ns, to be compared with `cpu_ns` before `resume`."""
        return self._request(b"f")

    def resume(self) -> None:
        """Continue the stopped processes."""
        self._request(b"r")

    def cpu_ns(self) -> int:
        """CPU time in ns of every process inside but process 1, without the ended ones.

        While frozen: the value that `freeze` returned, plus every change since. A process whose clock grew, that appeared,
        vanished or runs makes the two differ, and no other process can cancel that out.
        """
        return self._request(b"c")

    def close(self) -> None:
        """Kill what is left, prove that the sandbox is empty, close all descriptors. SandboxError when it cannot be proven."""
        if self._control.fileno() < 0:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._control.close)
            stack.callback(self.stderr.close)
            stack.callback(self.stdout.close)
            try:
                self.kill()
            except BaseException:
                reaper = threading.Thread(target=self._reap_late, name=f"the sandbox of process {self.pid}", daemon=True)
                _reapers[reaper] = self._roots()
                reaper.start()
                raise
            os.close(self._init_pidfd)

    def _roots(self) -> set[int]:
        """Pids from which every process inside descends."""
        with contextlib.suppress(ProcessLookupError):
            return {self.pid, pid_of(self._init_pidfd)}  # process 1 is arena's own child where something has killed bwrap
        return {self.pid}

    def _reap_late(self) -> None:
        """Wait for the end of a sandbox that nothing else waits for any more."""
        with contextlib.suppress(SandboxError):  # empty, but bwrap or the engine does not say how it ended
            self.wait()
        os.close(self._init_pidfd)

    def _reap(self) -> None:
        """Reap process 1 if bwrap has not. Once: later the descriptor may be closed."""
        with self._reap_lock:
            if not self._reaped:
                self._reaped = True
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PIDFD, self._init_pidfd, os.WEXITED | os.WNOHANG)

    def _signal(self, number: signal.Signals) -> None:
        # Returns when the sandbox is empty already.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_pidfd, number)

    def _request(self, order: bytes) -> int:
        try:
            self._control.send(order)
            answer = self._control.recv(REPLY.size)
        except TimeoutError:
            raise SandboxError(f"process 1 of the sandbox did not answer within {REPLY_LIMIT_S:.0f} s") from None
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            raise SandboxError("the sandbox has ended: no process is left to freeze, resume or measure")
        failed, value = REPLY.unpack(answer)
        if failed:
            raise SandboxError(
                "some process in the sandbox could not be stopped: it hangs in the kernel, or another continues it all the time"
            )
        return int(value)


_reapers: dict[threading.Thread, set[int]] = {}
"""One for each sandbox that this arena left before it was empty, with the pids of its `_roots`; each ends with its sandbox."""


def await_dying(limit_s: float = PROOF_S) -> None:
    """Wait until every sandbox that was left dying is empty: nothing is measured beside one. SandboxError after the limit."""
    end_s = time.monotonic() + limit_s
    for reaper in list(_reapers):
        reaper.join(max(0.0, end_s - time.monotonic()))
        if reaper.is_alive():
            raise SandboxError(f"{reaper.name} was killed and is still not empty: wait for its end, and start again")
        _reapers.pop(reaper, None)


def forget_dying() -> list[str]:
    """Start sandboxes beside those that are still dying; the names of their processes (`tempdirs.owner`)."""
    pids = {pid for roots in _reapers.values() for root in roots for pid in process_tree(root)}
    _reapers.clear()
    names = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(tempdirs.owner(pid))
    return sorted(names)


@functools.cache
def become_subreaper() -> None:
    """Have the kernel give us our children's orphans: a dead process 1 that is not reaped goes on counting for its user."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def pid_of(pidfd: int) -> int:
    """The process id that a pidfd stands for. ProcessLookupError when it has been reaped."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
    if (pid := int(fields.get("Pid", 0))) <= 0:
        raise ProcessLookupError(pidfd)
    return pid


def has_ended(pidfd: int, timeout_s: float | None) -> bool:
    """Whether the process ends within that time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))


def handshake(control: socket.socket, timeout_s: float, processes: int | None = None) -> int | None:
    """Wait until process 1 reports, then let it start the command; its pidfd, or None when it ended first. TimeoutError.

    `processes` limits the processes of the sandbox's user namespace; process 1 sets the limit before it starts the command.

    The kernel sends the pid with the message (SO_PASSCRED), and process 1 waits for our answer. So it cannot have ended, and
    its number cannot be another process's. `--info-fd` gives a number that may have been used again.
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
    control.settimeout(REPLY_LIMIT_S)
    try:
        control.send(b"go" if processes is None else b"go %d" % processes)
    except (BrokenPipeError, ConnectionResetError):
        os.close(init)
        return None
    return init
