"""Test before every run that this machine's sandbox isolates: a real one, planted lures, and what a process inside sees of them.

A program in the sandbox reports what it sees, and this module judges the report. One finding is enough to refuse the run.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from arena import paths
from arena.errors import SandboxError
from arena.sandboxes import RunningSandbox, SandboxSpec
from arena.system import tempdirs

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
STATUS = {**dict.fromkeys(CAPABILITIES, "0000000000000000"), "NoNewPrivs": "1", "Seccomp": "2"}
"""What the kernel must report about a process in a sandbox: no capability, none to be gained, a filter in force."""
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
"""Namespaces that must differ from ours; `cgroup` too where the kernel has it, and `user` where the backend makes one."""
VARIABLE = "ARENA_LURE"
INSPECTION = """
import json, os, socket, sys
lures, seen = json.load(sys.stdin), []
for path in lures:
    try:
        if os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1): seen.append(path)
    except OSError: pass
texts = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try: texts[pid + "/" + name] = open("/proc/" + pid + "/" + name, "rb").read().decode(errors="replace")
        except OSError: pass
def opens(path, mode):
    try: os.close(os.open(path, mode))
    except OSError: return False
    return True
def link(name):
    try: return os.readlink("/proc/self/ns/" + name)
    except OSError: return None
print(json.dumps({
    "status": dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line),
    "users": [line.split() for line in open("/proc/self/uid_map")],
    "namespaces": {name: link(name) for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")},
    "interfaces": [name for _, name in socket.if_nameindex()],
    "init": [name for name in ("environ", "mem", "maps") if opens("/proc/1/" + name, os.O_RDONLY)],
    "host_root": [name for name in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger") if opens(name, os.O_WRONLY)],
    "seen": seen, "texts": texts,
}))
"""
"""The program inside. Standard library only; its input is the list of host paths that it must not see."""


def prove(run: Callable[[SandboxSpec], AbstractContextManager[RunningSandbox]], *, user_namespace: bool = True) -> None:
    """Start a sandbox by `run` and inspect it from inside. SandboxError names everything that is open.

    `user_namespace=False` for a backend that makes none: then its user must not be root.
    """
    with _planted_lures() as (work, lures):
        spec = SandboxSpec("agent", ("python", "-I", "-S", "-c", INSPECTION), workspace=work, stdin=json.dumps(lures).encode())
        with run(spec) as running:
            output, complaint = running.stdout.read(), running.stderr.read().decode(errors="replace").strip()
            code = running.wait()
        secret = os.environ[VARIABLE]
    try:
        facts = json.loads(output)
    except ValueError:
        raise SandboxError(f"a sandbox started, but the program that inspects it ended with {code}: {complaint}") from None
    if found := list(findings(facts, secret, own_namespaces(), user_namespace=user_namespace)):
        raise SandboxError(
            f"a sandbox started, but it does not isolate; no agent runs in it: {'; '.join(found)}. Report this with `uname -a`"
        )


def findings(facts: dict[str, Any], secret: str, host: Mapping[str, str | None], *, user_namespace: bool = True) -> Iterator[str]:
    """Everything that is open, in words, from the report of the program inside and the host's own namespaces."""
    for key, wanted in STATUS.items():
        if (value := facts["status"].get(key, "missing").strip()) != wanted:
            yield f"{key} is {value} in it, not {wanted}"
    if facts["status"].get("Uid", "").split() != ["1000"] * 4 and user_namespace:
        yield f"its user is {facts['status'].get('Uid', 'unknown').split()}, not 1000 in every respect"
    if user_namespace and [row[2] for row in facts["users"]] != ["1"]:
        yield f"its uid_map holds {facts['users']}, not one user"
    if not user_namespace and "0" in facts["status"].get("Uid", "0").split():
        yield "its user is root"
    for name, link in facts["namespaces"].items():
        needed = name in NAMESPACES if user_namespace or name != "user" else False
        if host.get(name) is not None and link == host[name] and (needed or name == "cgroup"):
            yield f"its {name} namespace is the host's"
        elif needed and link is None:
            yield f"its {name} namespace cannot be seen"
    if facts["interfaces"] != ["lo"]:
        yield f"it has the network interfaces {', '.join(facts['interfaces']) or 'none, not even its own'}"
    if facts["init"]:
        yield f"its process 1 can be read: {', '.join(facts['init'])}"
    if facts["host_root"]:
        yield f"it can write {', '.join(facts['host_root'])}"
    for path in facts["seen"]:
        yield f"it sees {path}"
    for place, text in facts["texts"].items():
        if secret in text:
            yield f"arena's environment shows in /proc/{place}"


def own_namespaces() -> dict[str, str | None]:
    """The namespaces of this process, by name; None where the kernel has no such kind."""
    links = {name: Path("/proc/self/ns", name) for name in (*NAMESPACES, "cgroup")}
    return {name: str(path.readlink()) if path.is_symlink() else None for name, path in links.items()}


@contextmanager
def _planted_lures() -> Iterator[tuple[Path, list[str]]]:
    """A workspace with a lure beside it, a lure in our environment, and all that must not be seen."""
    with tempdirs.folder() as folder:
        folder.chmod(0o755)  # only the sandbox may hide the lure
        (folder / "lure").write_text("a lure")
        (folder / "work").mkdir()
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = secrets.token_hex(16)
        try:
            yield folder / "work", [str(folder / "lure"), str(folder), *map(str, paths.secrets()), "/etc/shadow", "/root"]
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before
