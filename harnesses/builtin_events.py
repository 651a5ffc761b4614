"""Reader of the events of `builtin.py` (one a line): each becomes trajectory steps."""


def read(event: dict) -> list[dict]:
    """The steps in one event."""
    match event:
        case {"type": "write", "id": str(action), "path": str(path), "text": str(text), "bytes": int(size)}:
            return [
                {"kind": "call", "id": action, "tool": "write", "input": {"path": path, "text": text}},
                {"kind": "result", "id": action, "output": f"{size} bytes written", "ok": True},
            ]
        case {"type": "run", "id": str(action), "command": list(command)}:
            return [{"kind": "call", "id": action, "tool": "run", "input": {"command": " ".join(map(str, command))}}]
        case {"type": "ran", "id": str(action), "exit_code": int(code), "output": str(output)}:
            return [{"kind": "result", "id": action, "output": output, "ok": code == 0}]
        case {"type": "end"}:
            return [{"kind": "end", "ok": True, "text": ""}]
    return []
