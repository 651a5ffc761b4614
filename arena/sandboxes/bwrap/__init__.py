"""The bubblewrap backend: the launcher becomes bwrap, bwrap starts process 1, process 1 starts the command."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from arena.errors import SandboxError
from arena.paths import secrets as arena_secrets
from arena.sandboxes import RunningSandbox, SandboxSpec, cgroup, native, selftest
from arena.sandboxes.bwrap.arguments import Argument, bwrap_arguments
from arena.sandboxes.host import opened_sockets, survey
from arena.sandboxes.lifecycle import (
    bounded_workspace,
    counts_by_namespace,
    fixed_limits,
    lifetime,
    limit_checks,
    rlimits,
    throw_away_user,
    validated,
)
from arena.sandboxes.profile import Bind, Gathered, Profile, compiled, init_command, profile
from arena.sandboxes.programs.launch import STAGING
from arena.sandboxes.python_env import current_python
from arena.sandboxes.running import PROOF_S, START_LIMIT_S, SandboxHandle, await_dying, become_subreaper, handshake
from arena.sandboxes.shared_workspace import sharing
from arena.sandboxes.watchdog import process_tree
from arena.sandboxes.workspace_mount import WorkspaceMount
from arena.system import process

BESIDE_S = 5.0
"""A sandbox beside another waits so long for the end of one that is dying."""
OLDEST = (0, 8)  # first bwrap with --disable-userns
SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": (
        "1",
        # The form of Ubuntu's profiles for browsers. Root needs it too: the launcher gives up root before bwrap.
        "AppArmor forbids user namespaces here (Ubuntu 23.10 and later). Give bwrap a profile that allows them: "
        "`printf 'abi <abi/4.0>,\\nprofile arena-bwrap {bwrap} flags=(unconfined) {{\\n  userns,\\n}}\\n' "
        "| sudo tee /etc/apparmor.d/arena-bwrap && sudo apparmor_parser -r /etc/apparmor.d/arena-bwrap`; "
        "or allow them to every program until the next boot: `sudo sysctl -w {name}=0`",
    ),
    "kernel.unprivileged_userns_clone": ("0", "user namespaces are switched off here: `sudo sysctl -w {name}=1`"),
    "user.max_user_namespaces": ("0", "user namespaces are switched off here: `sudo sysctl -w {name}=10000`"),
}
"""Kernel settings that forbid user namespaces: the value that does, and what to do."""


@contextmanager
def run(spec: SandboxSpec, *, secrets: tuple[Path, ...] | None = None) -> Iterator[RunningSandbox]:
    """Start the sandbox; leaving the block kills what is left in it and proves that no process remains. SandboxError.

    As root the workspace belongs to the sandbox's throw-away user. A limited one is a file system in memory meanwhile, whose
    content is copied into the folder at the end. `secrets` are arena's own unless given.
    """
    spec, python = validated(spec), current_python(spec.packages)
    await_dying()
    with ExitStack() as stack:
        uid = stack.enter_context(throw_away_user()) if os.geteuid() == 0 else None
        group = stack.enter_context(cgroup.SandboxCgroup(spec.limits, cgroup.arena_cgroups(), fair=spec.kind == "agent"))
        mount = bounded_workspace(spec, uid, stack)
        another = stack.enter_context(sharing(mount)) if mount is not None and spec.shared else None
        if another is not None:
            mount = stack.enter_context(another())
        if mount is not None:
            spec = replace(spec, workspace=mount.path)
        host = survey(arena_secrets() if secrets is None else secrets)
        shown = profile(spec, python, host)
        checks, enforced = limit_checks(spec, group, mount)
        running = start(spec, shown, uid, group, mount, group.in_force | enforced)
        running.workspace, running.before_kill = spec.workspace, group.prepare_kill
        running.uid, running.another = uid, another
        yield stack.enter_context(lifetime(running, checks, group.exceeded, mount))


@contextmanager
def run_beside(first: RunningSandbox, spec: SandboxSpec) -> Iterator[RunningSandbox]:
    """Start a sandbox of the same user with the workspace of `first`, whose spec was `shared`. It must end before `first` does.

    It has namespaces, /tmp, HOME, limits and processes of its own: neither sees the other but by the workspace. SandboxError.
    """
    assert isinstance(first, SandboxHandle)
    await_dying(BESIDE_S)
    with ExitStack() as stack:
        group = stack.enter_context(cgroup.SandboxCgroup(spec.limits, cgroup.arena_cgroups(), fair=spec.kind == "agent"))
        mount = stack.enter_context(first.another()) if first.another else None
        # The first sandbox's own limit holds for the workspace of both.
        limits = replace(spec.limits, workspace_bytes=None, workspace_files=None)
        spec = replace(spec, workspace=mount.path if mount else first.workspace, limits=limits)
        shown = profile(spec, current_python(spec.packages), survey(arena_secrets()))
        checks, enforced = limit_checks(spec, group, mount)
        running = start(spec, shown, first.uid, group, mount, group.in_force | enforced)
        running.workspace, running.before_kill = spec.workspace, group.prepare_kill
        yield stack.enter_context(lifetime(running, checks, group.exceeded, None))


def start(
    spec: SandboxSpec,
    shown: Profile,
    uid: int | None,
    group: cgroup.SandboxCgroup,
    mount: WorkspaceMount | None,
    in_force: Mapping[str, str],
) -> SandboxHandle:
    """Start bwrap with this profile, as user `uid` when we are root. The workspace must be that user's already.

    It enters `group` itself. One of the host's paths lies in `mount`. `in_force` holds the limits that these two enforce.
    """
    bwrap_path, made = find_bwrap(), native.programs()
    program = _opened(made.init_fd) if made else ""  # a file in the sandbox would be a copy of it
    become_subreaper()
    with ExitStack() as stack:
        options, sources, handed = _render(bwrap_arguments(shown, gather=uid is not None), staged=uid is not None)
        handed.append(process.readable_fd(b"".join(os.fsencode(option) + b"\0" for option in options)))
        sockets = stack.enter_context(opened_sockets(spec.bridges))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        stack.callback(theirs.close)
        order: list[tuple[str, object]] = [
            ("bwrap", bwrap_path),
            ("env", "PATH=/usr/bin:/bin"),  # nothing of arena's: bwrap's environment shows inside until process 1 runs
            *(("argv", word) for word in ("bwrap", "--args", handed[-1], "--")),
            *(("argv", word) for word in init_command(spec, shown, theirs.fileno(), sockets, program)),
            *(("group", file) for file in group.procs_files),
            *(("limit", f"{getattr(resource, name)}:{value}") for name, value in rlimits(spec, uid).items()),
            *(("cpu", cpu) for cpu in sorted(spec.cpus or ())),
        ]
        if uid is not None:
            order += [("uid", uid), *sources]
        if uid is not None and mount:
            order.append(("workspace", mount.fd))
        order_fd = process.readable_fd(b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in order))
        stdin = process.readable_fd(spec.stdin) if spec.stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        handed.append(order_fd)
        if made:
            launcher = [_opened(made.launch_fd)]
        else:
            handed.append(process.readable_fd(compiled("launch")))
            launcher = [sys.executable, "-I", "-S", _opened(handed[-1])]
        for fd in (*handed, stdin):
            stack.callback(os.close, fd)
        try:
            bwrap = process.start(
                [*launcher, str(order_fd)],
                stdin=stdin,
                # Its own loader may need the path; nothing else of our environment goes on.
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                pass_fds=(
                    *handed,
                    *((made.launch_fd, made.init_fd) if made else ()),
                    *((mount.fd,) if mount else ()),
                    *(theirs.fileno(), *sockets.values(), *spec.pass_fds),
                ),
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {launcher[0]}: {error.strerror}") from None
    limits = _in_force(spec, uid, in_force)
    # bwrap is in the sandbox's group, but not in its namespace.
    processes = spec.limits.processes - ("processes" in in_force)
    return _handshake(bwrap, ours, limits, processes if counts_by_namespace(os.uname().release) else None)


def _opened(fd: int) -> str:
    """The path of what a process inherits as this descriptor."""
    return f"/proc/self/fd/{fd}"


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


def _render(arguments: tuple[Argument, ...], staged: bool) -> tuple[list[str], list[tuple[str, object]], list[int]]:
    """bwrap's options, the launcher's order for their host paths, and open descriptors. Bytes become descriptors, staged paths
    get names below STAGING."""
    options: list[str] = []
    sources: list[tuple[str, object]] = []
    descriptors: list[int] = []
    names = (f"{STAGING}/{number}" for number in itertools.count())
    for word in arguments:
        if isinstance(word, bytes):
            descriptors.append(process.readable_fd(word))
            options.append(str(descriptors[-1]))
        elif isinstance(word, Path):
            options.append(next(names) if staged else str(word))
            sources.append(("source", word))
        elif isinstance(word, Gathered):
            options.append(next(names))
            sources += [("folder", ""), *(_member(bind, word.target) for bind in word.binds)]
        else:
            options.append(word)
    return options, sources, descriptors


def _member(bind: Bind, folder: str) -> tuple[str, object]:
    """The launcher's order for one bind in a folder that it makes: the name, a line's end, and the host's path or the text."""
    name = bind.target.removeprefix(f"{folder}/")
    if "\n" in name:
        raise SandboxError(f"{bind.target!r}: no path of a sandbox may hold the end of a line")
    if isinstance(bind.source, bytes):
        return "text", f"{bind.mode:o} {name}\n{os.fsdecode(bind.source)}"
    return "member", f"{name}\n{bind.source}"


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
    if (found := shutil.which("bwrap")) is None:
        raise SandboxError(
            "bwrap is not on PATH; install it: `apt-get install bubblewrap` (also its name with dnf, pacman, apk, zypper)"
        )
    return found


