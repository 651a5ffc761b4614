"""Reader of the events of `copilot --output-format=json` (one a line): each becomes trajectory steps.

It reports no tokens. Its last event has the exit code, and the session's id.
"""


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    data = event.get("data")
    data = data if isinstance(data, dict) else {}
    match event.get("type"):
        case "assistant.reasoning":
            return _text("thinking", data.get("content"))
        case "assistant.message":
            return _text("text", data.get("content"))
        case "tool.execution_start":
            return [{"kind": "call", "id": data.get("toolCallId"), "tool": data.get("toolName"), "input": data.get("arguments")}]
        case "tool.execution_complete":
            return [_result(data)]
        case "session.error" | "model.call_failure":
            text = data.get("message") or data.get("errorMessage") or data.get("failureKind") or "a request failed"
            return [{"kind": "error", "text": str(text), "status": data.get("statusCode")}]
        case "result":
            name = [{"kind": "session", "id": event["sessionId"]}] if isinstance(event.get("sessionId"), str) else []
            return [*name, {"kind": "end", "ok": event.get("exitCode") == 0, "text": ""}]
    return []


def _text(kind: str, text: object) -> list[dict]:
    return [{"kind": kind, "text": text}] if isinstance(text, str) and text else []


def _result(data: dict) -> dict:
    """A tool's result. A command that failed is a success of its tool."""
    shell, result, error = data.get("shellExecution"), data.get("result"), data.get("error")
    code = shell.get("exitCode") if isinstance(shell, dict) else None
    told = result.get("content") if isinstance(result, dict) else error.get("message") if isinstance(error, dict) else error
    return {
        "kind": "result",
        "id": data.get("toolCallId"),
        "output": str(told or ""),
        "ok": bool(data.get("success")) and not code,
    }
