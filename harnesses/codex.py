"""Reader of the events of `codex exec --json` (one a line): each becomes trajectory steps."""

import re


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "thread.started", "thread_id": str(name)}:
            return [{"kind": "session", "id": name}]
        case {"type": "item.started", "item": {"type": "command_execution" | "file_change" | "mcp_tool_call"} as item}:
            return [_call(item)]
        case {"type": "item.completed", "item": dict(item)}:
            return _completed(item)
        case {"type": "error", "message": str(text)}:
            return [_error(text)]
        case {"type": "turn.failed"}:
            text = _message(event.get("error"))
            return [_error(text), {"kind": "end", "ok": False, "text": text}]
        case {"type": "turn.completed"}:
            return [*_usage(event.get("usage")), {"kind": "end", "ok": True, "text": ""}]
    return []


def _completed(item: dict) -> list[dict]:
    text = str(item.get("text") or "")
    match item.get("type"):
        case "agent_message":
            return [{"kind": "text", "text": text}]
        case "reasoning":
            return [{"kind": "thinking", "text": text}]
        case "error":  # a warning, for example that codex does not know the model
            return [_error(str(item.get("message") or ""))]
        case "command_execution":
            return [_result(item, item.get("aggregated_output"), item.get("exit_code") == 0)]
        case "file_change" | "mcp_tool_call":
            return [_result(item, item.get("result") or item.get("status"), item.get("status") == "completed")]
    return []


def _call(item: dict) -> dict:
    what = {name: item[name] for name in ("command", "changes", "server", "tool", "arguments") if name in item}
    return {"kind": "call", "id": item.get("id"), "tool": item["type"], "input": what}


def _result(item: dict, output: object, ok: bool) -> dict:
    return {"kind": "result", "id": item.get("id"), "output": output if isinstance(output, str) else str(output or ""), "ok": ok}


def _message(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")


def _error(text: str) -> dict:
    found = re.search(r"\bstatus(?: code)?:? (\d{3})\b", text)
    return {"kind": "error", "text": text, "status": int(found[1]) if found else None}


def _usage(usage: object) -> list[dict]:
    """Usage; input includes cache reads, output includes reasoning."""
    if not isinstance(usage, dict):
        return []
    given, output = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    cached, written = _count(usage.get("cached_input_tokens")), _count(usage.get("cache_write_input_tokens"))
    reasoning = _count(usage.get("reasoning_output_tokens"))
    return [
        {
            "kind": "usage",
            "input_tokens": given - cached - written,
            "cache_read_tokens": cached,
            "cache_write_tokens": written,
            "output_tokens": output - reasoning,
            "reasoning_tokens": reasoning,
        }
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
