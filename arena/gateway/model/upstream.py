"""The way to the provider: one pool of connections, TLS verified, no redirects, no cookies, no retries; and which headers pass.

The gateway uses a proxy that the environment names ($HTTPS_PROXY, $NO_PROXY), as it may be the only way out of a company. It
never uses one for an address of this machine. aiohttp's own `trust_env` would also look for passwords in ~/.netrc.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from arena.errors import UsageError
from arena.gateway.model.allowed import HEADER_FAMILIES, HEADERS
from arena.gateway.unix_server import Refusal

CONNECTIONS = 16
CONNECT_S = 30.0
IDLE_S = 600.0
"""Without a byte in the middle of an answer."""
STREAM_HEAD_S, WHOLE_HEAD_S = 120.0, 600.0
"""Until an answer begins. One that is not a stream begins when it is complete."""
HEAD_BYTES = 1 << 16
AIOHTTP_HEADERS = ("User-Agent", "Accept", "Content-Type")
"""Headers that aiohttp would add."""
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
KEYS = {"authorization", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
REPLACED = {"host", "content-length", "accept-encoding"}
"""The gateway sets these itself. It requests `identity`, as it cannot meter a compressed answer."""
ACCOUNT = {"set-cookie", "openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id"}
"""Of answers. The owner of the key stays unknown inside the sandbox."""
CHECKED = {"authorization", "content-encoding", "content-type", "x-api-key", "x-goog-api-key"}
VALUE = re.compile(r"[\t -~]*")
Headers = Iterable[tuple[str, str]]


class Proxy(NamedTuple):
    """A proxy that the environment names."""

    url: URL
    headers: dict[str, str]
    """The credentials. They must not stand in its address, as errors show that."""


@dataclass(frozen=True)
class Upstream:
    """The connections to the provider."""

    session: aiohttp.ClientSession
    proxy: Proxy | None


def tls_context(authorities: Path | None) -> ssl.SSLContext:
    """Trust in the system's certificate authorities, and in those of the file. UsageError."""
    context = ssl.create_default_context()
    if authorities is not None:
        try:
            context.load_verify_locations(cafile=authorities)
        except OSError as error:  # includes ssl.SSLError
            raise UsageError(f"{authorities}: cannot read certificate authorities from it: {error.strerror}") from None
    return context


def environment_proxy(base_url: str) -> Proxy | None:
    """The environment's proxy for that address. UsageError."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    try:
        url = URL(found if "://" in found else f"http://{found}")
    except ValueError:
        raise UsageError(
            f"{parts.scheme}_proxy: not the address of a proxy; give one such as http://proxy.example.org:3128"
        ) from None
    credentials = {} if url.user is None else {"Authorization": aiohttp.encode_basic_auth(url.user, url.password or "")}
    return Proxy(url.with_user(None), credentials)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def connection_pool(context: ssl.SSLContext) -> aiohttp.ClientSession:
    """Connections for one run. Call it in the loop that will use them."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=AIOHTTP_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=IDLE_S),
        max_line_size=HEAD_BYTES,
        max_field_size=HEAD_BYTES,
    )


def check_answer(answer: aiohttp.ClientResponse) -> None:
    """Refusal 502 for an answer that cannot be passed on."""
    if not 200 <= answer.status < 600 or 300 <= answer.status < 400:
        raise Refusal(502, f"the provider answered with status {answer.status}, and the gateway does not follow redirects")
    if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise Refusal(502, "the provider compressed its answer against the request: the gateway could not meter it")


def request_headers(headers: Headers, more: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The headers of a request that go out to the provider: those of `allowed`, and `more`."""
    items = list(headers)
    allowed = HEADERS | {name.lower() for name in more}
    dropped = HOP_BY_HOP | KEYS | REPLACED | _connection_headers(items)
    return [
        (name, value)
        for name, value in items
        if name.lower() not in dropped
        and (name.lower() in allowed or name.lower().startswith(HEADER_FAMILIES))
        and VALUE.fullmatch(value)
    ] + [("Accept-Encoding", "identity")]


def answer_headers(headers: Headers) -> list[tuple[str, str]]:
    """The headers of an answer that go into the sandbox."""
    items = list(headers)
    dropped = HOP_BY_HOP | ACCOUNT | _connection_headers(items)
    return [(name, value) for name, value in items if name.lower() not in dropped and VALUE.fullmatch(value)]


def check_repeated_headers(headers: Headers) -> None:
    """Refusal 400 when a header that the gateway checks comes twice: the provider could read the other one."""
    names = [name.lower() for name, _ in headers]
    if repeated := next((name for name in CHECKED if names.count(name) > 1), None):
        raise Refusal(400, f"the header {repeated} comes twice")


def _connection_headers(headers: Headers) -> set[str]:
    """Headers that `Connection` makes hop-by-hop."""
    named = (value for name, value in headers if name.lower() == "connection")
    return {word.strip().lower() for value in named for word in value.split(",")}
