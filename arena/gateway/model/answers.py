"""Reading an answer while it passes: never delays it, and never keeps more of it than one event. One parser per interface."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from arena.gateway.config import ModelAccess
from arena.gateway.model.apis import Json, has_more_values, inner
from arena.gateway.model.redact import plain_message, plain_name
from arena.schema import Api

FRAME_BYTES, FRAME_VALUES = 4 << 20, 300_000
"""Of one event. The content of a larger one stays unknown."""
DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})")
BROKER_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|(0[1-9]|1[0-2])-?[0-3]\d)(?=:|$)")
YEAR_MONTH = re.compile(r"-(2\d)(0[1-9]|1[0-2])(?=:|$)")
SLUGS = {"googlevertex": "google", "mancer": "mancer2", "claudeonaws": "claudeplatformonaws"}
"""Providers that OpenRouter names differently in its answers and its requests (both lists are in its Python package)."""
OWN_FAULTS = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
NAME_FIELDS = ("code", "type", "status", "error_code", "error_type", "reason", "limit_source")
ERROR_DETAILS, ERROR_NAME_CHARS = 16, 100
REFUSALS = {"refusal", "content_filter", "sensitive"}
"""Finish reasons that mean a refusal; z.ai calls it sensitive."""
POLICY_FLAGS = {
    "cyber_policy",
    "bio_policy",
    "misalignment_policy_violation",
    "content_policy_violation",
    "content_filter",
    "flagged_input",
}
"""Names of errors with which a provider refuses a request by a policy: OpenAI's and Azure's codes, OpenRouter's moderation."""
FLAGGED = ("Invalid prompt: your prompt was flagged", "Output blocked by content filtering policy")
"""How a message begins that says the same under the name of every bad request: OpenAI's older words, and Anthropic's."""
OUTPUT_LIMITS = {"max_tokens", "max_output_tokens", "length", "MAX_TOKENS"}
"""Finish reasons of an answer that was cut at the limit on one answer: Anthropic's, OpenAI's two, Google's."""
CONTEXT_LIMITS = {"model_context_window_exceeded", "context_length_exceeded"}
"""Anthropic's finish reason, and the name of OpenAI's error, when the model's context is full."""
CONTEXT_PHRASES = (
    "prompt is too long",
    "input is too long",
    "the input token count",
    "this model's maximum context length",
    "this endpoint's maximum context length",
)
"""How the message of an error begins that says so without a name: Anthropic's two, Google's, vLLM's, OpenRouter's."""
GEMINI_REFUSALS = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK"}


@dataclass(frozen=True)
class Facts:
    """What is known of an answer."""

    model: str | None = None
    provider: str | None = None
    """The provider that answered, when a broker names it."""
    tier: str | None = None
    """The service tier, when it is not the ordinary one: it has other prices."""
    finish: str | None = None
    """Why the answer ended, in the provider's word; None: it has not ended."""
    refused: bool = False
    error: str | None = None
    """An error inside a stream that began well."""
    own_fault: bool = False
    """Whether the error is the request's fault."""
    error_names: tuple[str, ...] = ()
    """The names in that error: see `error_names`."""
    unread: bool = False
    """Whether a part is too long, too deep or otherwise more than the gateway reads: an agent can make a provider echo that."""
    usage: Json = field(default_factory=dict)
    """The provider's own numbers."""

    def then(self, later: Facts) -> Facts:
        """These facts, updated with later ones."""
        known = {name: getattr(later, name) or value for name, value in vars(self).items()}
        usage = {**self.usage, **{key: value for key, value in later.usage.items() if value is not None}}
        return Facts(**known | {"usage": usage})


def anthropic(event: Json) -> Facts:
    """A message, or an event of its stream. The first event has the input tokens, the last ones the output."""
    kind = event.get("type")
    if kind == "error":
        return _failed(event)
    message = inner(event, "message") if kind == "message_start" else event
    usage = inner(message, "usage")
    ending = inner(event, "delta") if kind == "message_delta" else message
    finish = plain_name(ending.get("stop_reason"))
    speed = "fast" if usage.get("speed") == "fast" else None
    return Facts(
        model=plain_name(message.get("model")),
        provider=plain_name(message.get("provider")) or plain_name(event.get("provider")),
        tier=speed or _tier(usage.get("service_tier")),
        finish=finish,
        refused=finish in REFUSALS,
        usage=usage,
    )


