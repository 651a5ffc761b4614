"""Replay a tape inside the sandbox, as an agent whose actions are fixed beforehand. Standard library only.

The tape is JSON: {"steps": [{"at_s": 2.5, "write": "solution.py", "text": "..."}, {"run": ["python", "check.py"]}]}.
A step with `at_s` waits until that many seconds after the start. Each event is one JSON line on standard output;
the last one is of type `end`. Events about one action share its `id`.
"""

import json
import subprocess
import time
from pathlib import Path

TAPE = Path("/run/arena/tape.json")
KEPT_CHARACTERS = 1 << 16
"""Of a command's output, its end, in the event `ran`. The events `output` have all of it."""


def say(kind: str, **data: object) -> None:
    """Print one event."""
    print(json.dumps({"type": kind, **data}), flush=True)


def write(action: str, path: str, text: str) -> None:
    """Write a file of the workspace."""
    Path(path).write_text(text, encoding="utf-8", newline="")
    say("write", id=action, path=path, bytes=len(text.encode()), text=text)


def run(action: str, command: list[str]) -> None:
    """Run a command and print its output. Its exit code changes nothing."""
    say("run", id=action, command=command)
    kept = ""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say("output", text=line.rstrip("\n"))
            kept = (kept + line)[-KEPT_CHARACTERS:]
    say("ran", id=action, command=command, exit_code=process.returncode, output=kept)


def main() -> None:
    """Play the tape from its first step to its last."""
    steps = json.loads(TAPE.read_text(encoding="utf-8"))["steps"]
    say("start", steps=len(steps))
    start_s = time.monotonic()
    for number, step in enumerate(steps, start=1):
        time.sleep(max(0.0, step.get("at_s", 0.0) - (time.monotonic() - start_s)))
        if "write" in step:
            write(str(number), step["write"], step["text"])
        else:
            run(str(number), step["run"])
    say("end", steps=len(steps))


if __name__ == "__main__":
    main()
