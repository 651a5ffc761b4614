"""The host's side: plants the lures, runs every probe in real boxes and in weakened ones, prints one JSON document.

`python -m escape.host root|plain|self CONTROLS`: as root with a throw-away user per box, as root who has become a plain user,
or as whoever runs it. Nothing that it does outlives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from arena.sandboxes import SandboxSpec, bwrap
from escape import freezing, holding, hosted, stage, taking  # noqa: F401  the probes register themselves
from escape.boxes import peek, plan_of, profile_run
from escape.controls import controls
from escape.inside import runner
from escape.lures import LIMITS, Host

NEIGHBOUR = """
import pathlib, socket, sys, time
word = sys.stdin.read()
for place in ("/tmp", "/home/agent", "/dev/shm", "/workspace"):
    pathlib.Path(place, "neighbour.txt").write_text(word)
server = socket.socket(socket.AF_UNIX); server.bind("\\0arena-neighbour"); server.listen()
print("ready", flush=True); time.sleep(600)
"""


@contextlib.contextmanager
def neighbour(host: Host) -> Iterator[None]:
    """A box of another run, at the same time."""
    word = host.stem + "a neighbour"
    (host.folder / "neighbour/solution.py").write_text(word)
    box = SandboxSpec(
        "agent", ("python", "-c", NEIGHBOUR), workspace=host.folder / "neighbour", stdin=word.encode(), limits=LIMITS
    )
    with bwrap.run(box) as running:
        assert running.stdout.readline() == b"ready\n", running.stderr.read()
        (host.folder / "neighbour/neighbour.txt").write_text(word)
        yield


def planted_earlier(host: Host) -> None:
    """A box that leaves things behind, and ends."""
    plan = plan_of(host, "agent", "full", [], plant=True)
    with bwrap.run(host.box("agent", plan, host.folder / "earlier")) as running:
        running.stdout.read()
        running.wait(20)


def main() -> None:
    """All of it, as the user that the first argument names."""
    user, with_controls = sys.argv[1], "controls" in sys.argv[2:]
    staged = os.geteuid() == 0
    taken = []
    if staged:
        stage.stand_alone()
        taken = stage.reserve_users()
    began = time.monotonic()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="arena-escape-", ignore_cleanup_errors=True))
        folder = Path(name)
        folder.chmod(0o755)
        if user == "plain" and staged:
            os.chown(folder, stage.PLAIN_UID, stage.PLAIN_UID)
            stage.become(stage.PLAIN_UID)
            os.environ["HOME"] = str(folder)
        host = Host(folder, user, staged, stack)
        planted_earlier(host)
        bridge = stack.enter_context(hosted.bridge_server())
        with neighbour(host):
            found = {profile: profile_run(host, profile, bridge) for profile in ("agent", "worker")}
            shown = controls(host) if with_controls else {}
        for profile, results in hosted.run_all(host).items():
            found[profile] |= results
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if host.plan["mark"].encode() in peek(path)]
    assert runner.LIMIT_S and len(left) <= 1 and (not staged or len(taken) == stage.RESERVED)
    print(json.dumps({"found": found, "controls": shown, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
