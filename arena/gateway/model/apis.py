"""How the four interfaces differ: their paths, where a key stands, what their errors and lists of models look like."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from arena.gateway.refusal import Refusal
from arena.schema import Api, Route

TARGET = re.compile(r"/(?:api/)?v1(?:beta)?/([!-\"$->@-~]+)(?:\?([!-\"$-~]*))?")
"""What a program may ask for: the version that its own address has is dropped, as the route's has one too. No `#`."""
ASKS: Mapping[Api, str] = {"anthropic": "messages", "responses": "responses", "chat": "chat/completions"}
GEMINI = re.compile(r"models/([^:]+):(streamGenerateContent|generateContent|countTokens)")
QUERY: Mapping[Api, str] = {"anthropic": "beta=true", "gemini": "alt=sse"}
"""What may be in it. Others change what is answered: `fields=` would leave the usage out."""
MODELS = re.compile(r"models(/.*)?")

Kind = Literal["model", "count", "models"]
"""Asks the model; counts tokens, which costs nothing; asks which models there are."""
STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 504: "DEADLINE_EXCEEDED"}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}


class Place(NamedTuple):
    """What a request is for."""

    kind: Kind
    path: str
    """Below the route's base URL, with its query."""
    model: str | None = None
    """Where the path names it."""


def place(api: Api, method: str, target: str) -> Place:
    """What a request is for. Refusal 400 or 404."""
    found = TARGET.fullmatch(target)
    if found is None:
        raise Refusal(404, f"{method} {target[:200]} leads nowhere")
    path, query = found[1], found[2] or ""
    if method == "GET" and MODELS.fullmatch(path):
        return Place("models", path)
    if method == "POST" and api == "gemini" and (asked := GEMINI.fullmatch(path)):
        return Place("count" if asked[2] == "countTokens" else "model", path + _query(api, query), asked[1])
    if method == "POST" and path == ASKS.get(api):
        return Place("model", path + _query(api, query))
    if method == "POST" and api == "anthropic" and path == "messages/count_tokens":
        return Place("count", path + _query(api, query))
    raise Refusal(404, f"{method} {path[:200]} is not passed on, only what asks the model by the interface {api!r}")


def _query(api: Api, query: str) -> str:
    """What of the query goes out. Refusal 400."""
    rest = [part for part in query.split("&") if part and not (api == "gemini" and part.startswith("key="))]
    if rest not in ([], [QUERY.get(api)]):
        raise Refusal(400, f"of a query only {QUERY.get(api, 'nothing')} is passed on")
    return "".join(f"?{part}" for part in rest)


def shown_keys(headers: Mapping[str, str], target: str) -> list[str]:
    """Keys that a request shows, wherever one of the interfaces has it."""
    query = re.findall(r"[?&]key=([^&]*)", target)
    bearer = headers.get("Authorization", "").split(" ", 1)
    found = [headers.get("x-api-key", ""), headers.get("x-goog-api-key", ""), *query]
    return [key for key in [*found, bearer[1].strip() if len(bearer) == 2 else ""] if key]


def key_header(api: Api, route: Route, key: str | None) -> dict[str, str]:
    """The real key, where the route's provider looks for it."""
    if key is None:
        return {}
    if api == "gemini" and not route.bearer:
        return {"x-goog-api-key": key}
    if api == "anthropic" and not route.bearer:
        return {"x-api-key": key}
    return {"Authorization": f"Bearer {key}"}


def error(api: Api, status: int, reason: str) -> bytes:
    """The body of a refusal, in the interface's own shape: then the program shows the words."""
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
    """The list of the one model there is, or itself where the path goes on."""
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
