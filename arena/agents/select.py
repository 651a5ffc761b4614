"""Select the model of a run by name, with its effort and its providers, and find the way to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from arena import catalog
from arena.errors import Faults, UsageError
from arena.files.documents import unknown
from arena.gateway.config import PATIENCE_S, Caps, ModelAccess
from arena.gateway.egress.rules import rule
from arena.gateway.network import Network
from arena.gateway.routes import key, route
from arena.schema import Api, Harness, Model


class SelectedModel(NamedTuple):
    """A model and the harness that runs it."""

    harness: Harness
    model_name: str
    """The name in cells and annotations, such as `oracle` or `cheat/patch_timer`."""
    model: Model
    argument: str
    """The part after the slash when the model belongs to a family (`cheat/*`), else empty."""
    turns: int | None = None
    """Answers that the harness asks of the model, at most. None: the harness takes no such number."""
    profile: bool = False
    """Whether the harness shows the model a profile of each kernel that passed its check."""


def select_model(
    name: str,
    *,
    effort: str | None = None,
    providers: Sequence[str] = (),
    unpinned: bool = False,
    turns: int | None = None,
    profile: bool = False,
) -> SelectedModel:
    """The model of that name.

    Args:
        name: a model of `arena list models`, `harness/model`, or `harness/route/id`.
        effort: asked of the model instead of its own.
        providers: on a route that is a broker, the providers that may answer, in this order.
        unpinned: on such a route, let the broker choose.
        turns: answers that the harness asks of the model, at most, instead of its own number.
        profile: show the model a profile of each kernel that passed its check.

    Raises:
        UsageError: the name does not exist, or an option means nothing for this model. All faults at once.
    """
    selected = find_model(name)
    faults = Faults()
    with_effort = faults.collect(lambda: _with_effort(selected, effort))
    with_providers = faults.collect(lambda: _with_providers(selected, providers, unpinned=unpinned))
    with_turns = faults.collect(lambda: _with_turns(selected, turns, profile=profile))
    faults.raise_all()
    assert with_effort is not None and with_providers is not None and with_turns is not None
    chosen = {"effort": with_effort.model.effort, "provider": with_providers.model.provider}
    return with_turns._replace(model=selected.model.model_copy(update=chosen))


def find_model(spec: str, folder: Path | None = None) -> SelectedModel:
    """The model of that name (`oracle`), of a family (`cheat/patch_timer`), or of one harness (`builtin/oracle`).

    `harness/route/id` is any model, by its provider's name and that route.
    """
    readable, faults = catalog.readable_harnesses(folder)
    found = [chosen for entry in readable.values() if (chosen := _choose(entry, spec))]
    owner, slash, rest = spec.partition("/")
    if slash and owner in readable and (chosen := _choose(readable[owner], rest)):
        found.append(chosen)
    elif slash and owner in readable and readable[owner].apis and (named := rest.partition("/"))[2]:
        found.append(SelectedModel(readable[owner], rest, Model(route=named[0], id=named[2]), ""))
    if len(found) > 1:
        raise UsageError(
            f"model {spec!r} is in several harnesses: write {' or '.join(f'{c.harness.name}/{c.model_name}' for c in found)}"
        )
    if not found:
        text = unknown("model", spec, {name for entry in readable.values() for name in entry.models})
        raise UsageError("\n".join([text, *(f"not searched, because it is broken: {fault}" for fault in faults)]))
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)?", found[0].argument):
        raise UsageError(f"model {spec!r}: {found[0].argument!r} is not a name (letters, digits, `_`, `-` and `.`)")
    return found[0]


def model_access(selected: SelectedModel, caps: Caps = Caps(), patience_s: float = PATIENCE_S) -> ModelAccess | None:  # noqa: B008
    """The access of a model; None for one without a route. UsageError when its route or key is missing."""
    model = selected.model
    if model.route is None:
        return None
    found, harness, api = route(model.route), selected.harness, launch_api(selected)
    if not harness.apis:
        raise UsageError(f"harness {harness.name} has no `api`, and model {selected.model_name} has a route: give it one")
    if api is None:
        spoken = ", ".join(harness.apis)
        raise UsageError(
            f"harness {harness.name} speaks {spoken}, and route {model.route} only {', '.join(found.apis)}: choose another"
        )
    return ModelAccess(
        api=api,
        route=found,
        key=key(found),
        model=model.id or selected.model_name,
        answers_as=model.answers_as,
        provider=model.provider,
        caps=caps,
        patience_s=patience_s,
        turns=selected.turns,
    )


def launch_api(selected: SelectedModel) -> Api | None:
    """The interface by which a harness asks its model: the first of the route's that it speaks. None without one."""
    if selected.model.route is None:
        return None
    return next((api for api in route(selected.model.route).apis if api in selected.harness.apis), None)


