"""Gemini generateContent: how the stub reads requests and writes answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .script import ParsedRequest, Reply, Tokens, Tool, filled
from .wire import Frame, pieces

KINDS = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 529: "UNAVAILABLE"}


def parse(body: Mapping[str, Any], path: str) -> ParsedRequest:
    """Parse a request; its model is in the path."""
    found = re.search(r"/models/([^/:]+):(stream)?", path)
    assert found is not None, path
    declared = [tool for group in body.get("tools") or () for tool in group.get("functionDeclarations") or ()]
    tools = tuple(Tool(tool["name"], tool.get("parametersJsonSchema") or tool.get("parameters") or {}) for tool in declared)
    results = [any("functionResponse" in part for part in content.get("parts", ())) for content in body["contents"]]
    settings = body.get("generationConfig") or {}
    return ParsedRequest(found[1], tools, sum(results), found[2] is not None, settings.get("responseJsonSchema"))


def reported(tokens: Tokens) -> Tokens:
    """The tokens as this API reports them: without cache writes."""
    return replace(tokens, input=tokens.input + tokens.cache_write, cache_write=0)


def usage(tokens: Tokens) -> dict[str, int]:
    """The usage record: the prompt holds the cached tokens, the candidates lack the thoughts."""
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": tokens.cache_read,
        "candidatesTokenCount": tokens.output,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": prompt + tokens.output + tokens.reasoning,
    }


def parts(reply: Reply) -> list[dict[str, Any]]:
    """The content of the whole answer."""
    thinking = [{"text": reply.thinking, "thought": True}] if reply.thinking else []
    calls = [
        {"functionCall": {"name": call.name, "args": call.arguments}, "thoughtSignature": "c3R1Yg=="} for call in reply.calls
    ]
    return [*thinking, {"text": reply.text}, *calls]


def piece(reply: Reply, content: list[dict[str, Any]], **fields: str) -> dict[str, Any]:
    """A part of the answer, without its final usage."""
    candidate = {"content": {"role": "model", "parts": content}, "index": 0} | fields
    prompt_usage = {"promptTokenCount": usage(reply.tokens)["promptTokenCount"]}
    return {"candidates": [candidate], "modelVersion": reply.model, "responseId": reply.id, "usageMetadata": prompt_usage}


def reason(reply: Reply) -> str:
    """The finish reason."""
    return {"refusal": "SAFETY", "output": "MAX_TOKENS"}.get(reply.ending, "STOP")


def whole(reply: Reply) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    return piece(reply, parts(reply), finishReason=reason(reply)) | {"usageMetadata": usage(reply.tokens)}


def frames(reply: Reply) -> list[Frame]:
    """The answer as a stream, without its end. A call is never split."""
    found = []
    for part in parts(reply):
        texts = [part | {"text": text} for text in pieces(part["text"])] if "text" in part else [part]
        found += [Frame(piece(reply, [text])) for text in texts]
    return found


def end(reply: Reply) -> list[Frame]:
    """The end of the stream: finish reason and usage."""
    return [Frame(piece(reply, [{"text": ""}], finishReason=reason(reply)) | {"usageMetadata": usage(reply.tokens)})]


def document(schema: Mapping[str, Any]) -> str:
    """A document of that schema, for requests that want one."""
    return json.dumps(filled(schema, {}))


def inside(reply: Reply, error: dict[str, Any]) -> list[Frame]:
    """How a stream ends by an error inside it."""
    return [Frame(unstreamed(error))]


def unstreamed(error: dict[str, Any]) -> dict[str, Any]:
    """The body of the same error without a stream; a blocked prompt is no error in it."""
    return {"promptFeedback" if "blockReason" in error else "error": error}


def failure(status: int, message: str) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"code": status, "message": message, "status": KINDS[status]}}
