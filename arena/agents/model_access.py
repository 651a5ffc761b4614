"""From a selected model to what the gateway is given: the route, the key, the providers, the caps."""

from __future__ import annotations

from dataclasses import replace

from arena.catalog import SelectedModel
from arena.errors import UsageError
from arena.gateway.config import PATIENCE_S, Caps, ModelAccess
from arena.gateway.egress.rules import rule
from arena.gateway.network import Network
from arena.gateway.routes import key, route
from arena.schema import Harness


def model_access(selected: SelectedModel, caps: Caps = Caps(), patience_s: float = PATIENCE_S) -> ModelAccess | None:  # noqa: B008
    """The access of a model; None for one without a route. UsageError when its route or key is missing."""
    harness, model = selected.harness, selected.model
    if model.route is None:
        return None
    found = route(model.route)
    if harness.api is None:
        raise UsageError(f"harness {harness.name} has no `api`, and model {selected.model_name} has a route: give it one")
    if harness.api not in found.apis:
        raise UsageError(
            f"harness {harness.name} speaks {harness.api}, and route {model.route} only {', '.join(found.apis)}: choose another"
        )
    return ModelAccess(
        api=harness.api,
        route=found,
        key=key(found),
        model=model.id or selected.model_name,
        provider=model.provider,
        caps=caps,
        patience_s=patience_s,
    )


def login_network(network: Network, harness: Harness) -> Network:
    """The network with the hosts that a harness's CLI must reach by itself, since with a login it has no gateway."""
    if network.mode == "open" or harness.login is None:
        return network
    rules = tuple(dict.fromkeys((*network.allowed, *map(rule, harness.login.hosts))))
    return replace(network, mode="allow", allowed=rules)
