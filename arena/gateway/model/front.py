"""The side of the model gateway that a box sees: who may ask, how much at once, and how a refusal is said."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model import apis, policy
from arena.gateway.model.apis import Place
from arena.gateway.model.exchange import Exchange
from arena.gateway.model.headers import once
from arena.gateway.model.ledger import Ledger
from arena.gateway.model.redact import scrubbed
from arena.gateway.model.state import Account
from arena.gateway.model.upstream import CONNECTIONS, Upstream
from arena.gateway.model.words import said
from arena.gateway.refusal import Refusal
from arena.schema import Usage

BODY_S = 60.0
HELD_BYTES = 256 << 20
"""Of all requests together that are on their way."""
SAID = 300
LOOK_S = 1.0
NEVER_AGAIN = {"x-should-retry": "false"}
"""The programs' own libraries mind it."""


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
