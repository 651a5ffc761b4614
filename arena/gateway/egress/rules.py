"""Rules for what the egress proxy may reach: pure functions over names, request heads and addresses.

A rule is `host` or `host:port`; without a port it means 443. `*.example.org`, or `.example.org`, covers every name below
example.org at any depth, and not example.org itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arena.errors import UsageError
from arena.gateway.unix_server import Refusal

HTTPS = 443
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*")
NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
"""The last label of an address in disguise: `127.1` and `0x7f.1` are addresses to the C library."""
REQUEST = re.compile(r"([!-~]+) ([!-~]+) HTTP/1\.[01]")
TEXT = re.compile(r"[\t -~]*")
PORT = re.compile(r"[1-9][0-9]{0,4}")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Reach = Callable[[Address], bool]
"""Whether the proxy may connect to an address: `public` or `private`."""
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
NEVER = (
    ipaddress.ip_network("168.63.129.16"),  # Azure: keys of a machine's extensions, on an address that is public elsewhere
    ipaddress.ip_network("100.100.100.200"),  # Alibaba Cloud
    ipaddress.ip_network("192.0.0.192"),  # Oracle Cloud, its older generation
    ipaddress.ip_network("fd00:ec2::/32"),  # AWS: metadata, the keys of its pods, name and time servers
    ipaddress.ip_network("fd20:ce::254"),  # Google Cloud
    ipaddress.ip_network("fd00:42::42"),  # Scaleway
    ipaddress.ip_network("64:ff9b:1::/48"),  # IPv4 addresses in a form that each network chooses (RFC 8215)
)
"""Metadata services of clouds, which hand out a machine's identity and keys, beside 169.254.0.0/16 (link-local). The last entry
could lead to them."""


class Target(NamedTuple):
    """The host and port that a request names."""

    host: str
    port: int


@dataclass(frozen=True)
class Rule:
    """One entry of the allowlist."""

    host: str
    port: int = HTTPS
    below: bool = False
    """Every name below `host` instead of `host` itself."""

    def __str__(self) -> str:
        return f"{'*.' if self.below else ''}{self.host}{'' if self.port == HTTPS else f':{self.port}'}"


def rule(text: str) -> Rule:
    """The rule of one --allow option. UsageError."""
    name, colon, port = text.strip().lower().partition(":")
    below = name.startswith(("*.", "."))
    host = name.lstrip("*")[1:] if below else name
    host = host.removesuffix(".")
    if colon and not (PORT.fullmatch(port) and int(port) < 1 << 16):
        raise UsageError(f"--allow {text!r}: the port is a number from 1 to 65535")
    if not HOST.fullmatch(host) or NUMBER.fullmatch(host.rpartition(".")[2]):
        raise UsageError(
            f"--allow {text!r}: give a host name such as mirror.test, *.example.org or mirror.example.org:8443; "
            "not an address, a scheme or a path"
        )
    if below and "." not in host:
        raise UsageError(f"--allow {text!r}: that would allow a whole top-level domain")
    return Rule(host, int(port) if colon else HTTPS, below)


def parse_request(head: bytes) -> Target:
    """The target of a request head, its name in lower case and without a trailing dot. Refusal 400, 403 or 405."""
    lines = head.decode("latin-1").split("\r\n")
    if not all(TEXT.fullmatch(line) for line in lines):
        raise Refusal(400, "a control character or a byte above 126 in the request")
    request = REQUEST.fullmatch(lines[0])
    if request is None:
        raise Refusal(400, "not an HTTP/1 request line")
    method, authority = request.groups()
    if method != "CONNECT":
        raise Refusal(405, "only CONNECT is served: use https")
    if "@" in authority:
        raise Refusal(400, "CONNECT takes no user name")
    if authority.startswith("["):
        raise Refusal(403, "addresses are refused: ask for a name")
    name, _, port = authority.rpartition(":")
    if not (PORT.fullmatch(port) and int(port) < 1 << 16):
        raise Refusal(400, "CONNECT needs host:port")
    host = name.lower().removesuffix(".")
    if not HOST.fullmatch(host):
        raise Refusal(400, "not a host name (for another script give its xn-- form)")
    target = Target(host, int(port))
    if NUMBER.fullmatch(host.rpartition(".")[2]):
        raise Refusal(403, "addresses are refused: ask for a name", target)
    return target


def check_allowed(target: Target, rules: Iterable[Rule]) -> None:
    """Refusal 403 when no rule covers the target."""
    if not any(
        target.port == entry.port and (target.host.endswith(f".{entry.host}") if entry.below else target.host == entry.host)
        for entry in rules
    ):
        raise Refusal(403, "not on the allowlist")


def reachable(addresses: Sequence[str], reach: Reach) -> list[str]:
    """Those of a name's addresses that the proxy may connect to. Refusal 403 when there is none.

    A public name may resolve to the host's own network (DNS rebinding).
    """
    found = [text for text in addresses if reach(ipaddress.ip_address(text))]
    if not found:
        raise Refusal(403, "the name resolves to a private or reserved address")
    return found


def public(address: Address) -> bool:
    """On the internet, where the address means the same machine everywhere."""
    return private(address) and all(
        part.is_global and not part.is_reserved and not (part.version == 6 and part.is_site_local) for part in _parts(address)
    )


def private(address: Address) -> bool:
    """Public, or in a company's network; never the host's loopback or link, nor a cloud's metadata service.

    The host's other addresses count like any machine's: an allowed name that resolves to one reaches the services there.
    """
    return not any(
        part.is_loopback
        or part.is_link_local
        or part.is_multicast
        or part.is_unspecified
        or any(part in network for network in NEVER)
        for part in _parts(address)
    )


def _parts(address: Address) -> list[Address]:
    """The address, and the addresses that the kernel or a network gateway would turn it into."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped:
        return [address.ipv4_mapped]
    if address in NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    inner = (address.sixtofour, *(address.teredo or ()))
    return [address, *(part for part in inner if part is not None)]
