"""Facts from one event of a stream, or from one whole answer: one pure function per interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arena.gateway.model.redact import plain_message, plain_name
from arena.schema import Api

Json = Mapping[str, Any]
OWN_FAULTS = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
REFUSALS = {"refusal", "content_filter", "sensitive"}
"""Finish reasons that mean a refusal; z.ai calls it sensitive."""
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
    usage: Json = field(default_factory=dict)
    """The provider's own numbers."""

    def then(self, later: Facts) -> Facts:
        """These facts, updated with later ones."""
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
    """A message, or an event of its stream. The first event has the input tokens, the last ones the output."""
    kind = event.get("type")
    if kind == "error":
        return _failed(event)
    message = _inner(event, "message") if kind == "message_start" else event
    usage = _inner(message, "usage")
    ending = _inner(event, "delta") if kind == "message_delta" else message
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
    response = event if event.get("object") == "response" else _inner(event, "response")
    status = response.get("status")
    if status in ("failed", "cancelled"):
        return replace(_failed(response), model=plain_name(response.get("model")), usage=_inner(response, "usage"))
    reason = plain_name(_inner(response, "incomplete_details").get("reason"))
    return Facts(
        model=plain_name(response.get("model")),
        provider=plain_name(response.get("provider")),
        tier=_tier(response.get("service_tier")) if status in ("completed", "incomplete") else None,
        finish=reason or plain_name(status) if status in ("completed", "incomplete") else None,
        refused=reason in REFUSALS or any(_refuses(item) for item in _list(response, "output")),
        usage=_inner(response, "usage"),
    )


def chat(event: Json) -> Facts:
    """A completion, or a chunk of one."""
    choice = next((entry for entry in _list(event, "choices") if isinstance(entry, dict)), {})
    finish = plain_name(choice.get("finish_reason"))
    message = _inner(choice, "delta") or _inner(choice, "message")
    failed = _failed(event) if event.get("error") or finish == "error" else Facts()
    return Facts(
        model=plain_name(event.get("model")),
        provider=plain_name(event.get("provider")),
        tier=_tier(event.get("service_tier")),
        finish=None if failed.error else finish,
        refused=finish in REFUSALS or bool(message.get("refusal")),
        error=failed.error,
        own_fault=failed.own_fault,
        usage=_inner(event, "usage") or _inner(choice, "usage"),  # Moonshot puts it into the choice
    )


def gemini(event: Json) -> Facts:
    """A response; a stream is a sequence of them."""
    candidate = next((entry for entry in _list(event, "candidates") if isinstance(entry, dict)), {})
    blocked = plain_name(_inner(event, "promptFeedback").get("blockReason"))
    finish = plain_name(candidate.get("finishReason")) or blocked
    usage = _inner(event, "usageMetadata")
    return Facts(
        model=plain_name(event.get("modelVersion")),
        tier=_tier(usage.get("serviceTier")),
        finish=finish,
        refused=blocked is not None or finish in GEMINI_REFUSALS,
        error=error_message(event) if event.get("error") else None,
        usage=usage,
    )


PARSERS: Mapping[Api, Callable[[Json], Facts]] = {
    "anthropic": anthropic,
    "responses": responses,
    "chat": chat,
    "gemini": gemini,
}


def error_message(body: Json) -> str:
    """The provider's own message in an error of any shape."""
    error = body.get("error")
    inner = error if isinstance(error, dict) else body
    for value in (inner.get("message"), error, body.get("message"), body.get("detail"), inner.get("code"), inner.get("type")):
        if isinstance(value, str) and (message := plain_message(value)):
            return message
    return "an error without a message"


def _failed(body: Json) -> Facts:
    error = body.get("error")
    inner = error if isinstance(error, dict) else body
    return Facts(error=error_message(body), own_fault=any(inner.get(key) in OWN_FAULTS for key in ("code", "type")))


def _refuses(item: object) -> bool:
    parts = item.get("content") if isinstance(item, dict) else None
    return isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _tier(value: object) -> str | None:
    found = plain_name(value)
    return None if found is None or found.lower() in ("standard", "default", "auto", "on_demand") else found


def _inner(body: Json, field_name: str) -> Json:
    found = body.get(field_name)
    return found if isinstance(found, dict) else {}


def _list(body: Json, field_name: str) -> list[Any]:
    found = body.get(field_name)
    return found if isinstance(found, list) else []
