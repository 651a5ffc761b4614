"""The model gateway: passes an agent's requests to the one model of its run byte for byte, and meters the answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

from arena.errors import UsageError
from arena.gateway.config import RESUME_PATH, RESUMES, ModelAccess, Stop
from arena.gateway.model import apis, policy
from arena.gateway.model.apis import Endpoint
from arena.gateway.model.exchange import FAILURE_S, Exchange
from arena.gateway.model.ledger import Ledger, Tokens, opened
from arena.gateway.model.own_request import LIMIT_S, ask
from arena.gateway.model.redact import plain_message, scrubbed
from arena.gateway.model.state import RunState
from arena.gateway.model.upstream import (
    CONNECTIONS,
    HEAD_BYTES,
    Proxy,
    Upstream,
    check_repeated_headers,
    connection_pool,
    environment_proxy,
    tls_context,
)
from arena.gateway.model.usage import price
from arena.gateway.unix_server import Refusal, accept, serving

BODY_S = 60.0
HELD_BYTES = 48 << 20
"""Of all request bodies in flight together."""
HEADERS = 64
"""Of one request; agent CLIs send 25."""
ERROR_CHARS = 300
WATCH_S = 1.0
CHECKS = 300
"""Requests of arena's own in one run, at most: an agent can cause them, and the user pays."""
FAST_CHECKS, CHECK_PAUSE_S = 20, 5.0
"""The first of them follow each other at once, the others after a pause."""
LIMIT_PAUSE_S, CHECK_AGAIN_S = 5.0, 0.5
"""Between requests of arena's own once the sandbox is empty. More of them after a limit would keep it used up."""
RECORDED_S, RECORDED_POLL_S = 5.0, 0.005
"""How long the requests of an agent that has ended may take until they are recorded, and how often that is looked up."""
QUIET_S = 60.0
"""Providers limit requests by the minute. Earlier after a request of the agent, such a limit confirms no failure."""
NO_RETRY = {"x-should-retry": "false"}
"""The agent programs' client libraries obey this header."""
SILENT = logging.Logger("gateway", logging.CRITICAL + 1)
"""For aiohttp: otherwise a sandbox could write on arena's standard error."""


@contextmanager
def serve(path: Path, ledger: Path, access: ModelAccess) -> Iterator[Gateway]:
    """Serve on a new unix socket `path` for the length of the block, and record every request in a new file `ledger`.

    UsageError when a cap cannot be kept; OSError when it cannot begin.
    """
    has_price = access.route.broker or price(access.route.prices, access.model, Tokens(1, output=1)) is not None
    if access.caps.cost_usd is not None and not has_price:
        raise UsageError(
            f"the price of {access.model} by {access.route.title} is unknown, so the gateway cannot keep a cap in USD: "
            "give a cap in tokens or in requests"
        )
    context, proxy = tls_context(access.authorities), environment_proxy(access.route.base_url)
    with opened(ledger, access.patience_s) as open_ledger:
        gateway = Gateway(access, open_ledger)
        try:
            with serving(path, partial(_serve, gateway, context, proxy), gateway.crashed):
                try:
                    yield gateway
                finally:
                    gateway.leaving()
        finally:
            gateway.close()


