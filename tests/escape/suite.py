"""The list of probes and their outcomes, for the tests and for docs/tables/probes.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from escape import freezing, holding, taking, weakened  # noqa: F401  each registers its probes
from escape.hosted import HOSTED
from escape.inside import common, runner

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("agent", "worker")
USERS = ("root", "plain")
LIMIT_S = 180.0
assert runner.LIMIT_S < LIMIT_S


class Accepted(NamedTuple):
    """An open probe that is accepted."""

    users: tuple[str, ...]
    """The users for which it is open."""
    reason: str


ACCEPTED = {
    "files.names_of_host_folders": Accepted(
        USERS, "only the names of the folders of Python and its packages, never their contents"
    ),
    "files.path_of_the_run": Accepted(
        ("plain",), "the workspace is then a folder of the disk, and its path holds the run's id: harness, model, problem, time"
    ),
    "files.proc_of_the_gpu": Accepted(USERS, "names of the GPUs only; the driver's library needs the folder"),
    "resources.memory_out_of_sight": Accepted(
        ("plain",), "without control groups a watchdog counts memory and cannot see into an undumpable process: no bound"
    ),
    "holding.locks": Accepted(USERS, "locks of files that both see are shared; neither arena nor Python locks any of them"),
    "holding.watching": Accepted(
        USERS, "a side channel from the host, as timing and the page cache are; a sandbox can report it nowhere"
    ),
    "holding.watchers": Accepted(
        ("plain",), "the kernel counts inotify instances per user, and the sandbox runs as that user; root gives each its own"
    ),
}
"""Probes that are open, and why arena accepts that."""


@dataclass(frozen=True)
class Entry:
    """One probe as a row of the table."""

    name: str
    text: str
    source: str
    opens: str | None
    lacking: bool
    profiles: tuple[str, ...]


def entries() -> list[Entry]:
    """All probes: those inside the sandbox by file, then those that the host checks."""
    inside = [Entry(p.name, p.text, p.source, p.opens, p.lacking, PROFILES) for p in common.PROBES]
    outside = [Entry(p.name, p.text, p.source, None, False, (p.profile,)) for p in HOSTED]
    return sorted(inside, key=lambda entry: entry.name.split(".")[0]) + outside


def unavailable(user: str) -> str:
    """Why the suite cannot run as that user here; empty when it can."""
    if user == "root":
        return "" if os.geteuid() == 0 else "only root can give a sandbox a user of its own"
    if os.geteuid() != 0:
        return ""
    probe = "import sys, arena.sandboxes.bwrap, escape.host; assert sys.version_info >= (3, 11)"
    try:
        done = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(weakened.SYSTEM_PYTHON), "-c", probe],
            cwd="/", env=environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    last = done.stderr.strip().splitlines()[-1:] or ["?"]
    if done.returncode:
        return f"a plain user cannot run {weakened.SYSTEM_PYTHON} with arena and its packages ({last[0]})"
    return ""


def environment() -> dict[str, str]:
    """Environment for the system's Python: this checkout, the suite, and the packages of the current Python."""
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(user: str, with_controls: bool) -> dict[str, Any]:
    """What `escape.host` found as that user, or {"unavailable": reason}."""
    if reason := unavailable(user):
        return {"unavailable": reason}
    python = str(weakened.SYSTEM_PYTHON) if user == "plain" and os.geteuid() == 0 else sys.executable
    words = [python, "-m", "escape.host", user, *(["controls"] if with_controls else [])]
    done = subprocess.run(
        words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_suite() -> dict[str, Any]:
    """Run the suite as both users; run the positive controls once, as the first user that is available."""
    results = {}
    with_controls = True
    for user in USERS:
        results[user] = run(user, with_controls=with_controls)
        with_controls = with_controls and "controls" not in results[user]
    return results
