"""From a model of the catalogue to what its gateway is told: which provider, which key, who may answer, how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arena.agents.launch import keeps_pins
from arena.catalog import SelectedModel
from arena.errors import UsageError
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.egress.rules import rule
from arena.gateway.network import Network
from arena.gateway.routes import key, route
from arena.schema import Harness

PATIENCE_S = 300.0


def pinned(chosen: SelectedModel, provider: Sequence[str] = (), *, unpinned: bool = False) -> SelectedModel:
    """The model with those providers instead of its own. UsageError when nobody asked for a broker that chooses by itself."""
    model = chosen.model
    if model.route is None:
        if provider or unpinned:
            raise UsageError(f"model {chosen.model_name} asks no provider: --provider and --unpinned mean nothing")
        return chosen
    broker = route(model.route)
    if (provider or unpinned) and not broker.broker:
        raise UsageError(f"{broker.title} answers by itself: --provider and --unpinned are for routes that pass requests on")
    if provider and unpinned:
        raise UsageError("--provider and --unpinned exclude each other")
    providers = () if unpinned else tuple(provider) or model.provider
    if broker.broker and not providers and not unpinned:
        raise UsageError(
            f"{broker.title} would choose who answers for {model.id}, another one each time: name them with --provider P, "
            "or say --unpinned (the leaderboard shows it)"
        )
    if providers and not keeps_pins(chosen.harness):
        raise UsageError(
            f"harness {chosen.harness.name} cannot say who may answer, and the gateway would refuse all that it asks: "
            "choose another harness, the vendor's own route, or --unpinned"
        )
    return chosen._replace(model=model.model_copy(update={"provider": providers}))


def for_login(network: Network, harness: Harness) -> Network:
    """The network with the hosts that a harness's program must reach by itself, as it has no gateway."""
    assert harness.login is not None
    if network.mode == "open":
        return network
    rules = tuple(dict.fromkeys((*network.allowed, *map(rule, harness.login.hosts))))
    return replace(network, mode="allow", allowed=rules)


def asked(chosen: SelectedModel, caps: Caps = Caps(), patience_s: float = PATIENCE_S) -> ModelAccess | None:  # noqa: B008  frozen
    """What the gateway needs to know; None for an agent without a model. UsageError when its route or key is missing."""
    harness, model = chosen.harness, chosen.model
    if model.route is None:
        return None
    to = route(model.route)
    if harness.api is None:
        raise UsageError(f"harness {harness.name} says no `api`, and model {chosen.model_name} has a route: give it one")
    if harness.api not in to.apis:
        raise UsageError(
            f"harness {harness.name} speaks {harness.api}, and route {model.route} only {', '.join(to.apis)}: choose another"
        )
    return ModelAccess(
        api=harness.api,
        route=to,
        key=key(to),
        model=model.id or chosen.model_name,
        provider=model.provider,
        caps=caps,
        patience_s=patience_s,
    )
