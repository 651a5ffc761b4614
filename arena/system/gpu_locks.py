"""One sweep or command on a GPU: a lock for each GPU of this machine, which falls with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from arena.errors import ArenaError, UsageError
from arena.schema import Hardware, Sweep
from arena.system import process

LOOK_S = 60.0
# In a process of its own: the head of a sweep must hold nothing on a GPU. By the driver itself: torch takes seconds to load.
# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
LOOK = """
import ctypes, sys, uuid
cuda = ctypes.CDLL("libcuda.so.1")
def call(function, *arguments):
    if code := getattr(cuda, function)(*arguments):
        sys.exit(f"{function}: CUDA error {code}")
call("cuInit", 0)
for number in map(int, sys.argv[1:]):
    gpu, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    call("cuDeviceGet", ctypes.byref(gpu), number)
    call("cuDeviceGetUuid", ctypes.byref(found), gpu)
    print(f"GPU-{uuid.UUID(bytes=bytes(found))}")
"""


@contextmanager
def held_for(sweep: Sweep, hardware: Hardware) -> Iterator[None]:
    """Hold the locks of the sweep's GPUs on this machine for the block; none on `cpu`. UsageError, ArenaError."""
    with held(uuids(sweep.place.gpus) if hardware.profile == "gpu" else {}, f"sweep {sweep.name}"):
        yield


@contextmanager
def held_by(holder: str, hardware: Hardware, gpus: frozenset[int]) -> Iterator[None]:
    """The same for a command of one score, which `holder` names to others. UsageError, ArenaError.

    No lock of a GPU that CUDA does not find: the command looks at it next, and says so in its own words.
    """
    found = dict[int, str]()
    if hardware.profile == "gpu":
        with suppress(ArenaError):
            found = uuids(gpus)
    with held(found, holder):
        yield


def folder(first: Path = Path("/run/lock")) -> Path:
    """The same one for all users of this machine, whatever their environment: two folders would be two locks of one GPU."""
    with suppress(OSError):
        if first.stat().st_mode & stat.S_IWOTH:
            return first
    return Path("/tmp")


def uuids(gpus: frozenset[int]) -> dict[int, str]:
    """The UUIDs of GPUs by their CUDA index: an index is another GPU where CUDA_VISIBLE_DEVICES differs. ArenaError."""
    numbers = sorted(gpus)
    done = process.run([sys.executable, "-I", "-S", "-c", LOOK, *map(str, numbers)], limit_s=LOOK_S)
    found = done.stdout.decode(errors="replace").split()
    if done.returncode or len(found) != len(numbers):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no answer"]
        raise ArenaError(f"GPU {', '.join(map(str, numbers))}: CUDA cannot tell which they are: {last[0]}")
    return dict(zip(numbers, found, strict=True))


@contextmanager
def held(uuids: Mapping[int, str], holder: str, root: Path | None = None) -> Iterator[None]:
    """Hold the locks of these GPUs for the block. UsageError, with the other holder, when one of them has another."""
    root = root or folder()
    with ExitStack() as locks:
        for gpu, uuid in sorted(uuids.items(), key=lambda pair: pair[1]):
            locks.enter_context(_lock(root / f"arena-{uuid}", gpu, holder))
        yield


@contextmanager
def _lock(path: Path, gpu: int, holder: str) -> Iterator[None]:
    with ExitStack() as closing:
        try:
            lock = _opened(path)
            closing.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{holder} (process {os.getpid()})\n".encode(), 0)
        except BlockingIOError:
            other = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another one"
            raise UsageError(f"GPU {gpu} ({path.name.removeprefix('arena-')}) is in use by {other}: wait for its end") from None
        except OSError as error:
            raise ArenaError(f"GPU {gpu}: its lock {path}: {error.strerror}") from None
        yield


def _opened(path: Path) -> int:
    """Not with O_CREAT where it is there: in a folder of all users the kernel refuses that for another user's file."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    with suppress(FileExistsError):  # another one has made it meanwhile
        lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(lock, 0o666)  # whatever the umask: other users lock it too
        return lock
    return os.open(path, flags)
