"""Reader of the events of `gemini --output-format=stream-json` (one a line): each becomes trajectory steps."""

import re


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "init", "session_id": str(name)}:
            return [{"kind": "session", "id": name}]
        case {"type": "message", "role": "assistant", "content": str(text)}:
            return [{"kind": "text", "text": text}]
        case {"type": "tool_use", "tool_id": number, "tool_name": name}:
            return [{"kind": "call", "id": number, "tool": name, "input": event.get("parameters")}]
        case {"type": "tool_result", "tool_id": number}:
            output = event.get("output") or _message(event.get("error"))
            return [{"kind": "result", "id": number, "output": str(output), "ok": event.get("status") == "success"}]
        case {"type": "error"}:
            return [_error(str(event.get("message") or ""))]
        case {"type": "result"}:
            return _result(event)
    return []


def _result(event: dict) -> list[dict]:
    """The last event."""
    steps = _usage(event.get("stats"))
    if event.get("status") == "success":
        return [*steps, {"kind": "end", "ok": True, "text": ""}]
    text = _message(event.get("error"))
    return [*steps, _error(text), {"kind": "end", "ok": False, "text": text}]


def _message(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")


def _error(text: str) -> dict:
    found = re.search(r'"code": ?(\d{3})\b', text)
    return {"kind": "error", "text": text, "status": int(found[1]) if found else None}


def _usage(stats: object) -> list[dict]:
    """Usage; input includes cache reads, and only the total includes the thoughts."""
    if not isinstance(stats, dict) or not stats.get("total_tokens"):
        return []
    given, cached, output = (_count(stats.get(name)) for name in ("input_tokens", "cached", "output_tokens"))
    return [
        {
            "kind": "usage",
            "input_tokens": given - cached,
            "cache_read_tokens": cached,
            "cache_write_tokens": 0,
            "output_tokens": output,
            "reasoning_tokens": max(0, _count(stats.get("total_tokens")) - given - output),
        }
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
