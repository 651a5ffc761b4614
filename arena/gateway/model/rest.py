"""Work that goes on for a while after the program that it was for has left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine


async def within(work: Coroutine[None, None, None], limit_s: float, over: Callable[[], bool]) -> None:
    """Do it, for so long at most, and not after the run.

    Of a program that leaves we may hear twice: by a write that fails, and then by being cancelled.
    """
    task, end_s = asyncio.ensure_future(work), time.monotonic() + limit_s
    while not task.done() and not over() and (left_s := end_s - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=left_s)
    task.cancel()