class Gateway(RunState):
    """A gateway that serves, with the state of its run."""

    def __init__(self, access: ModelAccess, ledger: Ledger) -> None:
        super().__init__(access, ledger)
        self.key = f"arena-{secrets.token_hex(16)}"
        """Replaces the real key inside the sandbox; worthless anywhere else and after the run."""
        self._asking = 0
        """The agent's requests that have gone out and not ended."""
        self._most_asking = 0
        self._asked_s = 0.0
        """When the agent's last request went out or ended, on the monotonic clock."""
        self._checks = 0
        self._checking = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._upstream: Upstream | None = None
        self.troubles: list[str] = []
        """Bugs of arena, as text."""
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._held_bytes = 0

    @property
    def in_flight(self) -> int:
        """Requests that have gone out and not ended, with those that arena is about to send itself."""
        return self._asking + (self.doubts.is_set() or self._checking.locked() or self.resuming)

    @property
    def asking(self) -> str:
        """What the agent's requests are doing, for a display."""
        return self.asking_words(self._asking)

    async def settle_doubts(self, upstream: Upstream) -> None:
        """Until cancelled, send a request of arena's own when something looks like a failure of the provider."""
        self._loop, self._upstream = asyncio.get_running_loop(), upstream
        while True:
            await self.doubts.wait()
            await self._check(upstream)
            await asyncio.sleep(CHECK_PAUSE_S if self._checks > FAST_CHECKS else 0)

    async def _check(self, upstream: Upstream) -> float:
        """Send a request of arena's own. Returns the seconds after which a later one may show more; 0: never."""
        async with self._checking:
            self.doubts.clear()
            if not self.unsettled or self._checks == CHECKS:  # after the last one no failure is believed, and the run counts
                return 0.0
            self._checks += 1
            sent_s, self._most_asking = time.monotonic(), self._asking
            own = await ask(self._access, upstream)
            quiet = sent_s - self._asked_s >= QUIET_S
            # The agent may keep the provider busy, or use up what the key may ask in a minute, an hour or a day.
            conclusive = self._most_asking == 0 and (not own.limit or (quiet and self.little_asked))
            self.checked(sent_s, own.failed, conclusive=conclusive, account=own.account)
            if not self.unsettled or (own.limit and not self.little_asked):
                return 0.0
            return LIMIT_PAUSE_S if own.limit else CHECK_AGAIN_S

    def settle(self) -> None:
        """Settle what still decides the run's status. Call it from another thread, when the sandbox is empty."""
        if self._loop is None or self._upstream is None or self._loop.is_closed():
            return
        with contextlib.suppress(TimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(self._settle(self._upstream), self._loop).result(QUIET_S + 3 * LIMIT_S)

    async def _recorded(self) -> None:
        """Wait until the agent's requests are recorded: it may read its last answer and end before that one's end is."""
        until_s = time.monotonic() + RECORDED_S
        while self._asking and time.monotonic() < until_s:
            await asyncio.sleep(RECORDED_POLL_S)

    async def _failures_recorded(self) -> None:
        """Wait for the rest of errors: a program may ask again by their heads, and be answered well before they are recorded."""
        while any(time.monotonic() < seen_s + FAILURE_S for seen_s in self.failing.values()):
            await asyncio.sleep(RECORDED_POLL_S)

    async def _settle(self, upstream: Upstream) -> None:
        await self._recorded()
        while pause_s := await self._check(upstream):
            await asyncio.sleep(max(0.1, min(pause_s, self._asked_s + QUIET_S - time.monotonic())))

    async def resumable(self, upstream: Upstream) -> bool:
        """Whether the provider broke off the agent's command, which has ended, and answers again: waits for that answer.

        The sandbox decides when it asks. It gains nothing by it: the answer is about the provider, and the number is bounded.
        """
        await self._recorded()
        if self.resuming or self.resumed == RESUMES:
            return False
        self.resuming = True
        try:
            while self.broken_off and self._checks < CHECKS:
                async with self._checking:
                    self._checks += 1
                    own = await ask(self._access, upstream)
                    self.record_check(own.failed, conclusive=False)
                if own.account:
                    return False
                if not own.failed and self.broken_off:
                    self.resumed, self.resumed_s = self.resumed + 1, time.monotonic()
                    return True
                await asyncio.sleep(CHECK_PAUSE_S)
            return False
        finally:
            self.resuming = False

    async def watch(self) -> None:
        """Until cancelled, check whether the provider has failed for too long."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.check_patience()

    async def handle(self, upstream: Upstream, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one request of the sandbox."""
        if (request.method, request.raw_path) == ("POST", RESUME_PATH):
            return web.Response(status=200 if await self.resumable(upstream) else 409)
        self.arrived += 1
        try:
            return await self._answer(upstream, request)
        except Refusal as refusal:
            self.record_refusal(request.raw_path, refusal)
            return self._refuse(refusal)
        except (asyncio.CancelledError, ConnectionError):  # the program is gone
            raise
        except BaseException as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException) -> None:
        """Record a bug of arena, once: a sandbox may cause the same one any number of times."""
        text = self._bug("a request failed in the gateway", error)
        if text not in self.troubles[:10]:
            self.troubles.append(text)

    def crashed(self, error: BaseException) -> None:
        """End the run because the gateway itself has failed, a bug of arena."""
        text = self._bug("the gateway itself failed", error)
        self.troubles.append(text)
        self.end_run(Stop("crashed", text))

    def _bug(self, what: str, error: BaseException) -> str:
        return plain_message(scrubbed(f"{what}, a bug of arena: {repr(error)[:ERROR_CHARS]}", self._access.key))

    async def _answer(self, upstream: Upstream, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "HEAD":  # claude begins with one, and some versions give up when it fails
            return web.Response()
        if "upgrade" in request.headers:
            return self._refuse(Refusal(426, "the gateway serves plain HTTP only, not websockets"))
        check_repeated_headers(request.headers.items())
        endpoint = policy.check_head(self._access, self.key, request.method, request.raw_path, request.headers)
        if endpoint.kind == "models":
            body = apis.models(self._access.api, self._access.model, endpoint.path)
            return web.Response(body=body, content_type="application/json")
        async with self._slots, self._body(request) as data:
            model_request = policy.check_body(self._access, endpoint, request.headers, data)
            await self._failures_recorded()
            self.admit(endpoint)
            return await self._exchange(upstream, request, endpoint, model_request, data)

    async def _exchange(
        self, upstream: Upstream, request: web.BaseRequest, endpoint: Endpoint, model_request: policy.ModelRequest, body: bytes
    ) -> web.StreamResponse:
        began = self.begin(endpoint, model_request)
        exchange = Exchange(self._access, self, began)
        self._asking += 1
        self._most_asking = max(self._most_asking, self._asking)
        self._asked_s = time.monotonic()
        try:
            return await exchange.run(request, upstream, endpoint, model_request, body)
        except Refusal as refusal:  # its line in the ledger records it already
            return self._refuse(refusal)
        finally:
            self.end(began, exchange.line())
            self.failing.pop(began.n, None)
            self._asked_s = time.monotonic()
            self._asking -= 1  # last, so that a reader who sees none in flight sees the usage of all

    @asynccontextmanager
    async def _body(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The request's body, held for the length of the block. Refusal 400, 408, 413 or 503."""
        held, size = bytearray(), 0  # not a list of pieces: there may be millions
        try:
            await self._receive(request, held)
            size, body = len(held), bytes(held)
            held.clear()
            yield body
        finally:
            self._held_bytes -= size or len(held)

    async def _receive(self, request: web.BaseRequest, held: bytearray) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.content.iter_any():
                    held += piece
                    self._held_bytes += len(piece)
                    if len(held) > policy.BODY_BYTES:
                        raise Refusal(413, f"the body is larger than {policy.BODY_BYTES >> 20} MiB")
                    if self._held_bytes > HELD_BYTES:  # programs send it again after this status
                        raise Refusal(503, f"the bodies of all requests are larger than {HELD_BYTES >> 20} MiB")
                    self.active_s = time.monotonic()
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {BODY_S:.0f} s") from None
        except web.RequestPayloadError:
            raise Refusal(400, "the body is not valid HTTP") from None

    def _refuse(self, refusal: Refusal) -> web.Response:
        body = apis.error(self._access.api, refusal.status, refusal.reason)
        headers = NO_RETRY if refusal.status < 500 else {}
        return web.Response(status=refusal.status, body=body, content_type="application/json", headers=headers)


async def _serve(gateway: Gateway, context: ssl.SSLContext, proxy: Proxy | None, listener: socket.socket) -> None:
    """Serve until cancelled; then end every answer in flight, and record that."""
    loop = asyncio.get_running_loop()
    async with connection_pool(context) as session:
        upstream = Upstream(session, proxy)
        server = web.Server(partial(gateway.handle, upstream), handler_cancellation=True)

        async def connection(client: socket.socket) -> None:
            gone = loop.create_future()
            transport, _ = await loop.connect_accepted_socket(lambda: _Connection(server, gone), client)
            try:
                await gone
            finally:
                transport.abort()

        for watcher in (gateway.watch(), gateway.settle_doubts(upstream)):
            loop.create_task(watcher).add_done_callback(partial(_report, gateway))
        try:
            await accept(listener, connection, gateway.failed)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def _report(gateway: Gateway, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        gateway.crashed(error)


class _Connection(web.RequestHandler):
    """One connection that reports its own end, which aiohttp's server does not."""

    def __init__(self, server: web.Server, gone: asyncio.Future[None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=SILENT,
            access_log=SILENT,
            auto_decompress=False,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=HEADERS,
        )
        self._gone = gone

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the end. The base class cancels the handler that still works for this connection."""
        super().connection_lost(exc)
        if not self._gone.done():
            self._gone.set_result(None)
