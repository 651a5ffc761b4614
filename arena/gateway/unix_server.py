"""A unix socket outside the sandbox that serves programs inside, in a thread with its own event loop; and how it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

CONNECTIONS = 128
"""Served at once. A sandbox may open any number: the others wait in the kernel and use none of arena's descriptors."""
QUEUE = 1024
Handler = Callable[[socket.socket], Coroutine[Any, Any, None]]
"""Serves one connection, or the listener of all."""


class Refusal(Exception):  # noqa: N818  an answer to a client, not an error of arena
    """A refused request: the HTTP status, the reason, and the host and port to log, when only the refusal knows them."""

    def __init__(self, status: int, reason: str, target: tuple[str, int] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.target = status, reason, target


@contextmanager
def serving(path: Path, main: Handler, crashed: Callable[[BaseException], None] | None = None) -> Iterator[None]:
    """Run `main` with the listener of a new socket `path` for the length of the block; then cancel it.

    Every user may connect: the folder that holds the socket limits access. OSError when it cannot begin. When `main` fails by a
    bug, `crashed` gets the error at once; without `crashed`, the end of the block raises it.
    """
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as thread:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")  # the whole path may be longer than the 107 bytes of a name
        finally:
            os.close(folder)
        path.chmod(0o666)
        listener.listen(QUEUE)
        listener.setblocking(False)
        loop = asyncio.new_event_loop()
        task = loop.create_task(main(listener))
        ended = thread.submit(_run, loop, task)
        if crashed is not None:
            ended.add_done_callback(partial(_report, crashed))
        try:
            yield
        finally:
            if not ended.done():
                loop.call_soon_threadsafe(task.cancel)
            if (error := ended.exception()) and crashed is None:
                raise error
            path.unlink()


def _report(crashed: Callable[[BaseException], None], ended: Future[None]) -> None:
    if error := ended.exception():
        crashed(error)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()


async def accept(listener: socket.socket, handle: Handler, failed: Callable[[BaseException], None]) -> None:
    """Serve each connection in a task of its own until cancelled; then end them all. `failed` gets each bug.

    Not a task group: there the failure of one connection would end all.
    """
    loop, served = asyncio.get_running_loop(), dict[asyncio.Task[None], socket.socket]()

    # Not `loop.sock_accept`: cancelled while a client connects, it loses the connection and logs an error.
    def take() -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # the client is gone, or arena is out of descriptors: wait before the next try
            loop.remove_reader(listener)
            loop.call_later(0.05, resume)
            return
        task = loop.create_task(handle(client))
        served[task] = client
        task.add_done_callback(leave)
        if len(served) == CONNECTIONS:
            loop.remove_reader(listener)

    def leave(task: asyncio.Task[None]) -> None:
        served.pop(task).close()
        if not task.cancelled() and (error := task.exception()):
            failed(error)
        resume()

    def resume() -> None:
        if not over.done() and len(served) < CONNECTIONS:
            loop.add_reader(listener, take)

    over = loop.create_future()  # never set: cancelling ends it
    resume()
    try:
        await over
    finally:
        loop.remove_reader(listener)
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
