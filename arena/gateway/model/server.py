"""The model gateway: an agent's requests to the one model of its run, passed on to the provider byte for byte, and metered."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

from arena.errors import UsageError
from arena.gateway.config import Caps, ModelAccess, Stop
from arena.gateway.model import prices, upstream
from arena.gateway.model.front import Gateway
from arena.gateway.model.ledger import opened
from arena.gateway.model.upstream import Proxy, Upstream
from arena.gateway.model.usage import Tokens
from arena.gateway.unix_server import accept, serving

__all__ = ["Caps", "Gateway", "ModelAccess", "Stop", "serve"]
SILENT = logging.Logger("gateway", logging.CRITICAL + 1)
"""aiohttp's: a box could otherwise write on our standard error."""


@contextmanager
def serve(path: Path, ledger: Path, asked: ModelAccess) -> Iterator[Gateway]:
    """Serve on a new unix socket `path` for the length of the block; every request is told in a new file `ledger`.

    UsageError when a cap cannot be kept; OSError when it cannot begin.
    """
    known = asked.route.pinned or prices.price(asked.route.prices, asked.model, Tokens(1, output=1)) is not None
    if asked.caps.cost_usd is not None and not known:
        raise UsageError(
            f"the price of {asked.model} by {asked.route.title} is unknown, so that no cap in USD can be kept: "
            "give one in tokens or in requests"
        )
    context, proxy = upstream.trusted(asked.authorities), upstream.proxy(asked.route.base_url)
    with opened(ledger, asked.patience_s) as kept:
        gateway = Gateway(asked, kept)
        try:
            with serving(path, partial(_serve, gateway, context, proxy), gateway.crashed):
                try:
                    yield gateway
                finally:
                    gateway.leaving()
        finally:
            gateway.close()


async def _serve(gateway: Gateway, context: ssl.SSLContext, proxy: Proxy | None, listener: socket.socket) -> None:
    """Until cancelled; then every answer on its way ends, and that is written down."""
    loop = asyncio.get_running_loop()
    async with upstream.pool(context) as session:
        up = Upstream(session, proxy)
        server = web.Server(partial(gateway.handle, up), handler_cancellation=True)

        async def connection(client: socket.socket) -> None:
            gone = loop.create_future()
            transport, _ = await loop.connect_accepted_socket(lambda: _Connection(server, gone), client)
            try:
                await gone
            finally:
                transport.abort()

        watching = loop.create_task(gateway.watch())
        try:
            await accept(listener, connection, gateway.failed)
        finally:
            watching.cancel()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


class _Connection(web.RequestHandler):
    """Tells when it is over; the server itself would not."""

    def __init__(self, server: web.Server, gone: asyncio.Future[None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=SILENT,
            access_log=SILENT,
            auto_decompress=False,
            max_line_size=upstream.HEAD_BYTES,
            max_field_size=upstream.HEAD_BYTES,
        )
        self._gone = gone

    def connection_lost(self, exc: BaseException | None) -> None:
        """As it says; the base class cancels what is still at work for it."""
        super().connection_lost(exc)
        if not self._gone.done():
            self._gone.set_result(None)
