"""The model gateway: an agent's requests to the one model of its run, passed on to the provider byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from arena.gateway.asked import Asked, Caps, Stop
from arena.schema import Usage

__all__ = ["Asked", "Caps", "Gateway", "Stop", "serve"]
INSIDE = re.compile(r"/(?:api/)?v1(?:beta)?/(.+)")
DROPPED = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"} | {
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "accept-encoding",
    "proxy-authorization",
}


class Gateway:
    """A gateway that serves. Every thread may read it."""

    def __init__(self, asked: Asked) -> None:
        self.key = f"arena-{secrets.token_hex(16)}"
        """What stands for the real key inside the sandbox; worth nothing anywhere else, nor after the run."""
        self.stop: Stop | None = None
        """Set once, when the run should be ended."""
        self.last = ""
        """Why the last request to the model failed, where that is the provider's fault; empty when it did not."""
        self.refused = False
        """Whether the model's last answer was a refusal."""
        self.in_flight = 0
        self.active_s = time.monotonic()
        """When the last byte went in either direction, on the monotonic clock."""
        self.backoff_s = 0.0
        """Seconds between a failed answer and the next good one, with those that pass now."""
        self._asked = asked
        self._requests = 0

    def usage(self) -> Usage:
        """What was used up to now; the same as `ledger.read` finds in the ledger."""
        return Usage(requests=self._requests)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, passed on."""
        shown = (request.headers.get("x-api-key"), request.headers.get("x-goog-api-key"), request.query.get("key"))
        if self.key not in (*shown, request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return web.json_response({"error": {"message": "this is not the key of this run"}}, status=401)
        inside = INSIDE.fullmatch(request.rel_url.raw_path)
        if inside is None:
            return web.json_response({"error": {"message": "no such path"}}, status=404)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        if self._asked.key:
            headers["Authorization"] = f"Bearer {self._asked.key}"
        self._requests += 1
        self.in_flight += 1
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.request(
                    request.method,
                    URL(f"{self._asked.route.base_url}/{inside[1]}", encoded=True),
                    data=await request.read(),
                    headers=headers | {"Accept-Encoding": "identity"},
                    allow_redirects=False,
                ) as answer,
            ):
                out = web.StreamResponse(status=answer.status)
                out.headers["Content-Type"] = answer.headers.get("Content-Type", "application/json")
                await out.prepare(request)
                async for data in answer.content.iter_any():
                    await out.write(data)
                    self.active_s = time.monotonic()
                await out.write_eof()
                return out
        finally:
            self.in_flight -= 1


@contextmanager
def serve(path: Path, ledger: Path, asked: Asked) -> Iterator[Gateway]:
    """Serve on a new unix socket `path` for the length of the block; every request is told in `ledger`. OSError."""
    gateway = Gateway(asked)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as thread:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")  # the whole path may be longer than the 107 bytes of a name
        finally:
            os.close(folder)
        path.chmod(0o666)
        listener.listen(1024)
        listener.setblocking(False)
        ledger.touch()
        loop = asyncio.new_event_loop()
        task = loop.create_task(_serve(gateway, listener))
        ended = thread.submit(_run, loop, task)
        try:
            yield gateway
        finally:
            if not ended.done():
                loop.call_soon_threadsafe(task.cancel)
            ended.result()  # a bug of ours shows here
            path.unlink()


async def _serve(gateway: Gateway, listener: socket.socket) -> None:
    runner = web.ServerRunner(web.Server(gateway.handle, handler_cancellation=True, access_log=None))
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()
