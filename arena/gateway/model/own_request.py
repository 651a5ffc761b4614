"""Arena's own small request to the run's model, which shows whether the provider fails or only an agent's request did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from arena.errors import message_of
from arena.gateway.config import ModelAccess
from arena.gateway.model.account import account_fault, is_limit
from arena.gateway.model.answers import AnswerReader, error_message, error_names, wrong_answer
from arena.gateway.model.apis import key_header, smallest_request
from arena.gateway.model.redact import KeyGuard, plain_message, scrubbed
from arena.gateway.model.upstream import Upstream, check_answer
from arena.gateway.model.usage import error_in, error_object
from arena.gateway.unix_server import Refusal
from arena.schema import AccountFault

LIMIT_S = 20.0
"""For the whole request. A provider that takes longer for one word fails."""
READ_BYTES = 1 << 16
OWN_FAULTS = (400, 413, 422)
"""Statuses that blame the request. They show that the provider is there and takes the key, so they confirm no failure of it."""


class OwnAnswer(NamedTuple):
    """What arena's own request has shown."""

    failed: str = ""
    """Why the provider did not answer it as it should; empty when it did."""
    limit: bool = False
    """Whether the failure is a limit on traffic, which the agent's own requests may have used up."""
    account: AccountFault | None = None
    """The fault of the user's account that the provider names."""


@dataclass
class Seen:
    """What has come of the answer."""

    status: int = 0
    reader: AnswerReader | None = None
    data: bytes = b""
    leaked: bool = False
    ended: bool = False


async def ask(access: ModelAccess, upstream: Upstream) -> OwnAnswer:
    """Send the request, and return what it has shown."""
    seen = Seen()
    try:
        async with asyncio.timeout(LIMIT_S):
            await _send(access, upstream, seen)
        return _judged(access, seen)
    except TimeoutError:
        # A model may think long before its one word.
        begun = seen.reader is not None and seen.reader.facts.model and not _judged(access, seen).failed
        return OwnAnswer("" if begun else f"no answer within {LIMIT_S:.0f} s")
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        return OwnAnswer(f"the answer is not valid HTTP ({type(error).__name__})")
    except (aiohttp.ClientError, OSError) as error:
        return OwnAnswer(plain_message(scrubbed(message_of(error), access.key)))
    except Refusal as refusal:
        return OwnAnswer(plain_message(refusal.reason))


async def _send(access: ModelAccess, upstream: Upstream, seen: Seen) -> None:
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


def _judged(access: ModelAccess, seen: Seen) -> OwnAnswer:
    """What the answer shows up to here."""
    if seen.leaked or seen.reader is None:
        return OwnAnswer("the answer holds the real key")
    facts = seen.reader.facts
    if seen.status >= 300:
        found = error_object(seen.data)
        names, message, text = error_names(found), error_message(found), f"status {seen.status}: {error_in(seen.data)}"
    else:
        names, message, text = facts.error_names, facts.error or "", f"an error inside the answer: {facts.error}"
    failed = plain_message(scrubbed(text, access.key))
    if seen.status >= 300 or facts.error is not None:
        if account := account_fault(access.api, seen.status, names, message):
            return OwnAnswer(failed, account=account)
        blames_request = seen.status in OWN_FAULTS or (seen.status < 300 and facts.own_fault)
        return OwnAnswer() if blames_request else OwnAnswer(failed, limit=is_limit(seen.status, names))
    if wrong := wrong_answer(access, facts):
        return OwnAnswer(plain_message(scrubbed(wrong, access.key)))
    unfinished = seen.ended and facts.finish is None and len(seen.data) < READ_BYTES
    return OwnAnswer("an answer without a finish reason" if unfinished else "")
