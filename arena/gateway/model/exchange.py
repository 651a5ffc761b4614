"""One request on its way to the provider, and its answer on the way back: forwarded first, read second.

When the program leaves early, the gateway reads the answer on for a while: the run pays for it, and its end holds the usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from arena.errors import message_of
from arena.gateway.config import ModelAccess
from arena.gateway.model.answers import AnswerReader, Facts, wrong_answer
from arena.gateway.model.apis import Endpoint, key_header
from arena.gateway.model.ledger import Began, Ended, How
from arena.gateway.model.policy import ModelRequest
from arena.gateway.model.redact import KeyGuard, holds_key, plain_message, scrubbed
from arena.gateway.model.state import RunState
from arena.gateway.model.upstream import STREAM_HEAD_S, WHOLE_HEAD_S, Upstream, answer_headers, check_answer, request_headers
from arena.gateway.model.usage import ObservedAnswer
from arena.gateway.unix_server import Refusal

STALLED_S = 50.0
"""A program that leaves a stream after the provider was silent for this long had a reason."""
REST_S, REST_BYTES = 60.0, 16 << 20
"""Limits on reading an answer that the program has left."""
FAILURE_S = 1.0
"""For the rest of an error, which tells the cause: its head comes first, and a program may end by it, or ask again."""
ENDING_S = 0.5
"""How often that reading looks whether arena ends the sandbox."""
ERROR_BYTES = 1 << 16
"""Kept of an error's body."""
LEAKED = "the provider's answer holds the real key"


