"""Further mounts of a workspace in memory, for sandboxes beside the first: bwrap takes the mount that it is given for itself.

Only a mount that is attached can be copied, and on the host nothing is to be attached. So a thread with a mount namespace of its
own holds it. The namespace ends with the thread, and with it all that the thread attached.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from arena.sandboxes.programs.launch import AT_FDCWD, MOVE_MOUNT_F_EMPTY_PATH, SYS_MOVE_MOUNT
from arena.sandboxes.workspace_mount import WorkspaceMount
from arena.system import tempdirs

SYS_OPEN_TREE = 428
CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
CLONE, CLOEXEC, EMPTY_PATH = 1, os.O_CLOEXEC, 0x1000

libc = ctypes.CDLL(None, use_errno=True)
Another = Callable[[], AbstractContextManager[WorkspaceMount]]


@contextmanager
def sharing(mount: WorkspaceMount) -> Iterator[Another]:
    """A function that makes one more mount of the workspace, for the length of a block. OSError."""
    with ExitStack() as stack:
        place = stack.enter_context(tempdirs.folder())
        thread = stack.enter_context(ThreadPoolExecutor(1))
        thread.submit(_hold, mount.fd, place).result()

        @contextmanager
        def another() -> Iterator[WorkspaceMount]:
            fd = thread.submit(_checked, libc.syscall, SYS_OPEN_TREE, mount.fd, b"", CLONE | CLOEXEC | EMPTY_PATH).result()
            try:
                yield replace(mount, fd=fd)
            finally:
                os.close(fd)

        yield another


def _hold(mount: int, place: Path) -> None:
    """Give this thread a mount namespace of its own, and attach the mount there."""
    _checked(libc.unshare, CLONE_NEWNS)
    _checked(libc.mount, b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    _checked(libc.syscall, SYS_MOVE_MOUNT, mount, b"", AT_FDCWD, os.fsencode(place), MOVE_MOUNT_F_EMPTY_PATH)


def _checked(call: Callable[..., int], *arguments: object) -> int:
    if (result := int(call(*arguments))) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
