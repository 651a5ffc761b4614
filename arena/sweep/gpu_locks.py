"""One sweep on a GPU: a lock for each GPU of this machine, which falls with its holder, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from arena.errors import ArenaError, UsageError
from arena.schema import Hardware, Sweep
from arena.system import process

LOOK_S = 120.0
# In a process of its own: torch opens the driver for it, and the head of a sweep must hold nothing on a GPU.
LOOK = """import sys, torch
for gpu in map(int, sys.argv[1:]):
    print(f"GPU-{torch.cuda.get_device_properties(gpu).uuid}")
"""


@contextmanager
def held_for(sweep: Sweep, hardware: Hardware) -> Iterator[None]:
    """Hold the locks of the sweep's GPUs on this machine for the block; none on `cpu`. UsageError, ArenaError."""
    if hardware.profile != "gpu":
        yield
        return
    with held(uuids(sweep.place.gpus), sweep.name):
        yield


def folder() -> Path:
    """Where all users of this machine can lock, or else this user."""
    places = (Path("/run/lock"), Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere"), Path(tempfile.gettempdir()))
    return next(place for place in places if os.access(place, os.W_OK | os.X_OK))


def uuids(gpus: frozenset[int]) -> dict[int, str]:
    """The UUIDs of GPUs by their CUDA index: an index is another GPU where CUDA_VISIBLE_DEVICES differs. ArenaError."""
    numbers = sorted(gpus)
    done = process.run([sys.executable, "-P", "-c", LOOK, *map(str, numbers)], limit_s=LOOK_S)
    found = done.stdout.decode(errors="replace").split()
    if done.returncode or len(found) != len(numbers):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no answer"]
        raise ArenaError(f"GPU {', '.join(map(str, numbers))}: torch cannot tell which they are: {last[0]}")
    return dict(zip(numbers, found, strict=True))


@contextmanager
def held(uuids: Mapping[int, str], sweep: str, root: Path | None = None) -> Iterator[None]:
    """Hold the locks of these GPUs for the block. UsageError, with the holder, when another sweep has one of them."""
    root = root or folder()
    with ExitStack() as locks:
        for gpu, uuid in sorted(uuids.items(), key=lambda pair: pair[1]):
            locks.enter_context(_lock(root / f"arena-{uuid}", gpu, sweep))
        yield


@contextmanager
def _lock(path: Path, gpu: int, sweep: str) -> Iterator[None]:
    # Not with O_CREAT where it is there: in a folder of all users the kernel refuses that for another user's file.
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(lock, 0o666)  # whatever the umask: other users lock it too
    except OSError as error:
        raise ArenaError(f"GPU {gpu}: its lock {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another sweep"
            raise UsageError(f"GPU {gpu} ({path.name.removeprefix('arena-')}) is in use by {holder}: wait for its end") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"sweep {sweep} (process {os.getpid()})\n".encode(), 0)
        yield
    finally:
        os.close(lock)
