"""A small agent without tools: ask the model for a whole file, run the workspace's own check and benchmark on it, report, repeat.

It runs inside the agent's sandbox, speaks to the gateway like any agent CLI, and is believed as little. Standard library only.
`solution.py` always holds the fastest file that passed its check so far, and the newest one as long as none has passed.
Each event is one JSON line on standard output; the last one is of type `end`.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import string
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from loop_apis import APIS, Answer

HOME = Path.home() / ".loop"
CANDIDATE, SOLUTION = Path("candidate.py"), Path("solution.py")
FENCE = re.compile(r"^```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL_US = re.compile(r".{1,300}: ([0-9.]+) us per call .{1,80}?(?:, ([0-9.]+) us alone)?, [0-9.]+ GB/s.{1,80}")
"""A scored shape in what benchmark.py prints: its time among other calls, and that of a call alone."""
MARGIN, MOST_MARGIN_US = 0.015, 10.0
"""How much shorter a call alone counts when the two are compared, relative and absolute: as in benchmark.py."""
REPORT_CHARACTERS = 6000
"""Of a program's output that the model sees: its beginning and its end."""
KEPT_CHARACTERS = 1 << 19
"""Of a text in an event; arena reads no longer line than 4 MiB, and JSON may write a character in six bytes."""
COMMAND_S, REQUEST_S = 900.0, 900.0
WAITS_S = (1, 2, 4, 8, 16, 30, 30, 30, 30, 30)
"""Before each further try of a request. The gateway ends the run when the provider has failed for too long."""


class Failed(Exception):  # noqa: N818  an outcome
    """The model gave no answer."""


def say(kind: str, **data: object) -> None:
    """Print one event."""
    print(json.dumps({"type": kind, **data}), flush=True)


def fill(name: str, **values: object) -> str:
    """One of the messages in the home folder, filled in."""
    return string.Template((HOME / name).read_text(encoding="utf-8")).substitute(values)


