"""The network of a session, and the proxies outside the sandbox that serve it.

none   only the model gateway, if there is one
allow  the gateway, and the egress proxy for a list of hosts
open   the host's own network: what the agent reached stays unknown, and the run is marked `unsealed`
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
    """The addresses that allowed names may resolve to: `private` for a company's mirror."""
    gateway: Path | None = None
    """Unix socket of the model gateway, bridged from 127.0.0.1:GATEWAY_PORT. Mode `open` shares that port with the host."""
    resolve: Resolver = resolve

    def recorded(self) -> Literal["none", "gateway", "allow", "open"]:
        """The mode in a session's record."""
        return "gateway" if self.mode == "none" and self.gateway else self.mode


@dataclass(frozen=True)
class Connected:
    """What a sandbox needs for its network."""

    network: Literal["none", "open"] = "none"
    bridges: Mapping[int, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    troubles: Sequence[str] = ()
    """What went wrong outside the sandbox. Complete when the block has ended."""


def network(mode: Mode, allow: tuple[str, ...] = (), allow_private: bool = False) -> Network:
    """The network of the command-line options. UsageError."""
    if mode == "allow" and not allow:
        raise UsageError("--network allow needs at least one --allow HOST")
    if mode != "allow" and (allow or allow_private):
        raise UsageError(f"--allow and --allow-private mean nothing with --network {mode}: give --network allow")
    rules = tuple(dict.fromkeys(rule(text) for text in allow))
    return Network(mode, rules, private if allow_private else public)


@contextmanager
def connected(network: Network, log: Path) -> Iterator[Connected]:
    """Serve the network for the length of the block. The egress proxy appends its requests to `log`. OSError."""
    bridges = {} if network.gateway is None else {GATEWAY_PORT: network.gateway}
    if network.mode != "allow":
        yield Connected(network.mode, bridges)
        return
    proxy, local = f"http://127.0.0.1:{PROXY_PORT}", "127.0.0.1,localhost"
    env = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": local}
    env |= {name.lower(): value for name, value in env.items()}  # some programs read only one case
    with ExitStack() as stack:
        # Open to every user, in a folder that only arena can enter: a sandbox gets the socket itself.
        socket = stack.enter_context(tempdirs.folder()) / "allow"
        troubles = stack.enter_context(serve(socket, network.allowed, log, reach=network.reach, resolve=network.resolve))
        yield Connected("none", bridges | {PROXY_PORT: socket}, env, troubles)
