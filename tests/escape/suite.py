"""Which probes there are, and what came of them: for the tests and for the table in the docs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from escape import freezing, holding, taking, weaker  # noqa: F401  each registers its probes
from escape.hosted import HOSTED
from escape.inside import attempt, runner

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("agent", "worker")
USERS = ("root", "plain")
LIMIT_S = 180.0
assert runner.LIMIT_S < LIMIT_S


class Argued(NamedTuple):
    """An open probe that is left open."""

    users: tuple[str, ...]
    """For whom it is open."""
    why: str


ARGUED = {
    "files.names_of_host_folders": Argued(
        USERS, "names only, of the folders where Python, its packages and a bridge's socket lie; nothing of what is in them"
    ),
    "files.path_of_the_run": Argued(
        ("plain",), "the workspace is then a folder of the disk, and its path holds the run's id: harness, model, problem, time"
    ),
    "files.proc_of_the_gpu": Argued(USERS, "names of the GPUs only; the driver's library needs the folder"),
    "resources.memory_out_of_sight": Argued(
        ("plain",), "without control groups a watcher looks at memory, and not into a process that is not dumpable: no bound"
    ),
    "holding.locks": Argued(USERS, "locks of files that both see are shared; neither arena nor Python locks any of them"),
    "holding.watching": Argued(
        USERS, "a side channel from the host, as timing and the page cache are; a box has nobody to tell it to"
    ),
    "holding.watchers": Argued(
        ("plain",), "the kernel counts inotify instances per user, and the box is that user; as root every box is another one"
    ),
}
"""Open, and why they may be."""


@dataclass(frozen=True)
class Entry:
    """One probe as the table and the tests know it."""

    name: str
    text: str
    source: str
    opens: str | None
    lacking: bool
    profiles: tuple[str, ...]


def entries() -> list[Entry]:
    """All of them: those inside by file, then the host's."""
    inside = [Entry(p.name, p.text, p.source, p.opens, p.lacking, PROFILES) for p in attempt.PROBES]
    outside = [Entry(p.name, p.text, p.source, None, False, (p.profile,)) for p in HOSTED]
    return sorted(inside, key=lambda entry: entry.name.split(".")[0]) + outside


def unable(user: str) -> str:
    """Why the suite cannot run as that user here; empty when it can."""
    if user == "root":
        return "" if os.geteuid() == 0 else "only root can give a box a user of its own"
    if os.geteuid() != 0:
        return ""
    probe = "import sys, arena.sandboxes.bwrap, escape.host; assert sys.version_info >= (3, 11)"
    try:
        done = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(weaker.SYSTEM_PYTHON), "-c", probe],
            cwd="/", env=environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    last = done.stderr.strip().splitlines()[-1:] or ["?"]
    return (
        "" if done.returncode == 0 else f"a plain user cannot run {weaker.SYSTEM_PYTHON} with arena and its packages ({last[0]})"
    )


def environment() -> dict[str, str]:
    """For the system's Python: this checkout, the suite, and the packages of the Python that runs this."""
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(user: str, with_controls: bool) -> dict[str, Any]:
    """What `escape.host` found as that user, or {"unable": why}."""
    if reason := unable(user):
        return {"unable": reason}
    python = str(weaker.SYSTEM_PYTHON) if user == "plain" and os.geteuid() == 0 else sys.executable
    words = [python, "-m", "escape.host", user, *(["controls"] if with_controls else [])]
    done = subprocess.run(
        words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def everything() -> dict[str, Any]:
    """Both users, the controls once, as the first user that can be had."""
    results = {}
    controlled = False
    for user in USERS:
        results[user] = run(user, with_controls=not controlled)
        controlled = controlled or "controls" in results[user]
    return results
