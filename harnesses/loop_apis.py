"""The four interfaces to a model, without tools and always streamed: a request's path and body, and an answer's events.

Standard library only: it runs inside the sandbox, beside `loop.py`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Settings = dict
Messages = list[tuple[str, str]]
"""(role, text), where the role is `user` or `assistant`."""
ANSWER_TOKENS = 32_000
"""Most tokens of an answer on the one interface that demands a bound, thinking included."""
THINKING_TOKENS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 32768}
"""Of Gemini 2, which takes no words."""
FINAL = (
    "context_length_exceeded",
    "invalid_prompt",
    "invalid_request_error",
    "cyber_policy",
    "bio_policy",
    "misalignment_policy_violation",
    "content_policy_violation",
    "content_filter",
    "flagged_input",
)
"""Names of errors by the request's own fault or by a policy: another try changes nothing, and the gateway counts a turn."""
FLAGGED = ("Invalid prompt: your prompt was flagged", "Output blocked by content filtering policy")
"""How a message begins that says so without a name of its own."""


@dataclass
class Answer:
    """What a model has sent so far."""

    text: str = ""
    thinking: str = ""
    reason: str = ""
    """Why it ended, in the interface's own word; empty until then."""
    fault: str = ""
    """An error that came within the stream."""
    final: bool = False
    """Whether that error makes the answer a turn all the same."""
    usage: dict = field(default_factory=dict)
    """Tokens in disjoint parts, as in a trajectory."""


@dataclass(frozen=True)
class Api:
    """One interface."""

    path: Callable[[Settings], str]
    body: Callable[[Settings, Messages], dict]
    read: Callable[[dict, Answer], None]
    """Adds one event of the stream to the answer."""
    cut: str
    """The reason of an answer that reached its most tokens."""


def total(prompt: object, cached: object, output: object, reasoning: object = 0, written: object = 0) -> dict:
    """The usage of an interface whose prompt includes what it cached, and whose output includes the reasoning."""
    given, read, wrote, made, thought = (
        value if isinstance(value, int) and value >= 0 else 0 for value in (prompt, cached, written, output, reasoning)
    )
    return {
        "input_tokens": max(0, given - read - wrote),
        "cache_read_tokens": read,
        "cache_write_tokens": wrote,
        "output_tokens": max(0, made - thought),
        "reasoning_tokens": thought,
    }


def plain(messages: Messages) -> list[dict]:
    """The conversation as three of the four interfaces want it."""
    return [{"role": role, "content": text} for role, text in messages]


def effort(settings: Settings) -> str:
    """The effort to name; empty when the request should name none."""
    return "" if settings["effort"] == "none" else settings["effort"]


def chat_body(settings: Settings, messages: Messages) -> dict:
    """Of OpenAI chat completions, with a broker's fields where the route is one."""
    body = {"model": settings["model"], "messages": plain(messages), "stream": True, "stream_options": {"include_usage": True}}
    if effort(settings):
        body |= {"reasoning": {"effort": effort(settings)}} if settings["broker"] else {"reasoning_effort": effort(settings)}
    return body | pin(settings)


def pin(settings: Settings) -> dict:
    """To a broker: the only providers that may answer."""
    return {"provider": {"order": settings["provider"], "allow_fallbacks": False}} if settings["provider"] else {}


def chat_read(event: dict, answer: Answer) -> None:
    """One chunk of chat completions."""
    for choice in objects(event.get("choices")):
        delta = inner(choice, "delta")
        answer.text += words(delta.get("content"))
        answer.thinking += words(delta.get("reasoning_content") or delta.get("reasoning"))
        answer.reason = words(choice.get("finish_reason")) or answer.reason
    if isinstance(used := event.get("usage"), dict):
        prompt, completion = inner(used, "prompt_tokens_details"), inner(used, "completion_tokens_details")
        answer.usage = total(
            used.get("prompt_tokens"),
            prompt.get("cached_tokens"),
            used.get("completion_tokens"),
            completion.get("reasoning_tokens"),
            prompt.get("cache_write_tokens"),
        )
    note_fault(event, answer)


def anthropic_body(settings: Settings, messages: Messages) -> dict:
    """Of Anthropic Messages. Adaptive thinking is the one that takes an effort."""
    body = {"model": settings["model"], "messages": plain(messages), "max_tokens": ANSWER_TOKENS, "stream": True}
    if effort(settings):
        body |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort(settings)}}
    return body | pin(settings)