def missing() -> str | None:
    """Why this backend cannot be used here and what to do about it, in one line; None when a real sandbox has passed its test."""
    try:
        _self_test()
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


def _self_test() -> None:
    """Check bwrap's version and inspect a real sandbox from inside."""
    output = process.run([find_bwrap(), "--version"], limit_s=10).stdout.decode(errors="replace").strip()
    version = re.search(r"(\d+)\.(\d+)", output)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise SandboxError(
            f"{find_bwrap()} is {output or 'of unknown version'}; arena needs bubblewrap {'.'.join(map(str, OLDEST))} or later"
        )
    try:
        selftest.prove(run)
    except SandboxError as error:
        raise SandboxError(f"{error}{advice(settings(Path('/')), find_bwrap())}") from None


def advice(found: Mapping[str, str], bwrap_path: str) -> str:
    """The end of an error text: which of these kernel settings (name -> value) to change, and how; empty when none."""
    wrong = {name: text for name, (bad, text) in SETTINGS.items() if found.get(name) == bad}
    return "".join(f"; {text.format(name=name, bwrap=Path(bwrap_path).resolve())}" for name, text in wrong.items())


def settings(root: Path) -> dict[str, str]:
    """The kernel settings for `advice`, as far as the machine with this root folder has them."""
    paths = {name: Path(root, "proc/sys", *name.split(".")) for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}
