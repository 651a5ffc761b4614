"""Lures that the suite plants on the host, and the plan that names their places to the probes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from arena import paths
from arena.sandboxes import MIB, Limits, SandboxSpec
from escape import host_namespaces, weakened
from escape.inside import common

HERE = Path(__file__).parent
PROBES_INSIDE = "/run/arena/probes.pyz"
BRIDGE_PORT = 8765
LIMIT_S = 90.0
DYING_S = 1.0
MEMORY_BYTES = 256 * MIB
SESSION_KEYRING = -3
LIMITS = Limits(
    tmp_bytes=8 * MIB, home_bytes=8 * MIB, shm_bytes=8 * MIB, file_bytes=64 * MIB, open_files=512, processes=256,
    memory_bytes=MEMORY_BYTES, workspace_bytes=64 * MIB, workspace_files=20_000,
)  # fmt: skip
Outcomes = dict[str, tuple[str, str]]
"""Probe -> (state, detail)."""


def archive() -> bytes:
    """The probes as one zip file that Python runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("__main__.py", "from inside.runner import main\nmain()\n")
        for path in sorted((HERE / "inside").glob("*.py")):
            file.write(path, f"inside/{path.name}")
    return packed.getvalue()


class Host:
    """The lures of one run of the suite, and the sandboxes whose probes search for them."""

    def __init__(self, folder: Path, user: str, isolated: bool, stack: ExitStack) -> None:
        self.folder, self.user, self.isolated = folder, user, isolated
        self.stem = f"arena-lure-{secrets.token_hex(8)}-"
        self.probes = archive()
        self.plan = self._planted()
        self._victim(stack)
        self.held = os.open(self.plan["secret"], os.O_RDONLY)
        os.set_inheritable(self.held, True)
        stack.callback(os.close, self.held)

    def _planted(self) -> dict[str, Any]:
        """Plant files, a key in the keyring and one in the environment."""
        files = {
            "secret/arena-lure-ceilings.json": "a file", "scratch/given/check.py": "# given", "copy/hidden.py": "hidden inputs",
            "runs/20260101_agent_some-model_problem_0000/work/solution.py": "another run",
        }  # fmt: skip
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.stem + text)
        for name in ("control", "own", "earlier", "neighbour"):
            (self.folder / name).mkdir(exist_ok=True)
        if os.geteuid() == 0:
            for path in (self.folder / name for name in ("scratch", "scratch/given", "scratch/given/check.py", "control")):
                os.chown(path, host_namespaces.CONTROL_UID, host_namespaces.CONTROL_UID)
        os.environ["ARENA_LURE_KEY"] = self.stem + "a key in the environment"
        key_name = f"arena-lure-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            common.call("keyctl", 1, 0, 0, 0, 0)
            word = (self.stem + "a key in the keyring").encode()
            common.call("add_key", b"user", key_name.encode(), word, len(word), SESSION_KEYRING)
        catalogue = [
            *map(str, paths.secrets()),
            *map(str, paths.problems().glob("*/hidden.py")),
            str(self.folder / "copy/hidden.py"),
        ]
        return {
            "erul": self.stem[::-1], "isolated": self.isolated, "key_name": key_name, "catalogue": catalogue,
            "secret": str(self.folder / "secret/arena-lure-ceilings.json"), "secret_name": "arena-lure-ceilings.json",
            "runs": str(self.folder / "runs"), "neighbour": str(self.folder / "neighbour"), "path_words": [self.folder.name],
            "checkout": str(paths.PACKAGE.parent), "host_name": os.uname().nodename, "mark": f"victim-{self.stem}",
            "daemon": f"{600 + secrets.randbelow(300)}.{secrets.randbelow(10**9)}", "ipc_key": 1 + secrets.randbelow(1 << 30),
            "left_key": 1 + secrets.randbelow(1 << 30), "queue": f"arena-{secrets.token_hex(4)}", "host_pids": [os.getpid()],
            "abstract": f"arena-lure-{secrets.token_hex(4)}", "socket": str(self.folder / "scratch/lure.sock"),
            "neighbour_socket": "arena-neighbour", "process_limit": None, "memory_bytes": None, "pinned": False,
            "tmp_bytes": LIMITS.tmp_bytes, "home_bytes": LIMITS.home_bytes, "shm_bytes": LIMITS.shm_bytes,
        }  # fmt: skip

    def _victim(self, stack: ExitStack) -> None:
        """Start the host process that the probes try to read and signal."""
        uid = host_namespaces.CONTROL_UID if os.geteuid() == 0 else None
        user: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        env = {"PYTHONPATH": str(HERE.parent), "ARENA_LURE_KEY": self.stem + "a key of another process"}
        python = str(weakened.SYSTEM_PYTHON) if uid is not None or self.user == "plain" else sys.executable
        self.victim = subprocess.Popen(
            [python, "-S", str(HERE / "victim.py"), self.plan["mark"]],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True, **user,
        )  # fmt: skip
        stack.callback(self._end_victim)
        assert self.victim.stdin and self.victim.stdout
        self.victim.stdin.write(json.dumps(self.plan).encode() + b"\n")
        self.victim.stdin.flush()
        self.plan |= json.loads(self.victim.stdout.readline())
        self.plan["host_pids"].append(self.victim.pid)

    def _end_victim(self) -> None:
        assert self.victim.stdin and self.victim.stdout
        with contextlib.suppress(BrokenPipeError):
            self.victim.stdin.close()
        self.victim.stdout.close()
        try:
            self.victim.wait(5)
        except subprocess.TimeoutExpired:
            self.victim.kill()
            self.victim.wait()

    def spec(self, profile: str, plan: Mapping[str, Any], workspace: Path | None, **fields: Any) -> SandboxSpec:
        """A sandbox of that profile whose command runs the probes."""
        return SandboxSpec(
            kind="agent" if profile == "agent" else "worker",
            command=("python", "-I", PROBES_INSIDE),
            workspace=workspace if profile == "agent" else None,
            files={PROBES_INSIDE: self.probes, "/workspace/check.py": b"# given\n"},
            stdin=json.dumps(plan).encode(),
            limits=LIMITS,
            **fields,
        )

    def alive(self) -> bool:
        """Whether the victim still runs. A killed process takes a moment to end on a busy machine."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.victim.wait(DYING_S)
        return self.victim.returncode is None
