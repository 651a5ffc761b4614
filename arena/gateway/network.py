"""What leads out of a sandbox: which network a session is given, and the proxies outside that serve it.

none   nothing but the model's gateway, if there is one
allow  the gateway, and the allow proxy for a list of hosts
open   the host's own network: nobody knows what the agent reached, and the run is marked `unsealed`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from arena.errors import UsageError
from arena.gateway.config import GATEWAY_PORT, PROXY_PORT
from arena.gateway.egress.proxy import Resolver, resolve, serve
from arena.gateway.egress.rules import Reach, Rule, private, public, rule
from arena.system import tempdirs

Mode = Literal["none", "allow", "open"]


@dataclass(frozen=True)
class Network:
    """What a session may reach."""

    mode: Mode = "none"
    allowed: tuple[Rule, ...] = ()
    reach: Reach = public
    """What allowed names may resolve to: `private` for a company's mirror."""
    gateway: Path | None = None
    """Unix socket of the model's gateway, led to from 127.0.0.1:GATEWAY_PORT. Mode `open` shares that port with the host."""
    resolve: Resolver = resolve

    def recorded(self) -> Literal["none", "gateway", "allow", "open"]:
        """The mode as a session's record has it."""
        return "gateway" if self.mode == "none" and self.gateway else self.mode


@dataclass(frozen=True)
class Connected:
    """What a box needs for its network."""

    network: Literal["none", "open"] = "none"
    bridges: Mapping[int, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    troubles: Sequence[str] = ()
    """What went wrong outside the box, in words. Complete when the block has been left."""


def network(mode: Mode, allow: tuple[str, ...] = (), allow_private: bool = False) -> Network:
    """The network that a person asked for. UsageError."""
    if mode == "allow" and not allow:
        raise UsageError("--network allow needs at least one --allow HOST")
    if mode != "allow" and (allow or allow_private):
        raise UsageError(f"--allow and --allow-private mean nothing with --network {mode}: give --network allow")
    rules = tuple(dict.fromkeys(rule(text) for text in allow))
    return Network(mode, rules, private if allow_private else public)


@contextmanager
def connected(network: Network, log: Path) -> Iterator[Connected]:
    """Serve the network for the length of the block. What the allow proxy was asked for is appended to `log`. OSError."""
    bridges = {} if network.gateway is None else {GATEWAY_PORT: network.gateway}
    if network.mode != "allow":
        yield Connected(network.mode, bridges)
        return
    with ExitStack() as stack:
        # Open to every user, in a folder that only we can enter: a box gets the socket itself.
        socket = stack.enter_context(tempdirs.folder()) / "allow"
        troubles = stack.enter_context(serve(socket, network.allowed, log, reach=network.reach, resolve=network.resolve))
        yield Connected("none", bridges | {PROXY_PORT: socket}, proxy_environment(), troubles)


def proxy_environment() -> dict[str, str]:
    """The variables by which programs find the allow proxy; both cases, as some read only one of them."""
    proxy, own = f"http://127.0.0.1:{PROXY_PORT}", "127.0.0.1,localhost"
    upper = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": own}
    return upper | {name.lower(): value for name, value in upper.items()}