class Exchange:
    """One request and its answer."""

    def __init__(self, access: ModelAccess, state: RunState, began: Began) -> None:
        self._access = access
        self._state = state
        self._began = began
        self._observed = ObservedAnswer()
        self._silent_since_s: float | None = None
        """Since when the provider has been silent, on the monotonic clock; None while the gateway is working."""
        self._reader: AnswerReader | None = None
        self._guard = KeyGuard(access.key)
        self._sending: asyncio.Task[aiohttp.ClientResponse] | None = None
        """The request on its way to the provider, whether or not the program still waits."""
        self._broken: BaseException | None = None
        """How the provider's connection broke."""

    def line(self) -> Ended:
        """The ledger line for the end of this exchange."""
        return self._observed.line(self._access, self._began, self._state.now_s())

    async def run(
        self, request: web.BaseRequest, upstream: Upstream, endpoint: Endpoint, model_request: ModelRequest, body: bytes
    ) -> web.StreamResponse:
        """Pass the request on, and the answer back. Refusal 502 or 504 when there is no answer."""
        observed, arriving = self._observed, self._state.arriving
        self._silent_since_s = time.monotonic()
        try:
            answer = await self._send(request, upstream, endpoint, model_request, body)
            if answer.status < 300 and endpoint.kind == "model":
                arriving[self._began.n] = self._began.s
            return await self._deliver(request, answer)
        except Refusal as refusal:
            observed.how, observed.error = self._fault("error"), refusal.reason
            raise
        except (asyncio.CancelledError, ConnectionError):  # the program's end; errors of the provider's end never reach this
            arriving.pop(self._began.n, None)
            failed, broken = (observed.status or 200) >= 300, observed.facts.error is not None
            # The program had all that an answer says, and did not wait for the end of its stream.
            decided = failed or broken or observed.facts.finish is not None
            observed.how = "left" if broken else self._why_left(model_request)
            if failed:
                await _within(self._read_rest(), FAILURE_S, lambda: False)
            elif observed.how == "left" and not broken and not self._state.ending:  # recorded before what it asks next
                await _within(self._read_rest(), REST_S, lambda: self._state.ending)
            if decided and observed.how == "left":  # the status, the error or the finish reason says how it ended
                observed.how = None
            raise
        finally:
            arriving.pop(self._began.n, None)
            self._close()

    def _close(self) -> None:
        sending = self._sending
        if sending is None or sending.cancel() or sending.cancelled() or sending.exception() is not None:
            return
        sending.result().close()

    async def _send(
        self, request: web.BaseRequest, upstream: Upstream, endpoint: Endpoint, model_request: ModelRequest, body: bytes
    ) -> aiohttp.ClientResponse:
        head_s = STREAM_HEAD_S if model_request.stream else WHOLE_HEAD_S
        key = key_header(self._access.api, self._access.route, self._access.key)
        self._sending = asyncio.ensure_future(
            upstream.session.post(
                URL(f"{self._access.route.base_url}/{endpoint.path}", encoded=True),
                data=body,
                headers=CIMultiDict([*request_headers(request.headers.items(), self._access.route.allow.headers), *key.items()]),
                allow_redirects=False,
                proxy=upstream.proxy and upstream.proxy.url,
                proxy_headers=upstream.proxy and upstream.proxy.headers,
            )
        )
        try:
            async with asyncio.timeout(head_s):
                return await asyncio.shield(self._sending)  # it goes on when the program leaves: the provider works on it
        except TimeoutError:
            raise Refusal(504, f"the provider did not begin to answer within {head_s:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Refusal(502, f"the provider cannot be reached: {self._error_text(error)}") from None

    async def _deliver(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        self._silent_since_s, self._observed.status = None, answer.status
        if answer.status >= 300:
            self._failing()
        check_answer(answer)
        reader = self._reader = AnswerReader(self._access.api, answer.headers.get("Content-Type", ""))
        headers = answer_headers(answer.headers.items())
        if holds_key("\n".join(word for header in headers for word in header).encode(errors="replace"), self._access.key):
            return self._stop(request, web.StreamResponse(), LEAKED)
        # Not the provider's own words beside the status: no program needs them.
        response = web.StreamResponse(status=answer.status, headers=CIMultiDict(headers))
        await response.prepare(request)
        guard = self._guard
        while True:
            try:
                data = await self._next(answer)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._observed.how, self._observed.error = self._fault("cut"), self._error_text(error)
                return _abort(request, response)
            if not data:
                break
            self._state.active_s = time.monotonic()
            if self._observed.first_byte_s is None:
                self._observed.first_byte_s = round(self._state.now_s() - self._began.s, 3)
            try:
                if passes := guard.feed(data):
                    await response.write(passes)
            finally:  # also when the program leaves meanwhile
                self._read(reader, data)
            if wrong := LEAKED if guard.found else wrong_answer(self._access, self._observed.facts):
                return self._stop(request, response, wrong)
        reader.end()
        self._observed.facts = reader.facts
        if wrong := wrong_answer(self._access, self._observed.facts):
            return self._stop(request, response, wrong)
        await response.write_eof(guard.rest())
        return response

    async def _next(self, answer: aiohttp.ClientResponse) -> bytes:
        self._silent_since_s, content = time.monotonic(), answer.content
        if self._broken is None and (broken := content.exception()) is not None:
            # aiohttp would raise it before it hands out what arrived earlier.
            self._broken = broken
            content.set_exception(None)  # type: ignore[arg-type]
            data = content.read_nowait()
        else:
            data = b""
        if not data and self._broken is not None:
            raise self._broken
        data = data or await content.readany()
        self._silent_since_s = None
        self._observed.read_bytes += len(data)
        return data

    async def _read_rest(self) -> None:
        """Read what the program no longer wants, from the answer's beginning if that has not come yet."""
        observed, most_bytes = self._observed, self._observed.read_bytes + REST_BYTES
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, Refusal):
            assert self._sending is not None
            answer = await self._sending
            if self._reader is None:
                observed.status = answer.status
                check_answer(answer)
                self._reader = AnswerReader(self._access.api, answer.headers.get("Content-Type", ""))
            while observed.read_bytes < most_bytes and (data := await self._next(answer)):
                self._guard.feed(data)
                self._read(self._reader, data)
            self._reader.end()
            observed.facts = self._reader.facts
        if wrong := LEAKED if self._guard.found else wrong_answer(self._access, observed.facts):
            self._record_stop(wrong)

    def _why_left(self, model_request: ModelRequest) -> How:
        """Why the program left. Only a silent stream counts as a fault: other answers begin when they are complete."""
        silent = self._silent_since_s is not None and time.monotonic() - self._silent_since_s > STALLED_S
        return self._fault("stalled") if silent and model_request.stream else "left"

    def _fault(self, how: How) -> How:
        """The provider's fault, but not once arena has begun to end the sandbox."""
        return "left" if self._state.ending else how

    def _read(self, reader: AnswerReader, data: bytes) -> None:
        observed = self._observed
        if observed.status is not None and observed.status >= 300:
            observed.error_body += data[: ERROR_BYTES - len(observed.error_body)]
        elif self._began.kind == "model":
            reader.feed(data)
            observed.facts = reader.facts
            if reader.facts.error is not None:
                self._failing()

    def _failing(self) -> None:
        """Note that the program may know of a failure from now on."""
        self._state.failing.setdefault(self._began.n, time.monotonic())

    def _stop(self, request: web.BaseRequest, response: web.StreamResponse, reason: str) -> web.StreamResponse:
        self._record_stop(reason)
        return _abort(request, response)

    def _record_stop(self, reason: str) -> None:
        observed = self._observed
        observed.how, observed.error = "stopped", reason
        if reason == LEAKED:  # no name, number or message of this answer may come into a record
            observed.facts, observed.error_body = Facts(), b""

    def _error_text(self, error: BaseException) -> str:
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):  # its text quotes a part of the answer
            return f"the answer is not valid HTTP ({type(error).__name__})"
        return plain_message(scrubbed(message_of(error), self._access.key))


def _abort(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Break the program's connection, as the provider's own failure would."""
    if request.transport is not None:
        request.transport.abort()
    return response


async def _within(work: Coroutine[None, None, None], limit_s: float, ending: Callable[[], bool]) -> None:
    """Do the work for `limit_s` at most, and not after the run ends.

    The gateway may learn twice that a program left: by a write that fails, and then by being cancelled.
    """
    task, end_s = asyncio.ensure_future(work), time.monotonic() + limit_s
    while not task.done() and not ending() and (left_s := end_s - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=min(left_s, ENDING_S))
    task.cancel()
