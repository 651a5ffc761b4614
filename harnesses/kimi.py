"""Reader of the events of `kimi -p --output-format=stream-json` (one a line): each becomes trajectory steps.

Kimi reports no usage. It prints its resume hint last, and only after a run that it counts as successful. It also counts an
answer without a finish reason as successful; the gateway detects that.
"""

import contextlib
import json


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"role": "assistant"}:
            return _said(event)
        case {"role": "tool", "tool_call_id": number}:
            return [{"kind": "result", "id": number, "output": _text(event.get("content")), "ok": True}]
        case {"role": "meta", "type": "turn.step.retrying"}:
            text = str(event.get("error_message") or event.get("content") or "asks again")
            return [{"kind": "error", "text": text, "status": event.get("status_code")}]
        case {"role": "meta", "type": "session.resume_hint"}:
            return [{"kind": "session", "id": event.get("session_id")}, {"kind": "end", "ok": True, "text": ""}]
    return []


def _said(event: dict) -> list[dict]:
    thinking, text, calls = event.get("reasoning_content"), _text(event.get("content")), event.get("tool_calls")
    steps = [{"kind": "thinking", "text": thinking}] if isinstance(thinking, str) and thinking else []
    steps += [{"kind": "text", "text": text}] if text else []
    return steps + [_call(call) for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict)]


def _call(call: dict) -> dict:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    with contextlib.suppress(TypeError, ValueError, RecursionError):  # arguments that are not JSON stay text
        arguments = json.loads(arguments or "")
    return {"kind": "call", "id": call.get("id"), "tool": function.get("name"), "input": arguments}


def _text(content: object) -> str:
    """Text, or parts of which some are text."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
