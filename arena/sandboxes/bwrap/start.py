"""Starting a box: from bwrap's arguments to a process 1 that has reported."""

from __future__ import annotations

import contextlib
import marshal
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec
from arena.sandboxes.limits import counts_by_namespace, fixed, rlimits
from arena.sandboxes.profile import Argument, process_1
from arena.sandboxes.programs.launch import STAGING
from arena.sandboxes.python_env import Runtime
from arena.sandboxes.running import PROOF_S, START_LIMIT_S, Live, adopt, hail
from arena.sandboxes.watchdog import family
from arena.system import process

LAUNCH = Path(__file__).parents[1] / "programs" / "launch.py"


def start(
    box: SandboxSpec,
    words: tuple[Argument, ...],
    runtime: Runtime,
    uid: int | None,
    *,
    groups: Sequence[str] = (),
    workspace: int | None = None,
    in_force: Mapping[str, str],
) -> Live:
    """Start bwrap with these arguments, as user `uid` when we are root. The workspace must be that user's already.

    `groups` are the files by which it enters its control groups, `workspace` is the descriptor of a mount that one of the
    arguments lies in, and `in_force` says what these two limit.
    """
    found = program()
    adopt()
    with ExitStack() as stack:
        options, sources, handed = _rendered(words, staged=uid is not None)
        handed.append(process.content(b"".join(os.fsencode(option) + b"\0" for option in options)))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        stack.callback(theirs.close)
        order = {
            "bwrap": found,
            "argv": ["bwrap", "--args", str(handed[-1]), "--", *process_1(box, runtime, theirs.fileno())],
            "env": {"PATH": "/usr/bin:/bin"},  # nothing of arena's: bwrap's environment shows inside until init.py runs
            "groups": list(groups),
            "limits": rlimits(box, uid),
            "cpus": sorted(box.cpus or ()),
            "uid": uid,
            "sources": sources,
            "workspace": workspace,
        }
        handed.append(process.content(marshal.dumps(order)))
        handed.append(process.content(box.stdin) if box.stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for fd in handed:
            stack.callback(os.close, fd)
        try:
            bwrap = process.start(
                [sys.executable, "-I", "-S", str(LAUNCH), str(handed[-2])],
                stdin=handed[-1],
                # Its own loader may need the path; nothing else of our environment goes on.
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                pass_fds=(*handed[:-1], theirs.fileno(), *box.pass_fds, *(() if workspace is None else (workspace,))),
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {sys.executable}: {error.strerror}") from None
    limits = _in_force(box, uid, in_force)
    # bwrap is in the box's group, but not in its namespace.
    processes = box.limits.processes - ("processes" in in_force)
    return _taken_over(bwrap, ours, limits, processes if counts_by_namespace(os.uname().release) else None)


def _taken_over(bwrap: subprocess.Popen[bytes], control: socket.socket, limits: Mapping[str, str], processes: int | None) -> Live:
    """The box, once its process 1 has reported; SandboxError with bwrap's own words when it ended instead."""
    try:
        init = hail(control, START_LIMIT_S, processes)
        if init is not None:
            return Live(bwrap, init, control, limits)
        why = "the sandbox did not start"
    except TimeoutError:
        why = f"the sandbox did not start within {START_LIMIT_S:.0f} s"
    except BaseException:
        _abandon(bwrap, control)
        raise
    raise SandboxError(f"{why}: {_abandon(bwrap, control) or 'bwrap gave no reason'}")


def _abandon(bwrap: subprocess.Popen[bytes], control: socket.socket) -> str:
    """End a box that never reported; what it said on stderr. With bwrap ends its child, which has no children yet."""
    orphans = family(bwrap.pid) - {bwrap.pid}
    bwrap.kill()
    control.settimeout(PROOF_S)
    with control:
        try:
            while control.recv(16):  # to its end: then nobody holds the other side any more
                continue
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise SandboxError(f"bwrap was killed while starting, but its child is still there after {PROOF_S:.0f} s") from None
    said = bwrap.communicate()[1]
    for orphan in orphans:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(orphan, 0)
    return said.decode(errors="replace").strip()


def _rendered(words: tuple[Argument, ...], staged: bool) -> tuple[list[str], list[str], list[int]]:
    """Text for bwrap, the sources and the descriptors: bytes become descriptors, host paths names below STAGING if staged."""
    options: list[str] = []
    sources: list[str] = []
    descriptors: list[int] = []
    for word in words:
        if isinstance(word, bytes):
            descriptors.append(process.content(word))
            options.append(str(descriptors[-1]))
        elif isinstance(word, Path):
            options.append(f"{STAGING}/{len(sources)}" if staged else str(word))
            sources.append(str(word))
        else:
            options.append(word)
    return options, sources, descriptors


def _in_force(box: SandboxSpec, uid: int | None, others: Mapping[str, str]) -> dict[str, str]:
    """`RunningSandbox.limits`."""
    limits = fixed(box, "affinity")
    if uid is not None:
        limits["processes"] = f"{others.get('processes', f'RLIMIT_NPROC {box.limits.processes}')} (own uid {uid})"
    elif "processes" not in others and counts_by_namespace(os.uname().release):
        limits["processes"] = f"RLIMIT_NPROC {box.limits.processes} (own user namespace)"
    return dict(others) | limits


def program() -> str:
    """Path of bwrap."""
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(
            "bwrap is not on PATH; install it: `apt-get install bubblewrap` (also its name with dnf, pacman, apk, zypper)"
        )
    return found