def anthropic_read(event: dict, answer: Answer) -> None:
    """One event of Messages. Input and caches are counted apart; thinking is part of the output."""
    delta = inner(event, "delta")
    answer.text += words(delta.get("text"))
    answer.thinking += words(delta.get("thinking"))
    answer.reason = words(delta.get("stop_reason")) or answer.reason
    used = inner(inner(event, "message"), "usage") | inner(event, "usage")
    names = {
        "input_tokens": "input_tokens",
        "cache_read_input_tokens": "cache_read_tokens",
        "cache_creation_input_tokens": "cache_write_tokens",
        "output_tokens": "output_tokens",
    }
    for name, own in names.items():
        if isinstance(used.get(name), int):
            answer.usage = total(0, 0, 0) | answer.usage | {own: used[name]}
    note_fault(event, answer)


def responses_body(settings: Settings, messages: Messages) -> dict:
    """Of OpenAI Responses."""
    body = {"model": settings["model"], "input": plain(messages), "stream": True, "store": False}
    return body | ({"reasoning": {"effort": effort(settings), "summary": "auto"}} if effort(settings) else {}) | pin(settings)


def responses_read(event: dict, answer: Answer) -> None:
    """One event of Responses."""
    kind = words(event.get("type"))
    if kind == "response.output_text.delta":
        answer.text += words(event.get("delta"))
    elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        answer.thinking += words(event.get("delta"))
    elif kind in ("response.completed", "response.incomplete", "response.failed"):
        whole = inner(event, "response")
        used = inner(whole, "usage")
        details = inner(used, "input_tokens_details"), inner(used, "output_tokens_details")
        answer.reason = words(inner(whole, "incomplete_details").get("reason")) or words(whole.get("status"))
        answer.usage = total(
            used.get("input_tokens"),
            details[0].get("cached_tokens"),
            used.get("output_tokens"),
            details[1].get("reasoning_tokens"),
        )
        note_fault(whole, answer)
    note_fault(event, answer)


def gemini_body(settings: Settings, messages: Messages) -> dict:
    """Of Gemini generateContent."""
    contents = [{"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]} for role, text in messages]
    if not effort(settings):
        return {"contents": contents}
    thinking: dict[str, object] = {"includeThoughts": True}
    if settings["model"].startswith("gemini-2"):
        thinking["thinkingBudget"] = THINKING_TOKENS[effort(settings)]
    else:
        thinking["thinkingLevel"] = effort(settings).upper()
    return {"contents": contents, "generationConfig": {"thinkingConfig": thinking}}


def gemini_read(event: dict, answer: Answer) -> None:
    """One piece of generateContent. Thoughts are not part of the candidates' tokens."""
    for candidate in objects(event.get("candidates")):
        for part in objects(inner(candidate, "content").get("parts")):
            if part.get("thought") is True:
                answer.thinking += words(part.get("text"))
            else:
                answer.text += words(part.get("text"))
        answer.reason = words(candidate.get("finishReason")) or answer.reason
    answer.reason = answer.reason or words(inner(event, "promptFeedback").get("blockReason"))
    if used := inner(event, "usageMetadata"):
        given, thought = used.get("promptTokenCount"), used.get("thoughtsTokenCount")
        answer.usage = total(given, used.get("cachedContentTokenCount"), used.get("candidatesTokenCount"))
        answer.usage["reasoning_tokens"] = thought if isinstance(thought, int) else 0
    note_fault(event, answer)


def note_fault(event: dict, answer: Answer) -> None:
    """Keep an error that came within the stream."""
    if error := event.get("error") or (event if event.get("type") == "error" else None):
        answer.fault = words(error.get("message")) or str(error) if isinstance(error, dict) else str(error)
        named = json.dumps(error)  # a name is a whole text there, with its quotes
        answer.final = any(f'"{name}"' in named for name in FINAL) or answer.fault.startswith(FLAGGED)


def inner(value: dict, name: str) -> dict:
    """The object in a field; an empty one when the field holds something else."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def objects(value: object) -> Iterable[dict]:
    """The objects of a list; none when it is something else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def words(value: object) -> str:
    """A text; empty when it is something else."""
    return value if isinstance(value, str) else ""


APIS = {
    "chat": Api(lambda s: "/v1/chat/completions", chat_body, chat_read, "length"),
    "anthropic": Api(lambda s: "/v1/messages", anthropic_body, anthropic_read, "max_tokens"),
    "responses": Api(lambda s: "/v1/responses", responses_body, responses_read, "max_output_tokens"),
    "gemini": Api(lambda s: f"/v1beta/models/{s['model']}:streamGenerateContent?alt=sse", gemini_body, gemini_read, "MAX_TOKENS"),
}
