"""Rules for which requests may go out: pure functions over a request's head and body."""

from __future__ import annotations

import hmac
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.gateway.config import ModelAccess
from arena.gateway.model import provider_tools
from arena.gateway.model.allowed import BROKER_FIELDS, COUNT_FIELDS, FIELDS
from arena.gateway.model.apis import Endpoint, Json, has_more_values, inner, parse_endpoint, shown_keys
from arena.gateway.model.provider_tools import WORD_CHARS, normalized
from arena.gateway.model.redact import plain_effort
from arena.gateway.unix_server import Refusal
from arena.schema import Api

BODY_BYTES = 12 << 20
"""Of a request's body, compressed and decompressed. The agent CLIs send up to 2 MB."""
VALUES = 300_000
"""In a body."""
NESTING = 200
"""Of a body. The gateway reads nearly 1,000 levels, and an answer may hold a request's own."""
MOST_TOKENS = 1 << 40
OBJECTS = {"generationconfig", "outputconfig", "reasoning", "streamoptions", "thinking"}
"""Fields whose content is checked. Google accepts an object in place of a list, and may accept more."""
PIN_NAMES = {"order", "only", "allowfallbacks", "datacollection"}
"""Names that `provider` may hold."""


class ModelRequest(NamedTuple):
    """What the gateway knows of a request that may go out."""

    effort: str | None
    """As the request writes it; None when the program leaves it to the provider."""
    stream: bool
    bytes: int
    """Of the body, decompressed."""
    max_tokens: int | None = None
    """The most tokens that it lets the provider generate; None when it sets no bound."""


def check_head(access: ModelAccess, key: str, method: str, target: str, headers: Mapping[str, str]) -> Endpoint:
    """The endpoint of a request, by its head. Refusal 400, 401, 404 or 415."""
    shown = shown_keys(headers, target)
    if not any(hmac.compare_digest(one.encode(errors="surrogateescape"), key.encode()) for one in shown):
        raise Refusal(401, "this is not the key of this run")
    endpoint = parse_endpoint(access.api, method, target)
    if endpoint.kind != "models":
        media, _, more = headers.get("Content-Type", "").lower().partition(";")
        if media.strip() != "application/json" or ("charset" in more and "utf-8" not in more):
            raise Refusal(415, "the body must be application/json in UTF-8")
        if headers.get("Content-Encoding", "").strip().lower() not in ("", "identity", "gzip", "deflate"):
            raise Refusal(415, "the body must be plain, gzip or deflate")
    return endpoint


