"""Say of each model of the catalogue whether the price list knows it, and whether its route's own list of models does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from arena import catalog
from arena.doctor import Check
from arena.errors import UsageError
from arena.gateway.model.apis import key_header
from arena.gateway.model.usage import list_price
from arena.gateway.routes import key, routes
from arena.schema import Route

ASK_S = 20.0
READ_BYTES = 8 << 20
ROUTES_AT_ONCE = 8


def checks() -> Iterator[Check]:
    """One check for each model with a route. A note where something is unknown: none of it stops a run."""
    known = routes()
    models = [
        (harness.name, name, model)
        for harness in catalog.harnesses().values()
        for name, model in harness.models.items()
        if model.route in known
    ]
    used = sorted({model.route for _, _, model in models if model.route})
    with ThreadPoolExecutor(ROUTES_AT_ONCE) as pool:
        listed = dict(zip(used, pool.map(lambda name: _listed(known[name]), used), strict=True))
    for harness, name, model in models:
        assert model.route is not None
        wanted, found = model.id or name, listed[model.route]
        price = list_price(known[model.route].prices, wanted)
        cost = f"{price.input:g} USD in, {price.output:g} USD out" if price else "not in the price list"
        there = found if isinstance(found, str) else "the route lists it" if wanted in found else "the route does not list it"
        fine = price is not None and (isinstance(found, str) or wanted in found)
        yield Check(name, "ok" if fine else "note", f"{harness}, {model.route}: {cost}; {there}")


def _listed(route: Route) -> frozenset[str] | str:
    """The names that a route lists, or why it is not known."""
    try:
        secret = key(route)
    except UsageError:
        return f"not asked: no {route.key}"
    api = route.apis[0]
    size = {"gemini": "?pageSize=1000", "anthropic": "?limit=1000"}.get(api, "")
    headers = key_header(api, route, secret) | {"anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{route.base_url}/models{size}", headers=headers)
    try:
        with _OPENER.open(request, timeout=ASK_S) as answer:
            found = json.loads(answer.read(READ_BYTES))
            entries = found.get("data") or found.get("models") or []
            return frozenset(str(entry.get("id") or entry["name"]).removeprefix("models/") for entry in entries)
    except urllib.error.HTTPError as error:
        return f"not known: {route.base_url}/models answered {error.code}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # its text may hold what the provider echoes
        return f"not known: {route.base_url}/models has no list"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to another host."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


_OPENER = urllib.request.build_opener(_NoRedirect)
