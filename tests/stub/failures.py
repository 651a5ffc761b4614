"""What a provider says when it fails or refuses: by mode and interface, in each provider's own words.

Read at the providers' documentation and in reports of users, November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal[
    "ok",
    "401",
    "429",
    "500",
    "529",
    "no_credit",
    "overload",
    "hiccup",
    "no_provider",
    "policy",
    "filter",
    "context",
    "output",
    "cut",
    "early",
    "loop",
    "hang",
    "unknown_model",
    "other_provider",
    "other_model",
]
Ending = Literal["", "refusal", "output"]
"""How an answer ends: as its content says, refused by a filter, or cut at the limit on one answer."""


@dataclass(frozen=True)
class Error:
    """One error of a provider."""

    status: int
    """Of the answer; 200: the error is inside it."""
    body: dict[str, Any]
    """The whole body, or the object of the error inside an answer."""
    unstreamed: int = 200
    """The status of the same inside an answer that does not stream."""


STATUSES: dict[Mode, tuple[int, str]] = {
    "401": (401, "the stub takes no such key"),
    "429": (429, "the stub has had enough requests"),
    "500": (500, "the stub has failed"),
    "529": (529, "the stub has too much to do"),
    "unknown_model": (404, "the stub has no such model"),
}
"""Modes in which every request gets that status."""
ENDINGS: dict[Mode, Ending] = {"filter": "refusal", "output": "output"}
"""Modes in which an answer of status 200 ends so."""


def _openai(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


NO_CREDIT = {
    "anthropic": Error(400, _anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")),
    "responses": Error(429, _openai("You exceeded your current quota.", "insufficient_quota", "credit_balance_exhausted")),
    "chat": Error(402, {"error": {"message": "Insufficient credits.", "code": 402}}),
    "gemini": Error(
        402, {"error": {"code": 402, "message": "Your prepayment credits are depleted.", "status": "RESOURCE_EXHAUSTED"}}
    ),
}
OVERLOAD = {
    "anthropic": Error(200, {"type": "overloaded_error", "message": "Overloaded"}, 529),
    "responses": Error(200, {"code": "server_is_overloaded", "message": "Our servers are currently overloaded."}, 503),
    "chat": Error(200, {"code": 502, "message": "Provider returned error", "metadata": {"error_type": "provider_overloaded"}}),
    "gemini": Error(200, {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}, 503),
}
POLICY = {
    "anthropic": Error(400, _anthropic("invalid_request_error", "Output blocked by content filtering policy")),
    "responses": Error(200, {"code": "cyber_policy", "message": "Flagged for possible cybersecurity risk."}, 400),
    "chat": Error(
        403,
        {
            "error": {
                "code": 403,
                "message": "Your chosen model requires moderation and your input was flagged",
                "metadata": {"reasons": ["illicit"], "flagged_input": "Read PROMPT.md", "provider_name": "Stub"},
            }
        },
    ),
    "gemini": Error(200, {"blockReason": "PROHIBITED_CONTENT"}),
}
CONTEXT = {
    "anthropic": Error(400, _anthropic("invalid_request_error", "prompt is too long: 1000001 tokens > 1000000 maximum")),
    "responses": Error(
        200,
        {
            "code": "context_length_exceeded",
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
        },
        400,
    ),
    "chat": Error(
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 202752 tokens.",
                "code": 400,
            }
        },
    ),
    "gemini": Error(
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
}
NO_PROVIDER = {
    "chat": Error(404, {"error": {"message": "No allowed providers are available for the selected model.", "code": 404}})
}
LATER: dict[Mode, dict[str, Error]] = {
    "no_credit": NO_CREDIT,
    "overload": OVERLOAD,
    "hiccup": OVERLOAD,
    "no_provider": NO_PROVIDER,
    "policy": POLICY,
    "context": CONTEXT,
}
"""Modes with an error from the second turn on, by interface."""
LASTING: tuple[Mode, ...] = ("no_credit", "overload", "no_provider", "cut", "early", "hang")
"""Modes in which the provider fails every request once it has begun, whatever it holds; the others are about its content."""
