"""OpenAI Responses, with codex's three ways to offer tools: how the stub reads requests and writes answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .chat import failure, unstreamed
from .script import Call, ParsedRequest, Reply, Tokens, Tool
from .wire import Frame, pieces

__all__ = ["end", "failure", "frames", "inside", "parse", "reported", "unstreamed", "whole"]

REASONS = {"refusal": "content_filter", "output": "max_output_tokens"}


def parse(body: Mapping[str, Any], path: str) -> ParsedRequest:
    """Parse a request. The results of parallel calls follow each other."""
    given = body["input"] if isinstance(body["input"], list) else []
    is_result = (str(item.get("type", "")).endswith("_output") for item in given)
    results = [found for found, _ in itertools.groupby(is_result)].count(True)
    return ParsedRequest(body["model"], (*offered(body), *hidden(given)), results, bool(body.get("stream")))


def offered(body: Mapping[str, Any]) -> Iterator[Tool]:
    """Tools in the usual field."""
    for tool in body.get("tools") or ():
        if tool.get("type") == "function":
            yield Tool(tool["name"], tool.get("parameters") or {})
        elif tool.get("type") == "custom":
            yield Tool(tool["name"], {}, "free")


def hidden(given: list[dict[str, Any]]) -> Iterator[Tool]:
    """The tool that takes programs, which codex puts into the input for newer models."""
    for item in given:
        if item.get("type") == "additional_tools":
            for space in item.get("tools", ()):
                for tool in space.get("tools", [space]):
                    if tool.get("type") == "custom" and tool.get("name") == "exec":
                        yield Tool("exec", {}, "code")


def reported(tokens: Tokens) -> Tokens:
    """The tokens as this API reports them: without cache writes."""
    return replace(tokens, input=tokens.input + tokens.cache_write, cache_write=0)


def usage(tokens: Tokens) -> dict[str, Any]:
    """The usage record: input holds the cached tokens, output the reasoning."""
    given, output = tokens.input + tokens.cache_read + tokens.cache_write, tokens.output + tokens.reasoning
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": given + output,
    }


def items(reply: Reply) -> list[dict[str, Any]]:
    """The output of the whole answer: thinking, then calls or the text."""
    found: list[dict[str, Any]] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        found.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary, "encrypted_content": "c3R1Yg=="})
    text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    found.append(
        {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "status": "completed", "content": [text]},
    )
    return [*found, *map(called, reply.calls)]


def called(call: Call) -> dict[str, Any]:
    """One call of the whole answer."""
    if isinstance(call.arguments, str):
        kind, arguments = "custom_tool_call", {"input": call.arguments}
    else:
        kind, arguments = "function_call", {"arguments": json.dumps(call.arguments)}
    number = {"id": f"{'fc' if kind == 'function_call' else 'ctc'}_{call.id}", "type": kind, "status": "completed"}
    return number | {"call_id": call.id, "name": call.name} | arguments


def whole(reply: Reply) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    ended = {"status": "incomplete", "incomplete_details": {"reason": REASONS[reply.ending]}} if reply.ending else {}
    return opened(reply) | {"status": "completed", "output": items(reply), "usage": usage(reply.tokens)} | ended


def opened(reply: Reply) -> dict[str, Any]:
    """The answer before it has content."""
    head = {"id": f"resp_{reply.id}", "object": "response", "created_at": 1_700_000_000, "status": "in_progress"}
    rest: dict[str, Any] = {"model": reply.model, "output": [], "usage": None, "error": None, "parallel_tool_calls": True}
    return head | rest | {"tool_choice": "auto", "tools": []}


def frames(reply: Reply) -> list[Frame]:
    """The answer as a stream, without its end."""
    found = [event("response.created", response=opened(reply)), event("response.in_progress", response=opened(reply))]
    for index, item in enumerate(items(reply)):
        found += streamed(index, item)
    return numbered(found)


def streamed(index: int, item: dict[str, Any]) -> Iterator[Frame]:
    """One item, piece by piece."""

    def part(kind: str, **fields: Any) -> Frame:
        return event(f"response.{kind}", item_id=item["id"], output_index=index, **fields)

    empty: dict[str, Any] = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}
    opening = item | empty.get(item["type"], {"input": ""})
    yield event("response.output_item.added", output_index=index, item=opening | {"status": "in_progress"})
    match item:
        case {"type": "message", "content": [text]}:
            yield part("content_part.added", content_index=0, part=text | {"text": ""})
            for piece in pieces(text["text"]):
                yield part("output_text.delta", content_index=0, delta=piece)
            yield part("output_text.done", content_index=0, text=text["text"])
            yield part("content_part.done", content_index=0, part=text)
        case {"type": "reasoning", "summary": [summary]}:
            yield part("reasoning_summary_part.added", summary_index=0, part=summary | {"text": ""})
            for piece in pieces(summary["text"]):
                yield part("reasoning_summary_text.delta", summary_index=0, delta=piece)
            yield part("reasoning_summary_text.done", summary_index=0, text=summary["text"])
            yield part("reasoning_summary_part.done", summary_index=0, part=summary)
        case {"type": "function_call", "arguments": arguments}:
            for piece in pieces(arguments):
                yield part("function_call_arguments.delta", delta=piece)
            yield part("function_call_arguments.done", arguments=arguments)
        case {"input": text}:
            for piece in pieces(text):
                yield part("custom_tool_call_input.delta", delta=piece)
            yield part("custom_tool_call_input.done", input=text)
    yield event("response.output_item.done", output_index=index, item=item)


def end(reply: Reply) -> list[Frame]:
    """The end of the stream: the whole answer again, and the usage."""
    response = whole(reply)
    return numbered([event(f"response.{response['status']}", response=response)], len(frames(reply)))


def inside(reply: Reply, error: dict[str, Any]) -> list[Frame]:
    """How a stream ends by an error inside it."""
    return [event("response.failed", response=opened(reply) | {"status": "failed", "error": error})]


def event(kind: str, **fields: Any) -> Frame:
    """One frame."""
    return Frame({"type": kind} | fields, kind)


def numbered(found: list[Frame], first: int = 0) -> list[Frame]:
    """The frames with their sequence numbers."""
    return [
        Frame(frame.data | {"sequence_number": number} if isinstance(frame.data, dict) else frame.data, frame.event)
        for number, frame in enumerate(found, first)
    ]
