"""The host side: plant the lures, run every probe in full and in weakened sandboxes, print one JSON document.

`python -m escape.host root|plain|self CONTROLS`: as root with a throw-away user per sandbox, as root that switched to a plain
user, or as the current user. Nothing it creates outlives it.
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
from escape import freezing, holding, host_namespaces, hosted, taking  # noqa: F401  the probes register themselves
from escape.inside import runner
from escape.lures import LIMITS, Host
from escape.positive_controls import run_controls
from escape.sandboxed import peek, plan_of, run_profile

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
    """A sandbox of another run, at the same time."""
    word = host.stem + "a neighbour"
    (host.folder / "neighbour/solution.py").write_text(word)
    spec = SandboxSpec(
        "agent", ("python", "-c", NEIGHBOUR), workspace=host.folder / "neighbour", stdin=word.encode(), limits=LIMITS
    )
    with bwrap.run(spec) as running:
        assert running.stdout.readline() == b"ready\n", running.stderr.read()
        (host.folder / "neighbour/neighbour.txt").write_text(word)
        yield


def run_earlier(host: Host) -> None:
    """Run a sandbox that leaves things behind and ends."""
    plan = plan_of(host, "agent", "full", [], plant=True)
    with bwrap.run(host.spec("agent", plan, host.folder / "earlier")) as running:
        running.stdout.read()
        running.wait(20)


def main() -> None:
    """Run the suite as the user that the first argument names."""
    user, with_controls = sys.argv[1], "controls" in sys.argv[2:]
    isolated = os.geteuid() == 0
    reserved = []
    if isolated:
        host_namespaces.enter()
        reserved = host_namespaces.reserve_users()
    start = time.monotonic()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="arena-escape-", ignore_cleanup_errors=True))
        folder = Path(name)
        folder.chmod(0o755)
        if user == "plain" and isolated:
            os.chown(folder, host_namespaces.PLAIN_UID, host_namespaces.PLAIN_UID)
            host_namespaces.switch_user(host_namespaces.PLAIN_UID)
            os.environ["HOME"] = str(folder)
        host = Host(folder, user, isolated, stack)
        run_earlier(host)
        bridge = stack.enter_context(hosted.bridge_server())
        with neighbour(host):
            found = {profile: run_profile(host, profile, bridge) for profile in ("agent", "worker")}
            controls = run_controls(host) if with_controls else {}
        for profile, results in hosted.run_all(host).items():
            found[profile] |= results
        surviving = [path for path in Path("/proc").glob("[0-9]*/cmdline") if host.plan["mark"].encode() in peek(path)]
    assert runner.LIMIT_S and len(surviving) <= 1 and (not isolated or len(reserved) == host_namespaces.RESERVED)
    print(json.dumps({"found": found, "controls": controls, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
