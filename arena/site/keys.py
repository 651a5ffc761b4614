"""Arena's own keys, so that no page with one is written."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Collection

from arena import paths
from arena.gateway.routes import routes

TAG = re.compile(r"<(?:[^<>]*\sid=\"(?P<place>[A-Za-z0-9_-]+)\")?[^<>]*>")
PLACE = re.compile(r"\0([^\0]+)\0")
ID = re.compile(r"\sid=\"([A-Za-z0-9_-]+)\"")
LEAST_CHARACTERS = 8
"""A shorter word is no key, and would stand on every page."""


def known() -> tuple[str, ...]:
    """Every key that a route could use here: from the environment, and from the files among arena's keys."""
    found = {os.environ.get(route.key, "").strip() for route in routes().values() if route.key}
    if paths.keys().is_dir():
        for file in paths.keys().iterdir():
            if file.is_file():
                found.add(file.read_bytes()[: 1 << 13].decode("latin-1").strip())
    return tuple(sorted(key for key in found if len(key) >= LEAST_CHARACTERS))


def forms(key: str) -> tuple[str, ...]:
    """How a text may hold a key: as it is, and as a string within JSON, once or twice over."""
    once = json.dumps(key)[1:-1]
    return tuple(dict.fromkeys((key, once, json.dumps(once)[1:-1])))


def place_of_key(text: str, keys: Collection[str]) -> str | None:
    """The last anchor before a key in a file, such as `s12` for line 12 of a trajectory; None when the file holds no key.

    Tags between a key's characters, as of highlighted source, do not hide it.
    """
    if not text.startswith("<!doctype"):  # a data file, where `<` begins no tag
        return "" if any(form in text for key in keys for form in forms(key)) else None
    marked = TAG.sub(lambda tag: f"\0{tag['place']}\0" if tag["place"] else "", text)
    # The raw text too: an attribute goes with its tag.
    for plain, place in ((html.unescape(marked), PLACE), (html.unescape(text), ID)):
        for form in (form for key in keys for form in forms(key)):
            before, found, _ = plain.partition(form)
            if found:
                return next(reversed(place.findall(before)), "")
    return None
