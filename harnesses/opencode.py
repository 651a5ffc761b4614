"""Reader of the events of `opencode run --format=json` (one a line): each becomes trajectory steps.

OpenCode has no last event. A step that finishes with `stop` ends the run, unless another step follows.
"""


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "step_start", "sessionID": str(name)}:
            return [{"kind": "session", "id": name}]
        case {"type": "text", "part": {"text": str(text)}}:
            return [{"kind": "text", "text": text}]
        case {"type": "reasoning", "part": {"text": str(text)}}:
            return [{"kind": "thinking", "text": text}]
        case {"type": "tool_use", "part": {"state": dict(state)} as part}:
            return _tool(part, state)
        case {"type": "step_finish", "part": dict(part)}:
            end = [{"kind": "end", "ok": True, "text": ""}] if part.get("reason") == "stop" else []
            return [*_usage(part.get("tokens")), *end]
        case {"type": "error"}:
            return [_error(event.get("error"))]
    return []


def _tool(part: dict, state: dict) -> list[dict]:
    """A call and its result: OpenCode reports a call when it has ended."""
    number, well = part.get("callID"), state.get("status") == "completed"
    output = state.get("output") if well else state.get("error")
    meta = state.get("metadata")
    code = meta.get("exit") if isinstance(meta, dict) else None
    return [
        {"kind": "call", "id": number, "tool": part.get("tool"), "input": state.get("input")},
        {"kind": "result", "id": number, "output": str(output or ""), "ok": well and not code},
    ]


def _error(error: object) -> dict:
    data = error.get("data") if isinstance(error, dict) else None
    if not isinstance(data, dict):
        return {"kind": "error", "text": str(error), "status": None}
    return {"kind": "error", "text": str(data.get("message") or error), "status": data.get("statusCode")}


def _usage(tokens: object) -> list[dict]:
    """Usage; OpenCode's parts are already disjoint."""
    if not isinstance(tokens, dict):
        return []
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    return [
        {
            "kind": "usage",
            "input_tokens": _count(tokens.get("input")),
            "cache_read_tokens": _count(cache.get("read")),
            "cache_write_tokens": _count(cache.get("write")),
            "output_tokens": _count(tokens.get("output")),
            "reasoning_tokens": _count(tokens.get("reasoning")),
        }
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
