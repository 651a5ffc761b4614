"""A sandbox as the Docker API's container configuration: plain data, and nothing that the sandbox may keep secret."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from arena.sandboxes import SandboxSpec
from arena.sandboxes.docker.engine import OWNER
from arena.sandboxes.docker.plan import Bind, Plan, image
from arena.sandboxes.lifecycle import rlimits
from arena.sandboxes.python_env import PythonEnvironment
from arena.system.tempdirs import owner

ENTER_INSIDE = "/run/arena/enter.py"
IMAGE = "arena-sandbox"


class User(NamedTuple):
    """User and group of a sandbox, outside as well as inside."""

    uid: int
    gid: int


def stage_mounts(binds: Iterable[Bind], folder: Path) -> list[dict[str, Any]]:
    """The engine's mounts for these binds; bytes become files of the folder."""
    mounts = []
    for index, bind in enumerate(binds):
        source = bind.source
        if isinstance(source, bytes):
            path = folder / str(index)
            path.write_bytes(source)
            path.chmod(bind.mode)
            source = path
        mounts.append({"Type": "bind", "Source": str(source), "Target": bind.target, "ReadOnly": bind.read_only})
    return mounts


def configuration(
    spec: SandboxSpec, plan: Plan, python: PythonEnvironment, user: User, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """The container's configuration. The engine's own filter stays on: no seccomp option is given."""
    limits = spec.limits
    ulimits = rlimits(spec, None)
    return {
        "Image": f"{IMAGE}:{image(plan)[0]}",
        "Entrypoint": [python.interpreter, "-I", "-S", ENTER_INSIDE],
        "Env": [f"LD_LIBRARY_PATH={python.library_path}"] if python.library_path else [],  # the rest comes over the socket
        "User": f"{user.uid}:{user.gid}",
        "Hostname": plan.hostname,
        "Labels": {OWNER: owner()},
        "HostConfig": {
            "NetworkMode": "none" if plan.own_network else "host",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "Init": False,
            "PidsLimit": limits.processes,
            "Memory": limits.memory_bytes or 0,
            "MemorySwap": limits.memory_bytes or 0,  # memory and swap together: no swap
            "NanoCpus": int((limits.cpus or 0) * 1e9),
            "CpusetCpus": ",".join(map(str, sorted(spec.cpus or ()))),
            "OomScoreAdj": 1000,
            "Ulimits": [
                {"Name": name.removeprefix("RLIMIT_").lower(), "Soft": value, "Hard": value} for name, value in ulimits.items()
            ],
            "Mounts": mounts,
            "Tmpfs": dict(plan.tmpfs),
            "Devices": [
                {"PathOnHost": str(path), "PathInContainer": str(path), "CgroupPermissions": "rw"} for path in plan.devices
            ],
            # Only the message of enter.py when it fails; the command's streams are pipes of arena's.
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k"}},
        },
    }
