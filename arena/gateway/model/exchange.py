"""One request on its way to the provider, and the answer on its way back: forwarded first, read second.

What the program leaves in the middle is read to its end, as far as that comes soon: it is paid for, and the usage stands there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine

import aiohttp
from aiohttp import web
from yarl import URL

from arena.gateway.config import ModelAccess
from arena.gateway.model.apis import Place, key_header
from arena.gateway.model.ledger_lines import Began, Ended, How
from arena.gateway.model.outcome import Outcome
from arena.gateway.model.policy import Wish
from arena.gateway.model.redact import Guard, said, scrubbed
from arena.gateway.model.state import Account
from arena.gateway.model.stream import Meter, wrong_model, wrong_provider
from arena.gateway.model.upstream import STREAM_HEAD_S, WHOLE_HEAD_S, Upstream, checked, downward, headed, upward
from arena.gateway.refusal import Refusal

STALLED_S = 50.0
"""A program that leaves a stream after so long a silence of the provider had reason to."""
REST_S, REST_BYTES = 60.0, 16 << 20
"""Of an answer that the program has left."""
WORDS_BYTES = 1 << 16
LEAKED = "the provider's answer holds the real key"


class Exchange:
    """Of one request."""

    def __init__(self, asked: ModelAccess, account: Account, began: Began) -> None:
        self._asked = asked
        self._account = account
        self._began = began
        self._seen = Outcome()
        self._waits_s: float | None = None
        """Since when the provider has been silent, on the monotonic clock; None while it is our turn."""
        self._meter: Meter | None = None

    def line(self) -> Ended:
        """What the ledger is told when it has ended."""
        return self._seen.line(self._asked, self._began, self._account.now_s())

    async def run(self, request: web.BaseRequest, up: Upstream, at: Place, wish: Wish, body: bytes) -> web.StreamResponse:
        """Pass the request on, and the answer back. Refusal 502 or 504 when there is none."""
        seen, well = self._seen, self._account.well
        self._waits_s = time.monotonic()
        answer = None
        try:
            answer = await self._ask(request, up, at, wish, body)
            if answer.status < 300 and at.kind == "model":
                well[self._began.n] = self._began.s
            return await self._deliver(request, answer)
        except Refusal as refusal:
            seen.how, seen.error = self._fault("error"), refusal.reason
            raise
        except (asyncio.CancelledError, ConnectionError):  # of the program: of the provider's ends, none comes to here
            well.pop(self._began.n, None)
            seen.how = self._left(wish)
            if answer is not None and answer.status < 300 and seen.how == "left" and not self._account.over:
                await within(self._rest(answer), REST_S, lambda: self._account.over)
            raise
        finally:
            well.pop(self._began.n, None)
            if answer is not None:
                answer.close()

    async def _ask(self, request: web.BaseRequest, up: Upstream, at: Place, wish: Wish, body: bytes) -> aiohttp.ClientResponse:
        head_s = STREAM_HEAD_S if wish.stream else WHOLE_HEAD_S
        key = key_header(self._asked.api, self._asked.route, self._asked.key)
        try:
            async with asyncio.timeout(head_s):
                return await up.session.post(
                    URL(f"{self._asked.route.base_url}/{at.path}", encoded=True),
                    data=body,
                    headers=headed([*upward(request.headers.items()), *key.items()]),
                    allow_redirects=False,
                    proxy=up.proxy and up.proxy.url,
                    proxy_headers=up.proxy and up.proxy.headers,
                )
        except TimeoutError:
            raise Refusal(504, f"the provider did not begin to answer within {head_s:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Refusal(502, f"the provider cannot be reached: {self._words(error)}") from None

    async def _deliver(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        self._waits_s, self._seen.status = None, answer.status
        checked(answer)
        meter = self._meter = Meter(self._asked.api, answer.headers.get("Content-Type", ""))
        pairs = downward(answer.headers.items())
        if self._asked.key and any(self._asked.key in value for _, value in pairs):
            return self._stop(request, web.StreamResponse(), LEAKED)
        out = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headed(pairs))
        await out.prepare(request)
        guard = Guard(self._asked.key)
        while True:
            try:
                data = await self._next(answer)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._seen.how, self._seen.error = self._fault("cut"), self._words(error)
                return _abort(request, out)
            if not data:
                break
            self._heard()
            try:
                if passes := guard.feed(data):
                    await out.write(passes)
            finally:  # also when the program leaves meanwhile
                self._read(meter, data)
            if wrong := LEAKED if guard.found else self._wrong():
                return self._stop(request, out, wrong)
        meter.end()
        self._seen.facts = meter.facts
        if wrong := self._wrong():
            return self._stop(request, out, wrong)
        await out.write_eof(guard.rest())
        return out

    async def _next(self, answer: aiohttp.ClientResponse) -> bytes:
        self._waits_s = time.monotonic()
        data = await answer.content.readany()
        self._waits_s = None
        self._seen.read_bytes += len(data)
        return data

    async def _rest(self, answer: aiohttp.ClientResponse) -> None:
        """Read what the program does not want any more."""
        meter, most = self._meter, self._seen.read_bytes + REST_BYTES
        if meter is None:  # it was not even to be passed on
            return
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            while self._seen.read_bytes < most and (data := await self._next(answer)):
                self._read(meter, data)
            meter.end()
            self._seen.facts = meter.facts
        if wrong := self._wrong():
            self._seen.how, self._seen.error = "stopped", wrong

    def _left(self, wish: Wish) -> How:
        """Why the program has gone. Only a stream that is silent is at fault: other answers begin when they are complete."""
        silent = self._waits_s is not None and time.monotonic() - self._waits_s > STALLED_S
        return self._fault("stalled") if silent and wish.stream else "left"

    def _fault(self, how: How) -> How:
        """When arena ends the box, nothing is anybody's."""
        return "left" if self._account.over else how

    def _heard(self) -> None:
        self._account.heard()
        if self._seen.first_byte_s is None:
            self._seen.first_byte_s = round(self._account.now_s() - self._began.s, 3)

    def _read(self, meter: Meter, data: bytes) -> None:
        seen = self._seen
        if seen.status is not None and seen.status >= 300:
            seen.words += data[: WORDS_BYTES - len(seen.words)]
        elif self._began.kind == "model":
            meter.feed(data)
            seen.facts = meter.facts

    def _wrong(self) -> str | None:
        """Who answered, and should not have."""
        facts, asked = self._seen.facts, self._asked
        if wrong_model(asked.model, facts.model, broker=asked.route.broker):
            return f"model {facts.model!r} answered, and {asked.model!r} was asked"
        if asked.route.broker and wrong_provider(asked.provider, facts.provider):
            return f"provider {facts.provider!r} answered, and this run is pinned to {', '.join(asked.provider)}"
        return None

    def _stop(self, request: web.BaseRequest, out: web.StreamResponse, words: str) -> web.StreamResponse:
        self._seen.how, self._seen.error = "stopped", words
        return _abort(request, out)

    def _words(self, error: BaseException) -> str:
        return said(scrubbed(str(error) or type(error).__name__, self._asked.key))


def _abort(request: web.BaseRequest, out: web.StreamResponse) -> web.StreamResponse:
    """The program sees its connection break, as it would without us."""
    if request.transport is not None:
        request.transport.abort()
    return out


async def within(work: Coroutine[None, None, None], limit_s: float, over: Callable[[], bool]) -> None:
    """Do it, for so long at most, and not after the run.

    Of a program that leaves we may hear twice: by a write that fails, and then by being cancelled.
    """
    task, end_s = asyncio.ensure_future(work), time.monotonic() + limit_s
    while not task.done() and not over() and (left_s := end_s - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=left_s)
    task.cancel()
