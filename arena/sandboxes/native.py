"""The launcher and process 1 as C programs, compiled when they are first needed. Without a compiler their Python twins run.

Two starts of Python are a third of what starting a sandbox costs (docs/measurements/sandbox.md).
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from arena import paths
from arena.system import process

SOURCES = Path(__file__).with_name("programs")
FILES = {"launch": ("launch.c",), "init": ("init.c", "bridge.c")}
FLAGS = ("-std=gnu17", "-O2", "-static", "-s", "-Wall", "-Wextra")
"""Static: a sandbox need not show the C library of this machine."""
ELF = b"\x7fELF"
COMPILE_S = 60.0
MFD_EXEC = 0x10
"""Since Linux 6.3; without it vm.memfd_noexec = 1 makes the memory of a program not executable. Older kernels answer EINVAL."""
SWITCH = "ARENA_NATIVE"
"""Environment variable: 0 runs the Python programs."""


class Programs(NamedTuple):
    """The two compiled programs, read once: what happens to the files later changes nothing.

    Each also lies in sealed memory, from whose descriptor a process can become it: no sandbox start copies it.
    """

    launch_fd: int
    init_fd: int
    init: bytes


def programs() -> Programs | None:
    """The compiled programs; None where the Python ones run: `why_not` says why."""
    found = None if os.environ.get(SWITCH) == "0" else _found()
    return found if isinstance(found, Programs) else None


def why_not() -> str | None:
    """Why the Python programs run instead, in words; None when the compiled ones do."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH} is 0"
    found = _found()
    return found if isinstance(found, str) else None


@functools.cache
def _found() -> Programs | str:
    """The programs, compiled now unless this user has done so before; or why there are none."""
    folder = paths.cache() / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        made = {name: _built(folder, name, files) for name, files in FILES.items()}
        return Programs(_in_memory(made["launch"]), _in_memory(made["init"]), made["init"])
    except OSError as error:
        return str(error)


def _in_memory(program: bytes) -> int:
    """A descriptor (close-on-exec) of a program in memory that nothing can change. OSError where memory may not be executed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("arena", flags | MFD_EXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise OSError(f"the kernel forbids programs in memory (vm.memfd_noexec): {error.strerror}") from None
        fd = os.memfd_create("arena", flags)
    with os.fdopen(os.dup(fd), "wb") as stream:
        stream.write(program)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


def _built(folder: Path, name: str, files: tuple[str, ...]) -> bytes:
    """The program, named by what it was made from. OSError when it cannot be made, or another user could have changed it."""
    texts = [(SOURCES / file).read_bytes() for file in (*files, "bridge.h")]
    made = folder / f"{name}-{hashlib.sha256(repr((os.uname().machine, FLAGS, texts)).encode()).hexdigest()[:16]}"
    if not made.exists():
        _compile(made, [str(SOURCES / file) for file in files])
    with open(os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        found, program = os.fstat(file.fileno()), file.read()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(f"{made}: another user may have changed it; remove it, and arena compiles it again")
    if not program.startswith(ELF):
        raise OSError(f"{made}: is no program; remove it, and arena compiles it again")
    return program


def _compile(made: Path, sources: list[str]) -> None:
    """Compile aside, flush and rename: arenas that start at once all find a whole file. OSError."""
    if (compiler := shutil.which("cc")) is None:
        raise FileNotFoundError("no C compiler (cc) is installed")
    aside = made.with_name(f".{made.name}-{secrets.token_hex(4)}.tmp")
    try:
        done = process.run([compiler, *FLAGS, "-o", str(aside), *sources], limit_s=COMPILE_S)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.decode(errors='replace').strip()[:500]}")
        with aside.open("rb+") as file:
            os.fchmod(file.fileno(), 0o755)
            os.fsync(file.fileno())
        aside.replace(made)
    finally:
        aside.unlink(missing_ok=True)
