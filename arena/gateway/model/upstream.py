"""The way to the provider: one pool of connections, TLS verified, no redirects, no cookies, no retries.

A proxy of the environment ($HTTPS_PROXY, $NO_PROXY) is used, as it may be the only way out of a company, but never for an
address of this machine. aiohttp's own `trust_env` would also look for passwords in ~/.netrc.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from arena.errors import UsageError
from arena.gateway.refusal import Refusal

CONNECTIONS = 16
CONNECT_S = 30.0
IDLE_S = 600.0
"""Without a byte in the middle of an answer."""
STREAM_HEAD_S, WHOLE_HEAD_S = 120.0, 600.0
"""Until an answer begins. One that is no stream begins when it is complete."""
HEAD_BYTES = 1 << 16
LEFT_OUT = ("User-Agent", "Accept", "Content-Type")
"""Headers that aiohttp would add."""


class Proxy(NamedTuple):
    """One of the environment's."""

    url: URL
    headers: dict[str, str]
    """What it wants to know of us, which must not stand in its address: errors tell that."""


@dataclass(frozen=True)
class Upstream:
    """How to get there."""

    session: aiohttp.ClientSession
    proxy: Proxy | None


def trusted(authorities: Path | None) -> ssl.SSLContext:
    """The system's certificate authorities, and those of the file. UsageError."""
    context = ssl.create_default_context()
    if authorities is not None:
        try:
            context.load_verify_locations(cafile=authorities)
        except OSError as error:  # ssl.SSLError is one too
            raise UsageError(f"{authorities}: no certificate authorities can be read from it: {error.strerror}") from None
    return context


def proxy(base_url: str) -> Proxy | None:
    """The environment's proxy for that address. UsageError."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or _own(host) or urllib.request.proxy_bypass(host):
        return None
    try:
        url = URL(found if "://" in found else f"http://{found}")
    except ValueError:
        raise UsageError(f"{parts.scheme}_proxy: is no address of a proxy, such as http://proxy.example.org:3128") from None
    known = {} if url.user is None else {"Authorization": aiohttp.encode_basic_auth(url.user, url.password or "")}
    return Proxy(url.with_user(None), known)


def pool(context: ssl.SSLContext) -> aiohttp.ClientSession:
    """Connections for one run. Call it in the loop that will use it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=LEFT_OUT,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=IDLE_S),
        max_line_size=HEAD_BYTES,
        max_field_size=HEAD_BYTES,
    )


def checked(answer: aiohttp.ClientResponse) -> None:
    """Refusal 502 for an answer that cannot be passed on."""
    if not 200 <= answer.status < 600 or 300 <= answer.status < 400:
        raise Refusal(502, f"the provider answered with status {answer.status}, and redirects are not followed")
    if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise Refusal(502, "the provider packed its answer, though it was told not to: it could not be metered")


def headed(pairs: list[tuple[str, str]]) -> CIMultiDict[str]:
    """Headers as aiohttp takes them."""
    return CIMultiDict(pairs)


def _own(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
