"""The self-test before every run: it passes in the real sandbox and names every opening without one."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from arena.errors import SandboxError
from arena.sandboxes import selftest
from arena.system import process

SOUND: dict[str, Any] = {
    "status": {**selftest.STATUS, "Uid": "1000\t1000\t1000\t1000"},
    "users": [["1000", "0", "1"]],
    "namespaces": {name: f"{name}:[1]" for name in (*selftest.NAMESPACES, "cgroup")},
    "interfaces": ["lo"],
    "init": [],
    "host_root": [],
    "seen": [],
    "texts": {"1/cmdline": "python -I"},
}
HOST = {name: f"{name}:[2]" for name in (*selftest.NAMESPACES, "cgroup")}


def found(changes, **options):
    return list(selftest.findings({**SOUND, **changes}, "secret", HOST, **options))


def test_the_real_sandbox_passes(sandbox):
    selftest.prove(sandbox.run)


@contextmanager
def no_sandbox(spec):
    """The command as a process like any other."""
    command = [sys.executable, *spec.command[1:]]
    with subprocess.Popen(
        command, stdin=process.readable_fd(spec.stdin), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=spec.workspace
    ) as started:
        yield SimpleNamespace(stdout=started.stdout, stderr=started.stderr, wait=started.wait)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_without_a_sandbox_every_opening_is_named():
    with pytest.raises(SandboxError) as error:
        selftest.prove(no_sandbox)
    text = str(error.value)
    assert "no agent runs in it" in text and "its user is" in text
    for finding in (
        "Seccomp is 0",
        "NoNewPrivs is 0",
        "its pid namespace is the host's",
        "its net namespace is the host's",
        "/lure",
        "environ",
    ):
        assert finding in text, text


def test_a_program_that_fails_is_no_proof():
    @contextmanager
    def dead(spec):
        with no_sandbox(
            SimpleNamespace(command=("python", "-c", "import sys; sys.exit('no')"), stdin=b"", workspace=None)
        ) as running:
            yield running

    with pytest.raises(SandboxError, match="ended with 1: no"):
        selftest.prove(dead)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"status": {**SOUND["status"], "CapEff": "0000000000200000"}},
            "CapEff is 0000000000200000 in it, not 0000000000000000",
        ),
        ({"status": {**SOUND["status"], "CapBnd": "1"}}, "CapBnd is 1"),
        ({"status": {**SOUND["status"], "Uid": "0\t0\t0\t0"}}, r"its user is \['0', '0', '0', '0'\], not 1000"),
        ({"status": {}}, "Seccomp is missing"),
        ({"users": [["0", "0", "4294967295"]]}, "its uid_map holds"),
        ({"namespaces": {**SOUND["namespaces"], "ipc": "ipc:[2]"}}, "its ipc namespace is the host's"),
        ({"namespaces": {**SOUND["namespaces"], "cgroup": "cgroup:[2]"}}, "its cgroup namespace is the host's"),
        ({"namespaces": {**SOUND["namespaces"], "net": None}}, "its net namespace cannot be seen"),
        ({"interfaces": ["lo", "eth0"]}, "interfaces lo, eth0"),
        ({"init": ["mem"]}, "its process 1 can be read: mem"),
        ({"host_root": ["/proc/sys/kernel/core_pattern"]}, "it can write /proc/sys/kernel/core_pattern"),
        ({"seen": ["/home/u/arena/problems"]}, "it sees /home/u/arena/problems"),
        ({"texts": {"1/environ": "KEY=secret"}}, "environment shows in /proc/1/environ"),
    ],
)
def test_each_opening_has_its_words(changes, words):
    assert any(re.search(words, finding) for finding in found(changes)), found(changes)


def test_nothing_is_found_where_all_is_closed():
    assert found({}) == []
    assert json.loads(json.dumps(SOUND)) == SOUND
    no_cgroup_namespace = {**SOUND["namespaces"], "cgroup": None}
    assert list(selftest.findings({**SOUND, "namespaces": no_cgroup_namespace}, "secret", {**HOST, "cgroup": None})) == []


def test_a_backend_without_user_namespaces_needs_another_user():
    shared = {"namespaces": {**SOUND["namespaces"], "user": "user:[2]"}, "users": [["0", "0", "4294967295"]]}
    assert found(shared, user_namespace=False) == []
    root = {**SOUND["status"], "Uid": "0\t0\t0\t0"}
    assert found({**shared, "status": root}, user_namespace=False) == ["its user is root"]
