"""Which headers pass, in each direction."""

from __future__ import annotations

import re
from collections.abc import Iterable

from arena.gateway.refusal import Refusal

HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
KEYS = {"authorization", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
OURS = {"host", "content-length", "accept-encoding"}
"""Said anew. `identity` is asked for, as what is compressed cannot be metered."""
ELSEWHERE = {
    "x-http-method-override",
    "x-goog-fieldmask",  # would leave the usage out
    "x-goog-user-project",
    "openai-organization",
    "openai-project",
    "anthropic-workspace-id",
}
"""Would change whose account is charged, or what is answered."""
BROKER = re.compile(r"x-openrouter-(?!title$|categories$).*")
"""Switches of OpenRouter, such as answers from its cache."""
ACCOUNT = {"set-cookie", "openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id"}
"""Of answers: whose key it is, is nobody's business inside."""
JUDGED = {"authorization", "content-encoding", "content-type", "x-api-key", "x-goog-api-key"}
VALUE = re.compile(r"[\t -~]*")
Headers = Iterable[tuple[str, str]]


def upward(headers: Headers) -> list[tuple[str, str]]:
    """Those of a request that its provider gets."""
    items = list(headers)
    dropped = HOP_BY_HOP | KEYS | OURS | ELSEWHERE | _named(items)
    return [
        (name, value)
        for name, value in items
        if name.lower() not in dropped and not BROKER.fullmatch(name.lower()) and VALUE.fullmatch(value)
    ] + [("Accept-Encoding", "identity")]


def downward(headers: Headers) -> list[tuple[str, str]]:
    """Those of an answer that the box gets. Its length is said by whoever sends it on."""
    items = list(headers)
    dropped = HOP_BY_HOP | ACCOUNT | _named(items)
    return [(name, value) for name, value in items if name.lower() not in dropped and VALUE.fullmatch(value)]


def once(headers: Headers) -> None:
    """Refusal 400 where a header by which we judge comes twice: we would read one, and the provider the other."""
    names = [name.lower() for name, _ in headers]
    if twice := next((name for name in JUDGED if names.count(name) > 1), None):
        raise Refusal(400, f"the header {twice} comes twice")


def _named(headers: Headers) -> set[str]:
    """Headers that `Connection` makes hop by hop."""
    named = (value for name, value in headers if name.lower() == "connection")
    return {word.strip().lower() for value in named for word in value.split(",")}
