"""The model gateway: an agent's requests to the one model of its run, passed on to the provider byte for byte, and metered."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

from arena.errors import UsageError
from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model import apis, policy, upstream
from arena.gateway.model.apis import Place
from arena.gateway.model.exchange import Exchange
from arena.gateway.model.ledger import Ledger, opened
from arena.gateway.model.ledger_lines import Tokens
from arena.gateway.model.redact import said, scrubbed
from arena.gateway.model.state import Account
from arena.gateway.model.upstream import CONNECTIONS, Proxy, Upstream, once
from arena.gateway.model.usage import price
from arena.gateway.refusal import Refusal
from arena.gateway.unix_server import accept, serving
from arena.schema import Usage

BODY_S = 60.0
HELD_BYTES = 256 << 20
"""Of all requests together that are on their way."""
SAID = 300
LOOK_S = 1.0
NEVER_AGAIN = {"x-should-retry": "false"}
"""The programs' own libraries mind it."""
SILENT = logging.Logger("gateway", logging.CRITICAL + 1)
"""aiohttp's: a box could otherwise write on our standard error."""


class Gateway:
    """A gateway that serves. Every thread may read it."""

    def __init__(self, asked: ModelAccess, ledger: Ledger) -> None:
        self.key = f"arena-{secrets.token_hex(16)}"
        """What stands for the real key inside the sandbox; worth nothing anywhere else, nor after the run."""
        self.in_flight = 0
        """Requests that are on their way."""
        self.troubles: list[str] = []
        """Bugs of ours, in words."""
        self._asked = asked
        self._account = Account(asked, ledger)
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._held_bytes = 0

    @property
    def stop(self) -> Stop | None:
        """Set once, when the run should be ended."""
        return self._account.stop

    @property
    def stopped_s(self) -> float:
        """When `stop` was set, on the monotonic clock; of no meaning without it."""
        return self._account.stopped_s

    @property
    def last(self) -> str:
        """Why the last request to the model failed, where that is the provider's fault; empty when it did not."""
        return self._account.last

    @property
    def refused(self) -> bool:
        """Whether the model's last answer was a refusal."""
        return self._account.refused

    @property
    def active_s(self) -> float:
        """When the last byte went in either direction, on the monotonic clock."""
        return self._account.active_s

    @property
    def backoff_s(self) -> float:
        """Seconds between the provider's first failure and its next good answer, with those that pass now."""
        return self._account.backoff_s

    def leaving(self) -> None:
        """To be said before the box is ended, by whichever thread: what breaks off from now on is nobody's fault."""
        self._account.leaving()

    def close(self) -> None:
        """Nothing comes any more: the ledger's last line."""
        self._account.close()

    def last_before(self, monotonic_s: float) -> str:
        """Why the last request to the model that had begun by then failed; empty when it did not."""
        return self._account.last_before(monotonic_s)

    async def watch(self) -> None:
        """Until cancelled, look whether the provider's time is up."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._account.look()

    def usage(self) -> Usage:
        """What was used up to now; the same as `ledger.read` finds in the ledger."""
        return self._account.usage()

    async def handle(self, up: Upstream, request: web.BaseRequest) -> web.StreamResponse:
        """One request of the box."""
        try:
            return await self._answer(up, request)
        except Refusal as refusal:
            self._account.not_passed(request.raw_path, refusal)
            return self._refuse(refusal)
        except (asyncio.CancelledError, ConnectionError):  # the program is gone
            raise
        except BaseException as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException) -> None:
        """A bug of ours, for the run's record: once, as a box may bring it about as often as it likes."""
        text = said(scrubbed(f"a request failed in the gateway, a bug of arena: {repr(error)[:SAID]}", self._asked.key))
        if text not in self.troubles[:10]:
            self.troubles.append(text)

    def crashed(self, error: BaseException) -> None:
        """The gateway itself has ended, a bug of ours."""
        text = said(scrubbed(f"the gateway itself failed, a bug of arena: {repr(error)[:SAID]}", self._asked.key))
        self.troubles.append(text)
        self._account.end_run(Stop("crashed", text))

    async def _answer(self, up: Upstream, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "HEAD":  # claude begins with one, and some versions give up when that fails
            return web.Response()
        if "upgrade" in request.headers:
            return self._refuse(Refusal(426, "only plain HTTP is spoken here, no websocket"))
        once(request.headers.items())
        at = policy.admitted(self._asked, self.key, request.method, request.raw_path, request.headers)
        if at.kind == "models":
            body = apis.models(self._asked.api, self._asked.model, at.path)
            return web.Response(body=body, content_type="application/json")
        async with self._room, self._body(request) as data:
            wish = policy.wish(self._asked, at, request.headers, data)
            self._account.admit()
            return await self._exchange(up, request, at, wish, data)

    async def _exchange(
        self, up: Upstream, request: web.BaseRequest, at: Place, wish: policy.Wish, body: bytes
    ) -> web.StreamResponse:
        began = self._account.began(at, wish)
        exchange = Exchange(self._asked, self._account, began)
        self.in_flight += 1
        try:
            return await exchange.run(request, up, at, wish, body)
        except Refusal as refusal:  # by its line in the ledger it is told already
            return self._refuse(refusal)
        finally:
            self._account.ended(began, exchange.line())
            self.in_flight -= 1  # last: who sees none on its way sees all that they used

    @asynccontextmanager
    async def _body(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The request's body, held for the length of the block. Refusal 400, 408 or 413."""
        pieces: list[bytes] = []
        try:
            await self._receive(request, pieces)
            pieces[:] = [b"".join(pieces)]  # and not both: it may be 64 MiB
            yield pieces[0]
        finally:
            self._held_bytes -= sum(map(len, pieces))

    async def _receive(self, request: web.BaseRequest, pieces: list[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    self._held_bytes += len(piece)
                    if size > policy.BODY_BYTES or self._held_bytes > HELD_BYTES:
                        raise Refusal(413, f"the body is larger than {policy.BODY_BYTES >> 20} MiB, or too many large ones come")
                    self._account.heard()
        except TimeoutError:
            raise Refusal(408, f"no whole body within {BODY_S:.0f} s") from None
        except web.RequestPayloadError:
            raise Refusal(400, "the body is no proper HTTP") from None

    def _refuse(self, refusal: Refusal) -> web.Response:
        body = apis.error(self._asked.api, refusal.status, refusal.reason)
        headers = NEVER_AGAIN if refusal.status < 500 else {}
        return web.Response(status=refusal.status, body=body, content_type="application/json", headers=headers)


@contextmanager
def serve(path: Path, ledger: Path, asked: ModelAccess) -> Iterator[Gateway]:
    """Serve on a new unix socket `path` for the length of the block; every request is told in a new file `ledger`.

    UsageError when a cap cannot be kept; OSError when it cannot begin.
    """
    known = asked.route.broker or price(asked.route.prices, asked.model, Tokens(1, output=1)) is not None
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