def login_network(network: Network, harness: Harness) -> Network:
    """The network with the hosts that a harness's CLI must reach by itself, since with a login it has no gateway."""
    if network.mode == "open" or harness.login is None:
        return network
    rules = tuple(dict.fromkeys((*network.allowed, *map(rule, harness.login.hosts))))
    return replace(network, mode="allow", allowed=rules)


def launch_effort(selected: SelectedModel) -> str:
    """The effort as the harness writes it; empty without one. UsageError when the harness needs one, or does not know it."""
    harness, effort = selected.harness, selected.model.effort
    if effort is None and takes_effort(harness):
        raise UsageError(f"harness {harness.name} needs an effort, and model {selected.model_name} names none: give --effort")
    if effort is not None and harness.efforts and effort not in harness.efforts:
        raise UsageError(f"harness {harness.name} has no effort {effort!r} (it has {', '.join(harness.efforts)})")
    return "" if effort is None else harness.efforts.get(effort, effort)


def takes_effort(harness: Harness) -> bool:
    """Whether an effort appears in the harness's command, variables or home."""
    texts = (*harness.command, *harness.env.values())
    return any("{effort}" in text for text in texts) or any("effort" in text for text in harness.home.values())


def passes_providers_on(harness: Harness) -> bool:
    """Whether the harness's home files name the providers that may answer."""
    return any(word in text for text in harness.home.values() for word in ("{{ provider", "if provider"))


def _with_effort(selected: SelectedModel, effort: str | None) -> SelectedModel:
    harness = selected.harness
    if effort is not None:
        if not takes_effort(harness):
            raise UsageError(f"harness {harness.name} takes no effort (none of its texts has {{effort}}): leave --effort out")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", effort):
            raise UsageError(f"--effort {effort!r}: give a word such as low, high or max")
        selected = selected._replace(model=selected.model.model_copy(update={"effort": effort}))
    launch_effort(selected)
    return selected


def _with_turns(selected: SelectedModel, turns: int | None, *, profile: bool) -> SelectedModel:
    harness = selected.harness
    if harness.turns is None:
        if turns is not None or profile:
            raise UsageError(f"harness {harness.name} decides itself how often it asks: leave --turns and --profile out")
        return selected
    return selected._replace(turns=turns or harness.turns, profile=profile)


def _with_providers(selected: SelectedModel, providers: Sequence[str], *, unpinned: bool) -> SelectedModel:
    model = selected.model
    if model.route is None:
        if providers or unpinned:
            raise UsageError(f"model {selected.model_name} has no provider: leave --provider and --unpinned out")
        return selected
    found = route(model.route)
    if (providers or unpinned) and not found.broker:
        raise UsageError(f"{found.title} answers by itself: --provider and --unpinned are for routes that are brokers")
    if providers and unpinned:
        raise UsageError("--provider and --unpinned exclude each other")
    allowed = () if unpinned else tuple(providers) or model.provider
    if found.broker and not allowed and not unpinned:
        raise UsageError(
            f"{found.title} would choose a provider for {model.id}, another one each time: name providers with --provider P, "
            "or give --unpinned (the leaderboard shows it)"
        )
    if allowed and not passes_providers_on(selected.harness):
        raise UsageError(
            f"harness {selected.harness.name} cannot pass the providers on, so the gateway would refuse its requests: "
            "choose another harness, the vendor's own route, or --unpinned"
        )
    return selected._replace(model=model.model_copy(update={"provider": allowed}))


def _choose(entry: Harness, spec: str) -> SelectedModel | None:
    if spec in entry.models and not spec.endswith("/*"):
        return SelectedModel(entry, spec, entry.models[spec], "")
    family, slash, argument = spec.partition("/")
    if slash and argument not in ("", "*") and f"{family}/*" in entry.models:
        return SelectedModel(entry, spec, entry.models[f"{family}/*"], argument)
    return None
