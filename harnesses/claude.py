"""Reader of Claude Code's events (`--output-format=stream-json`, one a line): each becomes trajectory steps."""


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "system", "subtype": "init", "session_id": str(name)}:
            return [{"kind": "session", "id": name}]
        case {"type": "system", "subtype": "api_retry"}:
            status = event.get("error_status")
            return [{"kind": "error", "text": f"asks again: {event.get('error', '')}", "status": status}]
        case {"type": "assistant" | "user", "message": {"content": list(blocks)}}:
            return [step for block in blocks if isinstance(block, dict) for step in _block(block)]
        case {"type": "result"}:
            return _result(event)
    return []


def _block(block: dict) -> list[dict]:
    match block:
        case {"type": "text", "text": str(text)}:
            return [{"kind": "text", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            return [{"kind": "thinking", "text": text}]
        case {"type": "tool_use", "id": number, "name": name}:
            return [{"kind": "call", "id": number, "tool": name, "input": block.get("input")}]
        case {"type": "tool_result", "tool_use_id": number}:
            return [{"kind": "result", "id": number, "output": _text(block.get("content")), "ok": not block.get("is_error")}]
    return []


def _text(content: object) -> str:
    """A tool's output: text, or blocks of which some are text."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", part.get("type", ""))) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _result(event: dict) -> list[dict]:
    """The last event. Its `subtype` is `success` even when no request reached the model, and refused tools are no error in it."""
    error = event.get("error")  # of Qwen Code, whose events are the same otherwise
    told = error.get("message") if isinstance(error, dict) else None
    steps, text = _usage(event), str(event.get("result") or told or event.get("subtype") or "")
    well = event.get("is_error") is False
    if not well:
        steps.append({"kind": "error", "text": text, "status": event.get("api_error_status")})
    if denied := event.get("permission_denials"):
        steps.append({"kind": "error", "text": f"calls of tools were not permitted: {denied}", "status": None})
    return [*steps, {"kind": "end", "ok": well and not denied, "text": text}]


def _usage(event: dict) -> list[dict]:
    """Usage by model, because `usage` lacks what subagents used. Thinking is part of the output."""
    models = event.get("modelUsage")
    return [
        {
            "kind": "usage",
            "input_tokens": _count(used.get("inputTokens")),
            "cache_read_tokens": _count(used.get("cacheReadInputTokens")),
            "cache_write_tokens": _count(used.get("cacheCreationInputTokens")),
            "output_tokens": _count(used.get("outputTokens")),
            "reasoning_tokens": 0,
        }
        for used in (models.values() if isinstance(models, dict) else ())
        if isinstance(used, dict)
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
