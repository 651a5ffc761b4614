"""Run a program beside a task's code in a worker's sandbox, and read its report as untrusted data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Thread, Timer
from typing import Any

from arena.errors import SandboxError
from arena.importing.task import Unfit
from arena.sandboxes import Sandbox, SandboxSpec
from arena.sandboxes.limits import limits_for

PROGRAMS = Path(__file__).with_name("programs")
FOLDER = "/opt/task"
REPORT_BYTES = 1 << 20


def report(
    sandbox: Sandbox, program: str, files: Mapping[str, bytes], order: Mapping[str, Any], limit_s: float
) -> dict[str, Any]:
    """What the program writes about these files. Unfit when it says so, ends badly, or takes longer than `limit_s`."""
    shown = {f"{FOLDER}/{name}": data for name, data in files.items()}
    shown[f"{FOLDER}/{program}.py"] = (PROGRAMS / f"{program}.py").read_bytes()
    command = ("python", "-I", f"{FOLDER}/{program}.py")
    # One thread: sums come out in one order, so that a task's gate is the same at every import on a machine.
    env = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    spec = SandboxSpec("worker", command, files=shown, env=env, stdin=json.dumps(order).encode(), limits=limits_for("worker"))
    expired, complaint = list[bool](), list[bytes]()
    with sandbox.run(spec) as running:

        def expire() -> None:
            expired.append(True)
            running.begin_kill()

        timer = Timer(limit_s, expire)
        drain = Thread(target=_drain, args=(running.stderr, complaint), daemon=True)
        timer.start()
        drain.start()
        try:
            output = running.stdout.read(REPORT_BYTES + 1)
            if len(output) > REPORT_BYTES:
                running.begin_kill()
            code = running.wait()
        finally:
            timer.cancel()
    if expired:
        raise Unfit(f"does not trace: took more than {limit_s:g} s")
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        if code == 127:
            raise SandboxError("the sandbox has no Python with torch") from None
        raise Unfit(f"does not trace: its process ended with {code} and no report {_last(complaint)}".rstrip()) from None
    if not isinstance(found, dict):
        raise Unfit("its process wrote another report than the program's")
    if "unfit" in found:
        raise Unfit(" ".join(str(found["unfit"])[:400].split()))
    return found


def _drain(stream: Any, kept: list[bytes]) -> None:  # noqa: ANN401
    while chunk := stream.read1(1 << 16):
        if len(kept) < 4:
            kept.append(chunk[-400:])


def _last(kept: list[bytes]) -> str:
    lines = b"".join(kept).decode(errors="replace").strip().splitlines()
    return f"({lines[-1][:160]})" if lines else ""
