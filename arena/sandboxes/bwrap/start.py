"""Start bwrap with its arguments, and wait until the sandbox's process 1 has reported."""

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
from arena.sandboxes.lifecycle import counts_by_namespace, fixed_limits, rlimits
from arena.sandboxes.profile import Argument, init_command
from arena.sandboxes.programs.launch import STAGING
from arena.sandboxes.python_env import PythonEnvironment
from arena.sandboxes.running import PROOF_S, START_LIMIT_S, SandboxHandle, become_subreaper, handshake
from arena.sandboxes.watchdog import process_tree
from arena.system import process

LAUNCH = Path(__file__).parents[1] / "programs" / "launch.py"


def start(
    spec: SandboxSpec,
    arguments: tuple[Argument, ...],
    python: PythonEnvironment,
    uid: int | None,
    *,
    groups: Sequence[str] = (),
    workspace: int | None = None,
    in_force: Mapping[str, str],
) -> SandboxHandle:
    """Start bwrap with these arguments, as user `uid` when we are root. The workspace must be that user's already.

    `groups` are the files by which it enters its control groups, `workspace` is the descriptor of a mount that one of the
    arguments lies in, and `in_force` holds the limits that these two enforce.
    """
    bwrap_path = find_bwrap()
    become_subreaper()
    with ExitStack() as stack:
        options, sources, handed = _render(arguments, staged=uid is not None)
        handed.append(process.readable_fd(b"".join(os.fsencode(option) + b"\0" for option in options)))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        stack.callback(theirs.close)
        order = {
            "bwrap": bwrap_path,
            "argv": ["bwrap", "--args", str(handed[-1]), "--", *init_command(spec, python, theirs.fileno())],
            "env": {"PATH": "/usr/bin:/bin"},  # nothing of arena's: bwrap's environment shows inside until init.py runs
            "groups": list(groups),
            "limits": rlimits(spec, uid),
            "cpus": sorted(spec.cpus or ()),
            "uid": uid,
            "sources": sources,
            "workspace": workspace,
        }
        handed.append(process.readable_fd(marshal.dumps(order)))
        handed.append(process.readable_fd(spec.stdin) if spec.stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for fd in handed:
            stack.callback(os.close, fd)
        try:
            bwrap = process.start(
                [sys.executable, "-I", "-S", str(LAUNCH), str(handed[-2])],
                stdin=handed[-1],
                # Its own loader may need the path; nothing else of our environment goes on.
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                pass_fds=(*handed[:-1], theirs.fileno(), *spec.pass_fds, *(() if workspace is None else (workspace,))),
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {sys.executable}: {error.strerror}") from None
    limits = _in_force(spec, uid, in_force)
    # bwrap is in the sandbox's group, but not in its namespace.
    processes = spec.limits.processes - ("processes" in in_force)
    return _handshake(bwrap, ours, limits, processes if counts_by_namespace(os.uname().release) else None)


def _handshake(
    bwrap: subprocess.Popen[bytes], control: socket.socket, limits: Mapping[str, str], processes: int | None
) -> SandboxHandle:
    """The sandbox, once its process 1 has reported; SandboxError with bwrap's own message when it ended instead."""
    try:
        init = handshake(control, START_LIMIT_S, processes)
        if init is not None:
            return SandboxHandle(bwrap, init, control, limits)
        why = "the sandbox did not start"
    except TimeoutError:
        why = f"the sandbox did not start within {START_LIMIT_S:.0f} s"
    except BaseException:
        _abort(bwrap, control)
        raise
    raise SandboxError(f"{why}: {_abort(bwrap, control) or 'bwrap gave no reason'}")


def _abort(bwrap: subprocess.Popen[bytes], control: socket.socket) -> str:
    """End a sandbox that never reported; return its stderr. bwrap's child ends with it and has no children yet."""
    orphans = process_tree(bwrap.pid) - {bwrap.pid}
    bwrap.kill()
    control.settimeout(PROOF_S)
    with control:
        try:
            while control.recv(16):  # to its end: then no process holds the other side any more
                continue
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise SandboxError(f"bwrap was killed while starting, but its child is still there after {PROOF_S:.0f} s") from None
    stderr = bwrap.communicate()[1]
    for orphan in orphans:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(orphan, 0)
    return stderr.decode(errors="replace").strip()


def _render(arguments: tuple[Argument, ...], staged: bool) -> tuple[list[str], list[str], list[int]]:
    """bwrap's options, their host paths, and open descriptors. Bytes become descriptors, staged paths get names below STAGING."""
    options: list[str] = []
    sources: list[str] = []
    descriptors: list[int] = []
    for word in arguments:
        if isinstance(word, bytes):
            descriptors.append(process.readable_fd(word))
            options.append(str(descriptors[-1]))
        elif isinstance(word, Path):
            options.append(f"{STAGING}/{len(sources)}" if staged else str(word))
            sources.append(str(word))
        else:
            options.append(word)
    return options, sources, descriptors


def _in_force(spec: SandboxSpec, uid: int | None, others: Mapping[str, str]) -> dict[str, str]:
    """`RunningSandbox.limits`."""
    limits = fixed_limits(spec, "affinity")
    if uid is not None:
        limits["processes"] = f"{others.get('processes', f'RLIMIT_NPROC {spec.limits.processes}')} (own uid {uid})"
    elif "processes" not in others and counts_by_namespace(os.uname().release):
        limits["processes"] = f"RLIMIT_NPROC {spec.limits.processes} (own user namespace)"
    return dict(others) | limits


def find_bwrap() -> str:
    """Path of bwrap."""
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(
            "bwrap is not on PATH; install it: `apt-get install bubblewrap` (also its name with dnf, pacman, apk, zypper)"
        )
    return found