def responses(event: Json) -> Facts:
    """A response, or an event of its stream."""
    kind = event.get("type")
    if kind == "error":
        return _failed(event)
    if isinstance(kind, str) and kind.startswith("response.refusal."):
        return Facts(refused=True)
    response = event if event.get("object") == "response" else inner(event, "response")
    status = response.get("status")
    if status in ("failed", "cancelled"):
        return replace(_failed(response), model=plain_name(response.get("model")), usage=inner(response, "usage"))
    reason = plain_name(inner(response, "incomplete_details").get("reason"))
    return Facts(
        model=plain_name(response.get("model")),
        provider=plain_name(response.get("provider")),
        tier=_tier(response.get("service_tier")) if status in ("completed", "incomplete") else None,
        finish=reason or plain_name(status) if status in ("completed", "incomplete") else None,
        refused=reason in REFUSALS or any(_refuses(item) for item in _list(response, "output")),
        usage=inner(response, "usage"),
    )


def chat(event: Json) -> Facts:
    """A completion, or a chunk of one."""
    choice = next((entry for entry in _list(event, "choices") if isinstance(entry, dict)), {})
    finish = plain_name(choice.get("finish_reason"))
    message = inner(choice, "delta") or inner(choice, "message")
    failed = _failed(event) if event.get("error") or finish == "error" else Facts()
    return Facts(
        model=plain_name(event.get("model")),
        provider=plain_name(event.get("provider")),
        tier=_tier(event.get("service_tier")),
        finish=None if failed.error else finish,
        refused=finish in REFUSALS or bool(message.get("refusal")),
        error=failed.error,
        own_fault=failed.own_fault,
        error_names=failed.error_names,
        usage=inner(event, "usage") or inner(choice, "usage"),  # Moonshot puts it into the choice
    )


def gemini(event: Json) -> Facts:
    """A response; a stream is a sequence of them."""
    candidate = next((entry for entry in _list(event, "candidates") if isinstance(entry, dict)), {})
    blocked = plain_name(inner(event, "promptFeedback").get("blockReason"))
    finish = plain_name(candidate.get("finishReason")) or blocked
    usage = inner(event, "usageMetadata")
    return Facts(
        model=plain_name(event.get("modelVersion")),
        tier=_tier(usage.get("serviceTier")),
        finish=finish,
        refused=blocked is not None or finish in GEMINI_REFUSALS,
        error=error_message(event) if event.get("error") else None,
        error_names=error_names(event) if event.get("error") else (),
        usage=usage,
    )


PARSERS: Mapping[Api, Callable[[Json], Facts]] = {"anthropic": anthropic, "responses": responses, "chat": chat, "gemini": gemini}


def error_message(body: Json) -> str:
    """The provider's own message in an error of any shape."""
    error = body.get("error")
    own = error if isinstance(error, dict) else body
    for value in (own.get("message"), error, body.get("message"), body.get("detail"), own.get("code"), own.get("type")):
        if isinstance(value, str) and (message := plain_message(value)):
            return message
    return "an error without a message"


def error_names(body: Json) -> tuple[str, ...]:
    """Names in the fields of an error that the provider alone sets. Its message is none of them: that may quote the request."""
    error = body.get("error")
    own = error if isinstance(error, dict) else body
    details = own.get("details")  # Google has a list of them, Anthropic one
    places = [own, inner(own, "metadata"), *(details[:ERROR_DETAILS] if isinstance(details, list) else [details])]
    found = [place.get(field) for place in places if isinstance(place, dict) for field in NAME_FIELDS]
    found += ["flagged_input"] * ("flagged_input" in inner(own, "metadata"))
    return tuple(dict.fromkeys(str(name) for name in found if isinstance(name, str | int) and len(str(name)) <= ERROR_NAME_CHARS))


