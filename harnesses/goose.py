"""Reader of the events of `goose run --output-format=stream-json` (one a line): each becomes trajectory steps.

Texts and thinking come in pieces. The input tokens include what the cache was read for and written with. It also calls a session
complete whose request failed, and tells the failure as a text of its own; the gateway detects that.
"""


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "message", "message": {"content": list(parts)}}:
            return [step for part in parts if isinstance(part, dict) for step in _part(part)]
        case {"type": "error"}:
            return [{"kind": "error", "text": str(event.get("error") or ""), "status": None}]
        case {"type": "complete"}:
            return [*_usage(event), {"kind": "end", "ok": True, "text": ""}]
    return []


def _part(part: dict) -> list[dict]:
    match part:
        case {"type": "text", "text": str(text)} if text.startswith("Ran into this error: "):
            return [{"kind": "error", "text": text, "status": None}]
        case {"type": "text", "text": str(text)}:
            return [{"kind": "text", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            return [{"kind": "thinking", "text": text}]
        case {"type": "toolRequest", "id": number, "toolCall": {"value": {"name": name} as call}}:
            return [{"kind": "call", "id": number, "tool": name, "input": call.get("arguments")}]
        case {"type": "toolResponse", "id": number, "toolResult": dict(result)}:
            return [_result(number, result)]
    return []


def _result(number: object, result: dict) -> dict:
    value = result.get("value")
    value = value if isinstance(value, dict) else {}
    parts, shell = value.get("content"), value.get("structuredContent")
    texts = [str(part.get("text", "")) for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
    code = shell.get("exit_code") if isinstance(shell, dict) else None
    ok = result.get("status") == "success" and not value.get("isError") and not code
    return {"kind": "result", "id": number, "output": "\n".join(texts) or str(result.get("error") or ""), "ok": ok}


def _usage(event: dict) -> list[dict]:
    given, output, read, written = (
        found if isinstance(found := event.get(f"{name}_tokens"), int) else 0
        for name in ("input", "output", "cache_read_input", "cache_write_input")
    )
    return [
        {
            "kind": "usage",
            "input_tokens": max(0, given - read - written),
            "cache_read_tokens": read,
            "cache_write_tokens": written,
            "output_tokens": output,
            "reasoning_tokens": 0,
        }
    ]
