"""Reads an answer while it passes: never in its way, never more of it kept than one event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from arena.gateway.model.answers import READERS, Facts
from arena.schema import Api

FRAME_BYTES = 16 << 20
"""Of one event. What a longer one holds stays unknown."""


class Events:
    """The data of one stream's events. Lines end with \\n or \\r\\n; nobody sends the lone \\r that the standard allows too."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of a line that has not ended, joined once: it may come in millions of them."""
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of those events that this piece ends."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._hold(end)
            line = b"".join(self._line).removesuffix(b"\r")
            self._line.clear()
            if line:
                name, _, value = line.partition(b":")
                if name == b"data":
                    self._data.append(value.removeprefix(b" "))
                continue
            event = b"\n".join(self._data)
            self._data.clear()
            self._held_bytes = 0
            if event:
                yield event
        self._hold(rest)

    def rest(self) -> Iterator[bytes]:
        """What stands at the end without the empty line that belongs there; some servers leave it out."""
        return self.feed(b"\n\n")

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > FRAME_BYTES:
            self._data.clear()
            self._line[:] = [b":"] if piece or self._line else []  # a comment, of which nothing is kept
        elif piece:
            self._line.append(piece)


DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})")
BROKERS_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|(0[1-9]|1[0-2])-?[0-3]\d)(?=:|$)")
YEAR_MONTH = re.compile(r"-(2\d)(0[1-9]|1[0-2])(?=:|$)")
SLUGS = {"googlevertex": "google", "mancer": "mancer2", "claudeonaws": "claudeplatformonaws"}
"""Providers whom OpenRouter calls otherwise in its answers than in its requests (both lists are in its Python package)."""


class Meter:
    """One answer. `facts` is what is known up to now."""

    def __init__(self, api: Api, media_type: str) -> None:
        self.facts = Facts()
        self._read = READERS[api]
        self._events = Events() if media_type.startswith("text/event-stream") else None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Bytes of the answer, in whatever pieces. Never raises."""
        if self._events is not None:
            for event in self._events.feed(piece):
                self._take(event)
            return
        self._body_bytes += len(piece)
        if self._body_bytes <= FRAME_BYTES:
            self._body.append(piece)
        else:
            self._body.clear()

    def end(self) -> None:
        """There is no more."""
        if self._events is not None:
            for event in self._events.rest():
                self._take(event)
        elif self._body_bytes <= FRAME_BYTES:
            self._take(b"".join(self._body))

    def _take(self, data: bytes) -> None:
        try:
            found = json.loads(data.decode())
        except (ValueError, RecursionError):
            return
        for event in found if isinstance(found, list) else [found]:  # a list: what Gemini streams where nobody asked for events
            if isinstance(event, dict):
                self.facts = self.facts.then(self._read(event))


def wrong_model(asked: str, answered: str | None, *, broker: bool = False) -> bool:
    """Whether another model answered than was asked for; the date of the very model may be added.

    OpenRouter answers by another name of the same model: `anthropic/claude-opus-4.8` as `anthropic/claude-4.8-opus-20260528`,
    `moonshotai/kimi-k2.5` as `moonshotai/kimi-k2.5-0127`, `x-ai/grok-4` as `x-ai/grok-4-07-09`, and
    `qwen/qwen3-235b-a22b-2507` as `qwen/qwen3-235b-a22b-07-25`. So of a broker the words count, and not their order. A variant
    (`:free`) has to be the same everywhere: it is another service at another price.
    """
    if answered is None:
        return False
    asked, name = asked.lower(), answered.lower().removeprefix("models/")  # Gemini's way
    if name == asked or (name.startswith(asked) and DATE.fullmatch(name[len(asked) :])):
        return False
    forms, same = (name, BROKERS_DATE.sub("", name)), (asked, YEAR_MONTH.sub(r"-\2-\1", asked))
    return not (broker and any(_words(form) == _words(other) for form in forms for other in same))


def _words(model: str) -> tuple[str, str, list[str]]:
    """The vendor, the variant, and what else the name is made of."""
    vendor, _, rest = model.rpartition("/")
    name, _, variant = rest.partition(":")
    return vendor, variant, sorted(re.split(r"[-.]", name))


def wrong_provider(pin: Sequence[str], answered: str | None) -> bool:
    """Whether somebody answered who is not among those that may. Of `deepinfra/fp4` the part before the slash counts."""
    if not pin or answered is None:
        return False
    allowed = {_slug(name) for name in pin}
    return _slug(answered) not in allowed | {SLUGS[name] for name in allowed if name in SLUGS}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.partition("/")[0].lower())
