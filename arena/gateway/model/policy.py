"""Whether a request may go out, and what it asks for: pure functions over its head and its body."""

from __future__ import annotations

import hmac
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.gateway.config import ModelAccess
from arena.gateway.model import provider_tools
from arena.gateway.model.apis import Place, place, shown_keys
from arena.gateway.model.provider_tools import SAID, Json, plain
from arena.gateway.model.redact import effort
from arena.gateway.refusal import Refusal
from arena.schema import Api

BODY_BYTES = 64 << 20
"""Of a request, and of what it unpacks to."""
VALUES = 4_000_000
"""In a body: each takes 60 bytes and more of our memory, and as few as two of the body."""


OBJECTS = {"generationconfig", "outputconfig", "reasoning", "streamoptions", "thinking"}
"""Fields that are looked into. Google takes an object for a list and may take more."""
PINS = {"order", "only", "allowfallbacks", "datacollection"}
"""What a pin may say."""


class Wish(NamedTuple):
    """What there is to know of a request that may go out."""

    effort: str | None
    """As it stands there; None where the program leaves it to the provider."""
    stream: bool
    bytes: int
    """Of the body, unpacked."""


def admitted(asked: ModelAccess, key: str, method: str, target: str, headers: Mapping[str, str]) -> Place:
    """What a request is for, by its head. Refusal 400, 401, 404 or 415."""
    shown = shown_keys(headers, target)
    if not any(hmac.compare_digest(one.encode(errors="surrogateescape"), key.encode()) for one in shown):
        raise Refusal(401, "this is not the key of this run")
    found = place(asked.api, method, target)
    if found.kind != "models":
        media, _, more = headers.get("Content-Type", "").lower().partition(";")
        if media.strip() != "application/json" or ("charset" in more and "utf-8" not in more):
            raise Refusal(415, "the body must be application/json in UTF-8")
        if headers.get("Content-Encoding", "").strip().lower() not in ("", "identity", "gzip", "deflate"):
            raise Refusal(415, "the body must be plain, gzip or deflate")
    return found


def wish(asked: ModelAccess, at: Place, headers: Mapping[str, str], body: bytes) -> Wish:
    """What a request asks for. Refusal when it may not go out."""
    plain_body = _plain_body(headers, body)
    data = _named(_parsed(plain_body))
    _model(asked, at, data)
    for name in OBJECTS & data.keys():
        if not isinstance(data[name], dict | None):
            raise Refusal(400, f"`{name}` is an object")
    if asked.route.broker and at.kind == "model":
        _pin(asked.provider, data)
    provider_tools.check(asked.api, asked.route.broker, data)
    stream = bool(data.get("stream")) or ":streamGenerateContent" in at.path
    if stream and at.kind == "model":
        _metered(asked, data)
    return Wish(effort(_effort(asked.api, data)), stream, len(plain_body))


def _metered(asked: ModelAccess, body: Json) -> None:
    """With a cap in tokens or dollars a stream has to tell its numbers; a broker's does so anyway."""
    told = _inner(body, "streamoptions").get("include_usage") is True
    if asked.api == "chat" and asked.caps.metered and not told and not asked.route.broker:
        raise Refusal(
            403, 'this run has a cap in tokens or dollars: the request must say `stream_options` {"include_usage": true}'
        )


def _plain_body(headers: Mapping[str, str], body: bytes) -> bytes:
    packed = headers.get("Content-Encoding", "").strip().lower() in ("gzip", "deflate")
    return _unpacked(body) if packed else body


def _parsed(body: bytes) -> Json:
    if sum(body.count(sign) for sign in b",[{") > VALUES:
        raise Refusal(413, f"the body has more than {VALUES} values")
    try:
        data = json.loads(body.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(data, dict):
        raise Refusal(400, "the body is no JSON object")
    return data


def _unpacked(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(body, BODY_BYTES)
    except zlib.error:
        raise Refusal(400, "the body cannot be unpacked") from None
    if unpacker.unconsumed_tail:
        raise Refusal(413, f"the body unpacks to more than {BODY_BYTES >> 20} MiB")
    if unpacker.unused_data or not unpacker.eof:  # a second part would be read by the provider, but not by us
        raise Refusal(400, "the body is packed in other than one whole piece")
    return data


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that is written twice we would read the last value, and the provider perhaps the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal(400, "a name is written twice in one object")
    return found


def _named(data: Json) -> Json:
    """The same with `plain` names."""
    found = {plain(name): value for name, value in data.items()}
    if len(found) != len(data):
        raise Refusal(400, "a name is written in two ways in one object")
    return found


def _model(asked: ModelAccess, at: Place, body: Json) -> None:
    named = body.get("model")
    if asked.api != "gemini":
        wrong = named != asked.model
    elif at.model != asked.model:
        wrong, named = True, at.model
    else:
        wrong = named not in (None, asked.model, f"models/{asked.model}")
    if wrong:
        raise Refusal(403, f"this run is about model {asked.model!r}, not {str(named)[:SAID]!r}")
    if asked.route.broker and ":online" in asked.model:
        raise Refusal(403, "`:online` is not passed on: a web search")


def _pin(pin: Sequence[str], body: Json) -> None:
    """On a broker's route: nobody but the pinned providers may answer."""
    choice = body.get("provider")
    if not pin:
        if choice:
            raise Refusal(403, "`provider` is not passed on: in an unpinned run the broker chooses, and nobody else")
        return
    named = _named(choice) if isinstance(choice, dict) else {}
    if other := sorted(named.keys() - PINS):
        raise Refusal(403, f"`provider` {other[0][:SAID]!r} is not passed on: it could leave nobody who may answer")
    order, only = named.get("order"), named.get("only")
    kept = (order is not None or only is not None) and named.get("allowfallbacks") is False
    if not (kept and order in (None, list(pin)) and (only is None or (isinstance(only, list) and _same(only, pin)))):
        wanted = json.dumps({"order": list(pin), "allow_fallbacks": False})
        raise Refusal(403, f"this run is pinned: the request must say `provider` {wanted}")


def _same(only: Sequence[object], pin: Sequence[str]) -> bool:
    return sorted(map(str, only)) == sorted(pin)


def _effort(api: Api, body: Json) -> object:
    if api == "gemini":
        thinking = _named(_inner(_named(_inner(body, "generationconfig")), "thinkingconfig"))
        return thinking.get("thinkinglevel") or _budget(thinking.get("thinkingbudget"))
    thinking, reasoning = _inner(body, "thinking"), _inner(body, "reasoning")
    return (
        _inner(body, "outputconfig").get("effort")
        or reasoning.get("effort")
        or body.get("reasoningeffort")
        or thinking.get("effort")
        or _budget(thinking.get("budget_tokens"))
        or _budget(reasoning.get("max_tokens"))
        or _budget(body.get("thinkingbudget"))
        or thinking.get("type")
    )


def _inner(body: Json, name: str) -> Json:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _budget(tokens: object) -> str | None:
    return None if tokens is None else f"{tokens} tokens"
