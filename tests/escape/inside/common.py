"""Shared by all probes: registration, the plan of the planted lures, system calls by number."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .numbers import COLUMN, NUMBERS

PLAN: dict[str, Any] = {}
"""Where the lures lie; the runner fills it. It spells their common word backwards, so that the plan itself is no finding."""


REFUSALS = {
    errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV, errno.ENOSYS, errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.ENXIO,
    errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT,
    errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL,
}  # fmt: skip
"""Errors by which a kernel refuses, or reports that there is nothing. Any other error (a bad address, no memory) is a mistake
of the probe, unless the probe names it in `also`."""


class Open(Exception):  # noqa: N818  a finding, not an error
    """The forbidden thing worked."""


class Untried(Exception):  # noqa: N818
    """There is nothing here to try it on."""


class Probe(NamedTuple):
    """One escape attempt."""

    name: str
    """`group.function`."""
    text: str
    """What is tried."""
    source: str
    """Who documented it, or empty."""
    opens: str | None
    """The weakened sandbox in which the host shows that the probe can open; None: none that would be harmless."""
    lacking: bool
    """A kernel or machine may lack the thing: there it opens nowhere."""
    alone: bool
    """It may end its sandbox, or the host checks what it left when the sandbox has ended."""
    also: tuple[int, ...]
    """Errors that mean a refusal here, beside REFUSALS."""
    limit: str
    """The limit that ends its sandbox, as `RunningSandbox.exceeded` names it; empty: nothing may end it."""
    work: Callable[[], str | None]


PROBES: list[Probe] = []


def probe(
    opens: str | None = None, *, lacking: bool = False, alone: bool = False, also: tuple[int, ...] = (), limit: str = ""
) -> Callable[[Callable[[], str | None]], Any]:
    """Register a probe under the name of its module and function."""

    def register(work: Callable[[], str | None]) -> Callable[[], str | None]:
        text, _, source = " ".join((work.__doc__ or "").split()).partition(" -- ")
        name = f"{work.__module__.rsplit('.', 1)[-1]}.{work.__name__}"
        PROBES.append(Probe(name, text.rstrip("."), source.rstrip("."), opens, lacking, alone, also, limit, work))
        return work

    return register


def lure() -> bytes:
    """The word that every planted content starts with, assembled only here."""
    return str(PLAN["erul"])[::-1].encode()


def find_lure(data: bytes, where: object) -> None:
    """Raise Open if a lure's content is in the data."""
    at = data.find(lure())
    if at >= 0:
        name = data[at + len(lure()) :][:24].split(b"\0")[0].split(b"\n")[0]
        raise Open(f"{where}: the content of lure {name.decode(errors='replace')!r}")


def read(path: str | Path, count: int = 1 << 16) -> bytes:
    """The first bytes of a file; OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        data = os.read(fd, count)
        while len(data) < count and (piece := os.read(fd, count - len(data))):  # files of /proc come in pages
            data += piece
        return data
    finally:
        os.close(fd)


def readable(paths: Iterator[str] | list[str]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of those that the probe can read."""
    for path in paths:
        try:
            yield path, read(path)
        except OSError:
            continue


def pids() -> list[str]:
    """All processes of /proc."""
    return [name for name in os.listdir("/proc") if name.isdigit()]


def refused(*actions: Callable[[], object]) -> str:
    """The errors by which the kernel refuses all these actions, by name. Open if one works; another OSError passes."""
    names = []
    for action in actions:
        try:
            answer = action()
        except OSError as error:
            if error.errno is None or error.errno not in REFUSALS | {*PLAN.get("also", ())}:
                raise
            names.append(os.strerror(error.errno))
            continue
        raise Open(f"action {len(names) + 1} worked: {answer!r}")
    return ", ".join(dict.fromkeys(names))


libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The system call; OSError when it fails."""
    number = NUMBERS[name][COLUMN]
    if number is None:
        raise Untried(f"{platform.machine()} has no {name}")
    return raw(number, *arguments)


def raw(number: int, *arguments: object) -> int:
    """The system call of that number; OSError when it fails."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    answer = ctypes.CDLL(None, use_errno=True).syscall
    answer.restype = ctypes.c_long
    result = int(answer(ctypes.c_long(number), *words))
    if result == -1:
        fail(ctypes.get_errno())
    return result


def fail(number: int) -> NoReturn:
    """The kernel's answer as an OSError."""
    raise OSError(number, os.strerror(number))


def buffer(size: int, data: bytes = b"") -> Any:
    """A buffer that a system call may write to."""
    return ctypes.create_string_buffer(data, max(size, len(data)))
