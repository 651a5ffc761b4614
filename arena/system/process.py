"""Start processes: an argument list, a time limit in seconds, and no process of the group left behind."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, Popen

MIB = 1 << 20
DRAIN_S = 1.0


@dataclass(frozen=True)
class Finished:
    """A process that has ended."""

    returncode: int  # exit status, or -n when signal n ended it (-9 when the limit did)
    stdout: bytes  # the first `cap_bytes` of it
    stderr: bytes
    seconds: float
    timed_out: bool


def readable_fd(data: bytes) -> int:
    """A descriptor (close-on-exec) from which a process can read `data` once, without a file on disk."""
    fd = os.memfd_create("arena", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as stream:
        stream.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def start(
    argv: Sequence[str], *, stdin: int = DEVNULL, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Popen[bytes]:
    """Start `argv` in a new session with its output on two pipes. The caller ends it. OSError when it cannot start."""
    return Popen(list(argv), stdin=stdin, stdout=PIPE, stderr=PIPE, env=env, pass_fds=tuple(pass_fds), start_new_session=True)


def run(
    argv: Sequence[str],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    pass_fds: Sequence[int] = (),
    cap_bytes: int = 8 * MIB,
) -> Finished:
    """Run `argv` to its end or to `limit_s`, then kill its whole process group. `env=None` passes our own environment on.

    Each output stream is kept up to `cap_bytes` and read to its end: a flood neither fills memory nor blocks the process.
    OSError when it cannot be started.
    """
    began = time.monotonic()
    source = readable_fd(stdin)
    try:
        process = start(argv, stdin=source, env=env, pass_fds=pass_fds)
    finally:
        os.close(source)
    assert process.stdout is not None and process.stderr is not None
    out, err = bytearray(), bytearray()
    pipes = {process.stdout.fileno(): out, process.stderr.fileno(): err}
    exited = os.pidfd_open(process.pid)
    try:
        ended = _pump(pipes, cap_bytes, began + limit_s, exited)
    finally:
        os.close(exited)
        # Not reaped yet, so the group's number still belongs to this group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # The group's last output is still in the pipes. A process that left the group may hold them open: hence the limit.
    _pump(pipes, cap_bytes, time.monotonic() + DRAIN_S)
    process.stdout.close()
    process.stderr.close()
    return Finished(process.returncode, bytes(out), bytes(err), time.monotonic() - began, not ended)


def _pump(pipes: dict[int, bytearray], cap_bytes: int, deadline: float, exited: int | None = None) -> bool:
    """Read `pipes` until the process of `exited` (a pidfd) ends, or without one to their end; False at the deadline."""
    poll = select.poll()
    for fd in (*pipes, *(() if exited is None else (exited,))):
        poll.register(fd, select.POLLIN)
    while exited is not None or pipes:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        for fd, _ in poll.poll(left_s * 1e3):
            if fd == exited:
                return True
            chunk = os.read(fd, MIB)
            kept = pipes[fd]
            kept += chunk[: cap_bytes - len(kept)]
            if not chunk:
                poll.unregister(fd)
                del pipes[fd]
    return True
