"""Reading an answer while it passes: never delays it, and never keeps more of it than one event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from arena.gateway.model.answers import PARSERS, Facts
from arena.schema import Api

FRAME_BYTES = 16 << 20
"""Of one event. The content of a longer one stays unknown."""
DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})")
BROKER_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|(0[1-9]|1[0-2])-?[0-3]\d)(?=:|$)")
YEAR_MONTH = re.compile(r"-(2\d)(0[1-9]|1[0-2])(?=:|$)")
SLUGS = {"googlevertex": "google", "mancer": "mancer2", "claudeonaws": "claudeplatformonaws"}
"""Providers that OpenRouter names differently in its answers and its requests (both lists are in its Python package)."""


class EventParser:
    """The data of one stream's server-sent events, whatever the pieces and whatever the bytes.

    Lines end with \\n or \\r\\n; no provider sends the lone \\r that the standard allows too.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of an unfinished line, joined once: a line may come in millions of pieces."""
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of the events that this piece ends."""
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
        """The last event without the empty line that ends it; some servers omit that line."""
        return self.feed(b"\n\n")

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > FRAME_BYTES:
            self._data.clear()
            self._line[:] = [b":"] if piece or self._line else []  # a comment: none of it is kept
        elif piece:
            self._line.append(piece)


class AnswerReader:
    """Reader of one answer. `facts` is what is known up to now."""

    def __init__(self, api: Api, media_type: str) -> None:
        self.facts = Facts()
        self._parse = PARSERS[api]
        self._events = EventParser() if media_type.startswith("text/event-stream") else None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Read bytes of the answer, in whatever pieces. Never raises."""
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
        """Read the end of the answer."""
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
        for event in found if isinstance(found, list) else [found]:  # a list: Gemini's stream when events were not requested
            if isinstance(event, dict):
                self.facts = self.facts.then(self._parse(event))


def wrong_model(requested: str, answered: str | None, *, broker: bool = False) -> bool:
    """Whether another model answered than the requested one. The same model's date may be added.

    OpenRouter answers by another name of the same model:

    `anthropic/claude-opus-4.8`   as `anthropic/claude-4.8-opus-20260528`
    `moonshotai/kimi-k2.5`        as `moonshotai/kimi-k2.5-0127`
    `x-ai/grok-4`                 as `x-ai/grok-4-07-09`
    `qwen/qwen3-235b-a22b-2507`   as `qwen/qwen3-235b-a22b-07-25`

    So for a broker the words count, and not their order. A variant (`:free`) must always be the same: it is another service
    at another price.
    """
    if answered is None:
        return False
    requested, name = requested.lower(), answered.lower().removeprefix("models/")  # Gemini adds the prefix
    if name == requested or (name.startswith(requested) and DATE.fullmatch(name[len(requested) :])):
        return False
    forms, accepted = (name, BROKER_DATE.sub("", name)), (requested, YEAR_MONTH.sub(r"-\2-\1", requested))
    return not (broker and any(_words(form) == _words(other) for form in forms for other in accepted))


def _words(model: str) -> tuple[str, str, list[str]]:
    """The vendor, the variant, and the other words of the name."""
    vendor, _, rest = model.rpartition("/")
    name, _, variant = rest.partition(":")
    return vendor, variant, sorted(re.split(r"[-.]", name))


def wrong_provider(pin: Sequence[str], answered: str | None) -> bool:
    """Whether a provider outside the pin answered. In `deepinfra/fp4` the part before the slash counts."""
    if not pin or answered is None:
        return False
    allowed = {_slug(name) for name in pin}
    return _slug(answered) not in allowed | {SLUGS[name] for name in allowed if name in SLUGS}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.partition("/")[0].lower())
