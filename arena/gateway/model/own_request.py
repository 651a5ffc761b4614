"""Arena's own small request to the run's model, which shows whether the provider fails or only an agent's request did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from arena.gateway.config import ModelAccess
from arena.gateway.model.answers import AnswerReader, wrong_answer
from arena.gateway.model.apis import key_header, smallest_request
from arena.gateway.model.redact import KeyGuard, plain_message, scrubbed
from arena.gateway.model.upstream import Upstream, check_answer
from arena.gateway.model.usage import bad_google_key, error_in
from arena.gateway.unix_server import Refusal

LIMIT_S = 20.0
"""For the whole request. A provider that takes longer for one word fails."""
READ_BYTES = 1 << 16
OWN_FAULTS = (400, 413, 422)
"""Statuses that blame the request. They show that the provider is there and takes the key, so they confirm no failure of it."""


@dataclass
class Seen:
    """What has come of the answer."""

    status: int = 0
    reader: AnswerReader | None = None
    data: bytes = b""
    leaked: bool = False
    ended: bool = False


async def own_failure(access: ModelAccess, upstream: Upstream) -> str:
    """Why the provider did not answer arena's own request as it should; empty when it did."""
    seen = Seen()
    try:
        async with asyncio.timeout(LIMIT_S):
            await _ask(access, upstream, seen)
        return plain_message(scrubbed(_fault(access, seen), access.key))
    except TimeoutError:
        # A model may think long before its one word.
        return "" if seen.reader and seen.reader.facts.model and not _fault(access, seen) else f"no answer within {LIMIT_S:.0f} s"
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        return f"the answer is not valid HTTP ({type(error).__name__})"
    except (aiohttp.ClientError, OSError) as error:
        return plain_message(scrubbed(str(error) or type(error).__name__, access.key))
    except Refusal as refusal:
        return plain_message(refusal.reason)


async def _ask(access: ModelAccess, upstream: Upstream, seen: Seen) -> None:
    path, body = smallest_request(access.api, access.model, access.provider)
    # A stream, as agents ask for one.
    path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    given: dict[str, Any] = body | ({} if access.api == "gemini" else {"stream": True})
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "anthropic-version": "2023-06-01"}
    async with upstream.session.post(
        URL(f"{access.route.base_url}/{path}", encoded=True),
        data=json.dumps(given).encode(),
        headers=CIMultiDict(headers | key_header(access.api, access.route, access.key)),
        allow_redirects=False,
        proxy=upstream.proxy and upstream.proxy.url,
        proxy_headers=upstream.proxy and upstream.proxy.headers,
    ) as answer:
        check_answer(answer)
        seen.status = answer.status
        seen.reader = AnswerReader(access.api, answer.headers.get("Content-Type", ""))
        guard = KeyGuard(access.key)
        while len(seen.data) < READ_BYTES and (piece := await answer.content.readany()):
            seen.data += piece
            guard.feed(piece)
            seen.leaked = guard.found
            seen.reader.feed(piece)
        seen.reader.end()
        seen.ended = True


def _fault(access: ModelAccess, seen: Seen) -> str:
    """What is wrong with the answer; empty when nothing is."""
    if seen.leaked or seen.reader is None:
        return "the answer holds the real key"
    if seen.status in OWN_FAULTS and not bad_google_key(access, seen.data):
        return ""
    if seen.status >= 300:
        return f"status {seen.status}: {error_in(seen.data)}"
    facts = seen.reader.facts
    if facts.error is not None and not facts.own_fault:
        return f"an error inside the answer: {facts.error}"
    if wrong := wrong_answer(access, facts):
        return wrong
    return "an answer without a finish reason" if seen.ended and facts.finish is None and len(seen.data) < READ_BYTES else ""