def check_body(access: ModelAccess, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> ModelRequest:
    """The request in a body. Refusal when it may not go out."""
    compressed = headers.get("Content-Encoding", "").strip().lower() in ("gzip", "deflate")
    plain_body = _decompressed(body) if compressed else body
    data = _normalized_names(_parsed(plain_body))
    fields = FIELDS[access.api] | (BROKER_FIELDS if access.route.broker else frozenset())
    if access.api == "gemini" and endpoint.kind == "count":
        fields = COUNT_FIELDS
        if "generatecontentrequest" in data:
            if not isinstance(data["generatecontentrequest"], dict):
                raise Refusal(400, "`generateContentRequest` must be an object")
            _check_fields(access, endpoint, _normalized_names(data["generatecontentrequest"]), FIELDS["gemini"])
    _check_fields(access, endpoint, data, fields)
    if access.route.broker and endpoint.kind == "model":
        _check_pin(access.provider, data)
    stream = bool(data.get("stream")) or ":streamGenerateContent" in endpoint.path
    if stream and endpoint.kind == "model":
        _check_metered(access, data)
    if access.turns is not None and _answers(access.api, data) != 1:
        raise Refusal(403, "this run has a number of turns: a request may ask for one answer")
    return ModelRequest(plain_effort(_effort(access.api, data)), stream, len(plain_body), _max_tokens(access.api, data))


def _check_fields(access: ModelAccess, endpoint: Endpoint, body: Json, fields: frozenset[str]) -> None:
    """Refusal when the body names another model, or holds what may not go out. Its names are `normalized`."""
    _check_model(access, endpoint, body)
    for name in OBJECTS & body.keys():
        if not isinstance(body[name], dict | None):
            raise Refusal(400, f"`{name}` must be an object")
    provider_tools.check(access, body, fields)


def _check_metered(access: ModelAccess, body: Json) -> None:
    """With a cap in tokens or dollars a stream must report its usage; a broker's stream does so anyway."""
    reports = inner(body, "streamoptions").get("include_usage") is True
    if access.api == "chat" and access.caps.metered and not reports and not access.route.broker:
        raise Refusal(
            403, 'this run has a cap in tokens or dollars: the request must hold `stream_options` {"include_usage": true}'
        )


def _parsed(body: bytes) -> Json:
    if has_more_values(body, VALUES):
        raise Refusal(413, f"the body has more than {VALUES} values")
    try:
        data = json.loads(body.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not valid JSON in UTF-8") from None
    if not isinstance(data, dict):
        raise Refusal(400, "the body is not a JSON object")
    _check_nesting(data)
    return data


def _check_nesting(data: Json) -> None:
    level: list[Any] = [data]
    for _ in range(NESTING):
        containers = (item.values() if isinstance(item, dict) else item for item in level)
        level = [value for values in containers for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise Refusal(400, f"the body is nested more than {NESTING} levels deep")


def _decompressed(body: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        data = decompressor.decompress(body, BODY_BYTES)
    except zlib.error:
        raise Refusal(400, "the body cannot be decompressed") from None
    if decompressor.unconsumed_tail:
        raise Refusal(413, f"the body decompresses to more than {BODY_BYTES >> 20} MiB")
    if decompressor.unused_data or not decompressor.eof:  # the provider would read a second part, the gateway not
        raise Refusal(400, "the body is not one complete compressed piece")
    return data


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name written twice: the gateway would read the last value, and the provider perhaps the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal(400, "one object holds the same name twice")
    return found


def _normalized_names(data: Json) -> Json:
    """The same data with `normalized` names."""
    found = {normalized(name): value for name, value in data.items()}
    if len(found) != len(data):
        raise Refusal(400, "one object holds the same name in two spellings")
    return found


def _check_model(access: ModelAccess, endpoint: Endpoint, body: Json) -> None:
    named = body.get("model")
    if access.api != "gemini":
        wrong = named != access.model
    elif endpoint.model != access.model:
        wrong, named = True, endpoint.model
    else:
        wrong = named not in (None, access.model, f"models/{access.model}")
    if wrong:
        raise Refusal(403, f"this run uses model {access.model!r}, not {str(named)[:WORD_CHARS]!r}")
    if access.route.broker and ":online" in access.model:
        raise Refusal(403, "`:online` is not allowed: a web search")


def _check_pin(pin: Sequence[str], body: Json) -> None:
    """On a broker's route only the pinned providers may answer."""
    choice = body.get("provider")
    if not pin:
        if choice:
            raise Refusal(403, "`provider` is not allowed: in an unpinned run the broker alone chooses")
        return
    named = _normalized_names(choice) if isinstance(choice, dict) else {}
    if other := sorted(named.keys() - PIN_NAMES):
        raise Refusal(403, f"`provider` {other[0][:WORD_CHARS]!r} is not allowed: it could leave no provider to answer")
    order, only = named.get("order"), named.get("only")
    fixed = (order is not None or only is not None) and named.get("allowfallbacks") is False
    same = only is None or (isinstance(only, list) and sorted(map(str, only)) == sorted(pin))
    if not (fixed and same and order in (None, list(pin))):
        wanted = json.dumps({"order": list(pin), "allow_fallbacks": False})
        raise Refusal(403, f"this run is pinned: the request must hold `provider` {wanted}")


def _effort(api: Api, body: Json) -> object:
    if api == "gemini":
        thinking = _normalized_names(inner(_normalized_names(inner(body, "generationconfig")), "thinkingconfig"))
        return thinking.get("thinkinglevel") or _budget(thinking.get("thinkingbudget"))
    thinking, reasoning = inner(body, "thinking"), inner(body, "reasoning")
    return (
        inner(body, "outputconfig").get("effort")
        or reasoning.get("effort")
        or body.get("reasoningeffort")
        or thinking.get("effort")
        or _budget(thinking.get("budget_tokens"))
        or _budget(reasoning.get("max_tokens"))
        or _budget(body.get("thinkingbudget"))
        or thinking.get("type")
    )


def _max_tokens(api: Api, body: Json) -> int | None:
    settings = _normalized_names(inner(body, "generationconfig")) if api == "gemini" else body
    named = [settings.get(name) for name in ("maxtokens", "maxcompletiontokens", "maxoutputtokens")]
    bounds = [bound for bound in named if isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0]
    answers = _answers(api, body)
    return min(max(bounds) * (1 if answers is None else answers), MOST_TOKENS) if bounds else None


def _answers(api: Api, body: Json) -> int | None:
    """How many answers a request asks for; None where it says it in anything but a whole number."""
    settings = _normalized_names(inner(body, "generationconfig")) if api == "gemini" else body
    answers = settings.get("candidatecount" if api == "gemini" else "n")
    if answers is None:
        return 1
    return max(answers, 1) if isinstance(answers, int) else None


def _budget(tokens: object) -> str | None:
    return None if tokens is None else f"{tokens} tokens"
