"""What one event of a stream, or one whole answer, says: by interface, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arena.gateway.model.redact import name, said
from arena.schema import Api

Json = Mapping[str, Any]
OWN_FAULTS = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
REFUSALS = {"refusal", "content_filter", "sensitive"}
"""Finish reasons by which a model says no; z.ai calls it sensitive."""
GEMINI_REFUSALS = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK"}


@dataclass(frozen=True)
class Facts:
    """What is known of an answer."""

    model: str | None = None
    provider: str | None = None
    """Who answered, where a broker says it."""
    tier: str | None = None
    """Of service, where it is not the ordinary one: other prices."""
    finish: str | None = None
    """Why it ended, in the provider's word; None: it has not."""
    refused: bool = False
    error: str | None = None
    """Told inside a stream that began well."""
    own_fault: bool = False
    """The error is about the request, and not the provider's."""
    usage: Json = field(default_factory=dict)
    """The provider's own numbers."""

    def then(self, later: Facts) -> Facts:
        """These, with what is newer or was not known."""
        return Facts(
            model=later.model or self.model,
            provider=later.provider or self.provider,
            tier=later.tier or self.tier,
            finish=later.finish or self.finish,
            refused=later.refused or self.refused,
            error=later.error or self.error,
            own_fault=later.own_fault or self.own_fault,
            usage={**self.usage, **{key: value for key, value in later.usage.items() if value is not None}},
        )


def anthropic(event: Json) -> Facts:
    """A message, or an event of its stream. The input is told at the start, the output at the end."""
    kind = event.get("type")
    if kind == "error":
        return _failed(event)
    message = _inner(event, "message") if kind == "message_start" else event
    usage = _inner(message, "usage")
    ending = _inner(event, "delta") if kind == "message_delta" else message
    finish = name(ending.get("stop_reason"))
    speed = "fast" if usage.get("speed") == "fast" else None
    return Facts(
        model=name(message.get("model")),
        provider=name(message.get("provider")) or name(event.get("provider")),
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
    response = event if event.get("object") == "response" else _inner(event, "response")
    status = response.get("status")
    if status in ("failed", "cancelled"):
        return replace(_failed(response), model=name(response.get("model")), usage=_inner(response, "usage"))
    reason = name(_inner(response, "incomplete_details").get("reason"))
    return Facts(
        model=name(response.get("model")),
        provider=name(response.get("provider")),
        tier=_tier(response.get("service_tier")) if status in ("completed", "incomplete") else None,
        finish=reason or name(status) if status in ("completed", "incomplete") else None,
        refused=reason in REFUSALS or any(_refuses(item) for item in _list(response, "output")),
        usage=_inner(response, "usage"),
    )


def chat(event: Json) -> Facts:
    """A completion, or a chunk of one."""
    choice = next((entry for entry in _list(event, "choices") if isinstance(entry, dict)), {})
    finish = name(choice.get("finish_reason"))
    said = _inner(choice, "delta") or _inner(choice, "message")
    failed = _failed(event) if event.get("error") or finish == "error" else Facts()
    return Facts(
        model=name(event.get("model")),
        provider=name(event.get("provider")),
        tier=_tier(event.get("service_tier")),
        finish=None if failed.error else finish,
        refused=finish in REFUSALS or bool(said.get("refusal")),
        error=failed.error,
        own_fault=failed.own_fault,
        usage=_inner(event, "usage") or _inner(choice, "usage"),  # the latter is Moonshot's
    )


def gemini(event: Json) -> Facts:
    """A response; a stream is a sequence of them."""
    candidate = next((entry for entry in _list(event, "candidates") if isinstance(entry, dict)), {})
    blocked = name(_inner(event, "promptFeedback").get("blockReason"))
    finish = name(candidate.get("finishReason")) or blocked
    usage = _inner(event, "usageMetadata")
    return Facts(
        model=name(event.get("modelVersion")),
        tier=_tier(usage.get("serviceTier")),
        finish=finish,
        refused=blocked is not None or finish in GEMINI_REFUSALS,
        error=told(event) if event.get("error") else None,
        usage=usage,
    )


READERS: Mapping[Api, Callable[[Json], Facts]] = {
    "anthropic": anthropic,
    "responses": responses,
    "chat": chat,
    "gemini": gemini,
}


def told(body: Json) -> str:
    """The provider's own words in an error, of whichever shape."""
    error = body.get("error")
    inner = error if isinstance(error, dict) else body
    for value in (inner.get("message"), error, body.get("message"), body.get("detail"), inner.get("code"), inner.get("type")):
        if isinstance(value, str) and (words := said(value)):
            return words
    return "an error without words"


def _failed(body: Json) -> Facts:
    error = body.get("error")
    inner = error if isinstance(error, dict) else body
    return Facts(error=told(body), own_fault=any(inner.get(key) in OWN_FAULTS for key in ("code", "type")))


def _refuses(item: object) -> bool:
    parts = item.get("content") if isinstance(item, dict) else None
    return isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _tier(value: object) -> str | None:
    found = name(value)
    return None if found is None or found.lower() in ("standard", "default", "auto", "on_demand") else found


def _inner(body: Json, field_name: str) -> Json:
    found = body.get(field_name)
    return found if isinstance(found, dict) else {}


def _list(body: Json, field_name: str) -> list[Any]:
    found = body.get(field_name)
    return found if isinstance(found, list) else []