def limit_reached(finish: str | None, names: Sequence[str], message: str) -> Literal["context", "output"] | None:
    """What cut an answer with that finish reason, or with an error of those names and that message; None: no limit did."""
    if finish in CONTEXT_LIMITS or not CONTEXT_LIMITS.isdisjoint(names) or message.lower().startswith(CONTEXT_PHRASES):
        return "context"
    return "output" if finish in OUTPUT_LIMITS else None


def is_policy_refusal(names: Sequence[str], message: str) -> bool:
    """Whether an error with those names and that message refuses a request by a policy of the provider."""
    return not POLICY_FLAGS.isdisjoint(names) or message.startswith(FLAGGED)


def _failed(body: Json) -> Facts:
    names = error_names(body)
    return Facts(error=error_message(body), own_fault=any(name in OWN_FAULTS for name in names), error_names=names)


def _refuses(item: object) -> bool:
    parts = item.get("content") if isinstance(item, dict) else None
    return isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _tier(value: object) -> str | None:
    found = plain_name(value)
    return None if found is None or found.lower() in ("standard", "default", "auto", "on_demand") else found


def _list(body: Json, field_name: str) -> list[Any]:
    found = body.get(field_name)
    return found if isinstance(found, list) else []


class EventParser:
    """The data of one stream's server-sent events, whatever the pieces and whatever the bytes.

    Lines end with \\n or \\r\\n; no provider sends the lone \\r that the standard allows too.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        """An unfinished line: it may come in millions of pieces."""
        self._data: list[bytes] = []
        self._held_bytes = 0
        self.too_long = False
        """Whether an event was too long to keep."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of the events that this piece ends."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._hold(end)
            line = bytes(self._line).removesuffix(b"\r")
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
            self.too_long = True
            self._data.clear()
            self._line[:] = b":" if piece or self._line else b""  # a comment: none of it is kept
        else:
            self._line += piece


class AnswerReader:
    """Reader of one answer. `facts` is what is known up to now."""

    def __init__(self, api: Api, media_type: str) -> None:
        self.facts = Facts()
        self._parse = PARSERS[api]
        self._events = EventParser() if media_type.startswith("text/event-stream") else None
        self._body = bytearray()
        self._body_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Read bytes of the answer, in whatever pieces. Never raises."""
        if self._events is not None:
            for event in self._events.feed(piece):
                self._take(event)
            return
        self._body_bytes += len(piece)
        if self._body_bytes <= FRAME_BYTES:
            self._body += piece
        else:
            self._body.clear()

    def end(self) -> None:
        """Read the end of the answer."""
        if self._events is not None:
            for event in self._events.rest():
                self._take(event)
        elif self._body_bytes <= FRAME_BYTES:
            self._take(bytes(self._body))
        if self._body_bytes > FRAME_BYTES or (self._events is not None and self._events.too_long):
            self.facts = replace(self.facts, unread=True)

    def _take(self, data: bytes) -> None:
        if has_more_values(data, FRAME_VALUES):
            self.facts = replace(self.facts, unread=True)
            return
        try:
            found = json.loads(data.decode())
        except (UnicodeDecodeError, json.JSONDecodeError):
            return
        except (ValueError, RecursionError):  # a number of too many digits; nested too deep
            self.facts = replace(self.facts, unread=True)
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


def wrong_answer(access: ModelAccess, facts: Facts) -> str | None:
    """Which model or provider answered that should not have; None when all is well."""
    names = (access.model, *access.answers_as)
    if all(wrong_model(name, facts.model, broker=access.route.broker) for name in names):
        return f"model {facts.model!r} answered, and the request was for {access.model!r}"
    if access.route.broker and wrong_provider(access.provider, facts.provider):
        return f"provider {facts.provider!r} answered, and this run is pinned to {', '.join(access.provider)}"
    return None


def wrong_provider(pin: Sequence[str], answered: str | None) -> bool:
    """Whether a provider outside the pin answered. In `deepinfra/fp4` the part before the slash counts."""
    if not pin or answered is None:
        return False
    allowed = {_slug(name) for name in pin}
    return _slug(answered) not in allowed | {SLUGS[name] for name in allowed if name in SLUGS}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.partition("/")[0].lower())