def ask(settings: dict, messages: list[tuple[str, str]]) -> Answer:
    """The model's answer, or the part before an error that no further try changes.

    Tries again while the provider fails; Failed when it refuses, or fails too often.
    """
    for wait_s in (*WAITS_S, None):
        try:
            answer, status = request(settings, messages), None
            if answer.final:
                say("error", text=answer.fault, status=None)
            if answer.final or (answer.reason and not answer.fault):
                return answer
            text = answer.fault or "the answer ended early"
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read(4096).decode(errors="replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            status, text = None, f"{type(error).__name__}: {error}"
        say("error", text=text, status=status)
        if wait_s is None or (status is not None and status < 500 and status not in (408, 409, 429)):
            raise Failed(text)
        time.sleep(wait_s)
    raise AssertionError


def request(settings: dict, messages: list[tuple[str, str]]) -> Answer:
    """Ask once."""
    api, answer = APIS[settings["api"]], Answer()
    headers = {
        "Authorization": f"Bearer {os.environ['ARENA_KEY']}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
    }
    if settings["api"] == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    body = json.dumps(api.body(settings, messages)).encode()
    # A proxy in the environment is for other hosts than the gateway.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(settings["gateway"] + api.path(settings), body, headers), timeout=REQUEST_S) as lines:
        for line in lines:
            data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data and data != b"[DONE]":
                event = json.loads(data)
                if isinstance(event, dict):
                    api.read(event, answer)
    return answer


def file_in(text: str) -> str | None:
    """The file in an answer: its longest block of Python, those that define `solution` first."""
    blocks = FENCE.findall(text)
    return max(blocks, key=lambda block: ("def solution" in block, len(block)), default=None)


def run(number: str, command: list[str]) -> tuple[int | None, str]:
    """Run a command: its exit code, None when it took too long, and what it printed."""
    say("run", id=number, command=" ".join(command))
    with tempfile.TemporaryFile() as printed:  # not a pipe: what the file started may hold one open, or flood it
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        ) as process:
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(COMMAND_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output = ends(printed)
    if code is None:
        output += f"\nnot done after {COMMAND_S:.0f} s\n"
    say("ran", id=number, output=output, ok=code == 0)
    return code, output


def ends(file: IO[bytes]) -> str:
    """The beginning and the end of a file, however large."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= KEPT_CHARACTERS:
        return file.read().decode(errors="replace")
    head = file.read(KEPT_CHARACTERS // 2)
    file.seek(-(KEPT_CHARACTERS // 2), os.SEEK_END)
    return f"{head.decode(errors='replace')}\n[... ]\n{file.read(KEPT_CHARACTERS // 2).decode(errors='replace')}"


def shortened(text: str, most: int = REPORT_CHARACTERS) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}\n[... {len(text) - most} characters ...]\n{text[-(most - most // 3) :]}"


def seconds(output: str) -> float:
    """The product of the times that benchmark.py printed for the scored shapes, which orders files as their mean does.

    1 s without any, so that such a file is the slowest.
    """
    product = 1.0
    for found in filter(None, map(CALL_US.fullmatch, output.splitlines())):
        call_us, alone_us = float(found[1]), float(found[2] or 0)
        product *= max(call_us, alone_us - min(MARGIN * alone_us, MOST_MARGIN_US)) / 1e6
    return product


def trial(turn: int, *, profile: bool) -> tuple[float | None, str]:
    """Check and time the candidate: its time, None when it failed, and the report for the model."""
    code, output = run(f"check-{turn}", ["python", "check.py", str(CANDIDATE)])
    report = [f"`python check.py` printed:\n\n{shortened(output)}"]
    if code != 0:
        return None, report[0]
    code, output = run(f"benchmark-{turn}", ["python", "benchmark.py", "--solution", str(CANDIDATE)])
    report.append(f"`python benchmark.py` printed:\n\n{shortened(output)}")
    taken = seconds(output) if code == 0 else None
    if profile:
        _, output = run(f"profile-{turn}", ["python", "/opt/harness/loop_profile.py", str(CANDIDATE)])
        report.append(f"A profile of one call of each size:\n\n{shortened(output)}")
    return taken, "\n".join(report)


def write(path: Path, source: str) -> None:
    """Write a file of the workspace in one step, so that no half of it is ever taken as the submission."""
    new = path.with_suffix(".new")
    new.write_text(source, encoding="utf-8", errors="replace", newline="")
    new.replace(path)


def play(settings: dict) -> None:
    """Ask, try and report, as often as allowed. Failed."""
    texts = {
        name: Path(file).read_text(encoding="utf-8") for name, file in (("prompt", "PROMPT.md"), ("reference", "reference.py"))
    }
    messages, best = [("user", fill("first.md", **texts))], None
    for turn in range(1, settings["turns"] + 1):
        answer = ask(settings, messages)
        say(
            "answer",
            turn=turn,
            text=answer.text[:KEPT_CHARACTERS],
            thinking=answer.thinking[:KEPT_CHARACTERS],
            usage=answer.usage,
        )
        source = file_in(answer.text)
        if source is None:
            report = fill("none.md")
            if answer.reason == APIS[settings["api"]].cut:
                report += " It was cut at the limit of its length."
        else:
            write(CANDIDATE, source)
            if best is None:
                write(SOLUTION, source)
            if settings["turns"] == 1:  # nothing to choose from, and no answer that could use a report
                return
            taken, report = trial(turn, profile=settings["profile"])
            if taken is not None and (best is None or taken < best):
                best = taken
                write(SOLUTION, source)
        messages += [("assistant", answer.text or "(no text)"), ("user", fill("again.md", report=report, turn=turn))]


def main() -> int:
    """Play, and report the end."""
    settings = json.loads((HOME / "settings.json").read_text(encoding="utf-8"))
    try:
        play(settings)
    except Failed as failed:
        say("end", ok=False, text=str(failed))
        return 1
    say("end", ok=True, text="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
