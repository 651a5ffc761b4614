"""Reader of the events of `loop.py` (one a line): each becomes trajectory steps."""

USAGE = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "answer", "text": str(text), "thinking": str(thinking), "usage": dict(usage)}:
            return _answer(text, thinking, usage)
        case {"type": "run", "id": str(number), "command": str(command)}:
            return [{"kind": "call", "id": number, "tool": "run", "input": {"command": command}}]
        case {"type": "ran", "id": str(number), "output": str(output), "ok": bool(ok)}:
            return [{"kind": "result", "id": number, "output": output, "ok": ok}]
        case {"type": "error", "text": str(text)}:
            return [{"kind": "error", "text": text, "status": event.get("status")}]
        case {"type": "end", "ok": bool(ok), "text": str(text)}:
            return [{"kind": "end", "ok": ok, "text": text}]
    return []


def _answer(text: str, thinking: str, usage: dict) -> list[dict]:
    steps: list[dict] = [{"kind": kind, "text": words} for kind, words in (("thinking", thinking), ("text", text)) if words]
    counts = {name: usage.get(name) for name in USAGE}
    if all(isinstance(count, int) for count in counts.values()):
        steps.append({"kind": "usage", **counts})
    return steps
