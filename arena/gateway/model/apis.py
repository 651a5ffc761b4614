"""The four interfaces: their paths, where they put a key, the form of their errors and lists of models, their JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from arena.gateway.unix_server import Refusal
from arena.schema import Api, Route

Json = Mapping[str, Any]
TARGET = re.compile(r"/(?:api/)?v1(?:beta)?/([!-\"$->@-~]+)(?:\?([!-\"$-~]*))?")
"""The targets of a program. The gateway drops the version, as the route's address has one too. No `#`."""
MODEL_PATHS: Mapping[Api, str] = {"anthropic": "messages", "responses": "responses", "chat": "chat/completions"}
GEMINI = re.compile(r"models/([^:]+):(streamGenerateContent|generateContent|countTokens)")
QUERY: Mapping[Api, str] = {"anthropic": "beta=true", "gemini": "alt=sse"}
"""What a query may hold. Other words change the answer: `fields=` would leave the usage out."""
MODELS = re.compile(r"models(/.*)?")

Kind = Literal["model", "count", "models"]
"""A request to the model; counting tokens, which is free; listing the models."""
BETWEEN_STRINGS = re.compile(rb'([^"]++)(?:"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))?+', re.DOTALL)
"""What stands before a string of JSON, and the string: also one without an end, so that no text takes long."""
WORDS = "Answer with one word."
STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 504: "DEADLINE_EXCEEDED"}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}


class Endpoint(NamedTuple):
    """The purpose of a request."""

    kind: Kind
    path: str
    """Below the route's base URL, with its query."""
    model: str | None = None
    """The model that the path names, if any."""


def parse_endpoint(api: Api, method: str, target: str) -> Endpoint:
    """The endpoint of a request. Refusal 400 or 404."""
    found = TARGET.fullmatch(target)
    if found is None:
        raise Refusal(404, f"{method} {target[:200]}: unknown path")
    path, query = found[1], found[2] or ""
    if method == "GET" and MODELS.fullmatch(path):
        return Endpoint("models", path)
    if method == "POST" and api == "gemini" and (named := GEMINI.fullmatch(path)):
        return Endpoint("count" if named[2] == "countTokens" else "model", path + _query(api, query), named[1])
    if method == "POST" and path == MODEL_PATHS.get(api):
        return Endpoint("model", path + _query(api, query))
    if method == "POST" and api == "anthropic" and path == "messages/count_tokens":
        return Endpoint("count", path + _query(api, query))
    raise Refusal(404, f"{method} {path[:200]}: only requests to the model by the interface {api!r} are passed on")


def _query(api: Api, query: str) -> str:
    """The part of the query that goes out. Refusal 400."""
    rest = [part for part in query.split("&") if part and not (api == "gemini" and part.startswith("key="))]
    if rest not in ([], [QUERY.get(api)]):
        raise Refusal(400, f"the query may hold only: {QUERY.get(api, 'nothing')}")
    return "".join(f"?{part}" for part in rest)


def shown_keys(headers: Mapping[str, str], target: str) -> list[str]:
    """The keys in a request, in any place that one of the interfaces uses."""
    query = re.findall(r"[?&]key=([^&]*)", target)
    bearer = headers.get("Authorization", "").split(" ", 1)
    found = [headers.get("x-api-key", ""), headers.get("x-goog-api-key", ""), *query]
    return [key for key in [*found, bearer[1].strip() if len(bearer) == 2 else ""] if key]


def key_header(api: Api, route: Route, key: str | None) -> dict[str, str]:
    """The real key, in the header that the route's provider reads."""
    if key is None:
        return {}
    own = {"gemini": "x-goog-api-key", "anthropic": "x-api-key"}.get(api)
    return {"Authorization": f"Bearer {key}"} if own is None or route.bearer else {own: key}


def smallest_request(api: Api, model: str, provider: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Path below the route's address and body of the smallest request of an interface: one short answer."""
    turn = {"role": "user", "content": WORDS}
    pin = {"provider": {"order": list(provider), "allow_fallbacks": False}} if provider else {}
    if api == "anthropic":
        return "messages", {"model": model, "max_tokens": 1, "messages": [turn], **pin}
    if api == "responses":
        return "responses", {"model": model, "max_output_tokens": 16, "input": WORDS, "store": False, **pin}
    if api == "chat":
        # No bound on the answer: models that reason refuse the one name of it, older servers the other.
        return "chat/completions", {"model": model, "messages": [turn], **pin}
    body = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}], "generationConfig": {"maxOutputTokens": 1}}
    return f"models/{model}:generateContent", body


def error(api: Api, status: int, reason: str) -> bytes:
    """The body of a refusal in the interface's own form, so that the program shows the message."""
    text = f"arena's gateway: {reason}"
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    body: dict[str, object]
    if api == "anthropic":
        body = {"type": "error", "error": {"type": kind, "message": text}}
    elif api == "gemini":
        body = {"error": {"code": status, "message": text, "status": STATUSES.get(status, "UNAVAILABLE")}}
    else:
        body = {"error": {"message": text, "type": kind, "param": None, "code": None}}
    return json.dumps(body).encode()


def models(api: Api, model: str, path: str) -> bytes:
    """A list with the run's one model, or the model itself when the path names one."""
    entry: dict[str, object]
    if api == "gemini":
        entry = {"name": f"models/{model}", "supportedGenerationMethods": ["generateContent", "countTokens"]}
        listed: dict[str, object] = {"models": [entry]}
    elif api == "anthropic":
        entry = {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
        listed = {"data": [entry], "has_more": False, "first_id": model, "last_id": model}
    else:
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "arena"}
        listed = {"object": "list", "data": [entry]}
    return json.dumps(listed if path == "models" else entry).encode()


def has_more_values(data: bytes, most: int) -> bool:
    """Whether JSON has more than that many values: each takes 60 bytes or more of memory, and as few as two of the data."""
    if sum(data.count(sign) for sign in b",[{") <= most:
        return False
    found = 0
    for part in BETWEEN_STRINGS.finditer(data):
        found += sum(part[1].count(sign) for sign in b",[{")
        if found > most:
            return True
    return False


def inner(body: Json, name: str) -> Json:
    """The object in an object's field; an empty one when the field holds something else."""
    found = body.get(name)
    return found if isinstance(found, dict) else {}
