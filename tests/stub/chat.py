"""OpenAI chat completions, with what OpenRouter and Moonshot add: how the stub reads requests and writes answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from .script import Call, ParsedRequest, Reply, Tokens, Tool
from .wire import Frame, pieces

KINDS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    529: ("server_error", "server_is_overloaded"),
}


def parse(body: Mapping[str, Any], path: str) -> ParsedRequest:
    """Parse a request. The results of parallel calls follow each other."""
    results = [role for role, _ in itertools.groupby(message["role"] for message in body["messages"])].count("tool")
    functions = [tool["function"] for tool in body.get("tools") or () if tool.get("type") == "function"]
    tools = tuple(Tool(function["name"], function.get("parameters") or {}) for function in functions)
    return ParsedRequest(body["model"], tools, results, bool(body.get("stream")), metered=metered(body))


def metered(body: Mapping[str, Any]) -> bool:
    """Whether the request asks for the usage of a stream, with OpenAI's or OpenRouter's field; else most servers report none."""
    given = (body.get("stream_options") or {}).get("include_usage"), (body.get("usage") or {}).get("include")
    return not body.get("stream") or True in given


def reported(tokens: Tokens) -> Tokens:
    """The tokens as this API reports them."""
    return tokens


def usage(reply: Reply) -> dict[str, Any]:
    """The usage record: prompt tokens hold the cached ones, completion tokens the reasoning."""
    tokens = reply.tokens
    prompt, completion = tokens.input + tokens.cache_read + tokens.cache_write, tokens.output + tokens.reasoning
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
    return found if reply.cost_usd is None else found | {"cost": reply.cost_usd, "is_byok": False}


def head(reply: Reply, kind: str) -> dict[str, Any]:
    """The fields that every chunk begins with."""
    found = {"id": f"chatcmpl-{reply.id}", "object": kind, "created": 1_700_000_000, "model": reply.model}
    return found if reply.provider is None else found | {"provider": reply.provider}


def called(call: Call) -> dict[str, Any]:
    """One call of the whole message."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}


def reason(reply: Reply) -> str:
    """The finish reason."""
    return {"refusal": "content_filter", "output": "length"}.get(reply.ending, "tool_calls" if reply.calls else "stop")


def reasoning(reply: Reply, text: str) -> dict[str, Any]:
    """A piece of the thinking, in OpenRouter's two fields or in the one field of most others."""
    if reply.provider is None:
        return {"reasoning_content": text}
    return {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]}


def whole(reply: Reply) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.thinking:
        message |= reasoning(reply, reply.thinking)
    if reply.calls:
        message["tool_calls"] = [called(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": reason(reply)}
    return head(reply, "chat.completion") | {"choices": [choice], "usage": usage(reply)}


def frames(reply: Reply) -> list[Frame]:
    """The answer as a stream, without its end."""
    found = [chunk(reply, {"role": "assistant", "content": ""})]
    found += [chunk(reply, reasoning(reply, piece)) for piece in pieces(reply.thinking)]
    found += [chunk(reply, {"content": piece}) for piece in pieces(reply.text)]
    for index, call in enumerate(reply.calls):
        whole_call = called(call)
        named = whole_call["function"] | {"arguments": ""}
        found.append(chunk(reply, {"tool_calls": [{"index": index} | whole_call | {"function": named}]}))
        for piece in pieces(whole_call["function"]["arguments"]):
            found.append(chunk(reply, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    return found


def end(reply: Reply) -> list[Frame]:
    """The end of the stream: finish reason, and the usage where the request asks for it."""
    last = Frame(head(reply, "chat.completion.chunk") | {"choices": [], "usage": usage(reply)})
    return [chunk(reply, {}, reason(reply)), *([last] if reply.metered else []), Frame("[DONE]")]


def chunk(reply: Reply, delta: dict[str, Any], finish: str | None = None) -> Frame:
    """One frame."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Frame(head(reply, "chat.completion.chunk") | {"choices": [choice]})


def inside(reply: Reply, error: dict[str, Any]) -> list[Frame]:
    """How a stream ends by an error inside it."""
    last = chunk(reply, {"content": ""}, "error").data
    assert isinstance(last, dict)
    return [Frame(last | {"error": error}), Frame("[DONE]")]


def unstreamed(error: dict[str, Any]) -> dict[str, Any]:
    """The body of the same error without a stream."""
    return {"error": error}


def failure(status: int, message: str) -> dict[str, Any]:
    """The body of an error."""
    kind, code = KINDS[status]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
