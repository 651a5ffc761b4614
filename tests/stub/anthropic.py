"""Anthropic Messages: how the stub reads requests and writes answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .script import ParsedRequest, Reply, Tokens, Tool
from .wire import Frame, pieces

KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}


def parse(body: Mapping[str, Any], path: str) -> ParsedRequest:
    """Parse a request."""
    results = [
        isinstance(message.get("content"), list) and any(part.get("type") == "tool_result" for part in message["content"])
        for message in body["messages"]
    ]
    tools = tuple(Tool(tool["name"], tool.get("input_schema") or {}) for tool in body.get("tools", ()) if "input_schema" in tool)
    return ParsedRequest(body["model"], tools, sum(results), bool(body.get("stream")))


def reported(tokens: Tokens) -> Tokens:
    """The tokens as this API reports them: thinking counts as output."""
    return replace(tokens, output=tokens.output + tokens.reasoning, reasoning=0)


def usage(tokens: Tokens) -> dict[str, Any]:
    """The usage record; `input_tokens` are neither read from a cache nor written to one."""
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output + tokens.reasoning,
    }


def blocks(reply: Reply) -> list[dict[str, Any]]:
    """The content of the whole message."""
    thinking = [{"type": "thinking", "thinking": reply.thinking, "signature": "c3R1Yg=="}] if reply.thinking else []
    calls = [{"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.arguments} for call in reply.calls]
    return [*thinking, {"type": "text", "text": reply.text}, *calls]


def whole(reply: Reply) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    message = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model, "content": blocks(reply)}
    return message | {"stop_reason": reason(reply), "stop_sequence": None, "usage": usage(reply.tokens)}


def reason(reply: Reply) -> str:
    """The stop reason."""
    return {"refusal": "refusal", "output": "max_tokens"}.get(reply.ending, "tool_use" if reply.calls else "end_turn")


def frames(reply: Reply) -> list[Frame]:
    """The answer as a stream, without its end."""
    start = whole(reply) | {"content": [], "stop_reason": None}
    start["usage"] = usage(reply.tokens) | {"output_tokens": 1, "service_tier": "standard"}
    return [
        event("message_start", message=start),
        event("ping"),
        *(frame for index, block in enumerate(blocks(reply)) for frame in streamed(index, block)),
    ]


def streamed(index: int, block: dict[str, Any]) -> Iterator[Frame]:
    """One block, piece by piece."""

    def delta(**fields: str) -> Frame:
        return event("content_block_delta", index=index, delta=fields)

    thinking = {"thinking": "", "signature": ""}
    empty: dict[str, Any] = {"thinking": thinking, "text": {"text": ""}, "tool_use": {"input": {}}}
    yield event("content_block_start", index=index, content_block=block | empty[block["type"]])
    match block:
        case {"type": "thinking", "thinking": text, "signature": signature}:
            yield from (delta(type="thinking_delta", thinking=piece) for piece in pieces(text))
            yield delta(type="signature_delta", signature=signature)
        case {"type": "text", "text": text}:
            yield from (delta(type="text_delta", text=piece) for piece in pieces(text))
        case {"input": arguments}:
            yield from (delta(type="input_json_delta", partial_json=piece) for piece in pieces(json.dumps(arguments)))
    yield event("content_block_stop", index=index)


def end(reply: Reply) -> list[Frame]:
    """The end of the stream: stop reason and usage."""
    stop = {"stop_reason": reason(reply), "stop_sequence": None}
    return [event("message_delta", delta=stop, usage=usage(reply.tokens)), event("message_stop")]


def event(kind: str, **fields: Any) -> Frame:
    """One frame."""
    return Frame({"type": kind} | fields, kind)


def inside(reply: Reply, error: dict[str, Any]) -> list[Frame]:
    """How a stream ends by an error inside it."""
    return [event("error", error=error)]


def unstreamed(error: dict[str, Any]) -> dict[str, Any]:
    """The body of the same error without a stream."""
    return {"type": "error", "error": error}


def failure(status: int, message: str) -> dict[str, Any]:
    """The body of an error."""
    return {"type": "error", "error": {"type": KINDS[status], "message": message}, "request_id": "req_stub"}
