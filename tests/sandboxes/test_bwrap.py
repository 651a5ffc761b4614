"""What only the bwrap backend has: its own process and user, its errors, its speed, and sandboxes of a plain user."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sandbox_programs import HOLD, ROOT, STUBBORN, alive, token, until

from arena.errors import SandboxError
from arena.sandboxes import Limits, SandboxSpec, bwrap, lifecycle
from arena.sandboxes.bwrap import find_bwrap
from arena.sandboxes.lifecycle import counts_by_namespace
from arena.sandboxes.running import pid_of
from arena.system import tempdirs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a sandbox a user of its own")


def test_the_user_inside_is_always_1000(bwrap_backend):
    assert bwrap_backend.shell("id -u; id -g").out.split() == ["1000", "1000"]


@pytest.mark.parametrize("path", ["/etc/hostname", "/etc/resolv.conf", "/sys"])
def test_host_paths_that_a_container_has_are_absent(bwrap_backend, path):
    assert bwrap_backend.shell(f"ls -a {path}").code != 0


@as_root
def test_the_host_sees_a_throw_away_user(bwrap_backend):
    with bwrap_backend.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as running:
        uid = int(running.limits["processes"].split("uid ")[1].rstrip(")"))
        status = Path(f"/proc/{child_of_init(running)}/status").read_text()
    assert uid in lifecycle.UIDS and f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in status and "Groups:\t \n" in status


def child_of_init(running):
    """Host pid of the command."""
    (init,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    while not (children := Path(f"/proc/{init}/task/{init}/children").read_text().split()):
        continue
    return children[0]


@as_root
def test_sandboxes_that_run_together_have_different_users(bwrap_backend):
    with (
        bwrap_backend.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as one,
        bwrap_backend.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as two,
    ):
        assert one.limits["processes"] != two.limits["processes"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"files": {"/usr/no": b""}}, r"the sandbox did not start: bwrap: .*/usr/no"),
        ({"cpus": frozenset({9999})}, "cannot run on processors 9999: Invalid argument"),
    ],
    ids=["file", "processor"],
)
def test_an_error_holds_the_reason_of_bwrap_or_launcher(bwrap_backend, fields, reason):
    with pytest.raises(SandboxError, match=reason), bwrap_backend.run(SandboxSpec("worker", ("true",), **fields)):
        raise AssertionError("it started")


def test_no_mount_and_no_descriptor_is_left_on_the_host(bwrap_backend, tmp_path):
    def left():
        # The docker backend's tests may run beside these, and their engine mounts things in folders of these names.
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = [line for line in lines if "/arena-dockerd-" not in line and not tempdirs.MARKED.search(line)]
        return mounts, len(list(Path("/proc/self/fd").iterdir()))

    bwrap_backend.shell("true")
    before = left()
    bwrap_backend.shell("true", workspace=tmp_path)
    assert left() == before


def test_an_old_or_missing_bwrap_is_named(bwrap_backend, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    fake.chmod(0o755)
    ask = "from arena.sandboxes import bwrap; print(bwrap.missing())"
    done = {
        path: subprocess.run([sys.executable, "-c", ask], env={"PATH": path}, cwd=ROOT, capture_output=True, text=True)
        for path in (str(tmp_path), "/nowhere")
    }
    assert "0.6.1; arena needs bubblewrap 0.8 or later" in done[str(tmp_path)].stdout
    assert "apt-get install bubblewrap" in done["/nowhere"].stdout


APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"


def host_with(root: Path, values: dict[str, str]) -> Path:
    """The root folder of a machine with these kernel settings."""
    for name, value in values.items():
        path = Path(root, "proc/sys", *name.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    return root


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ()),
        ({APPARMOR: "0", "user.max_user_namespaces": "96000"}, ()),
        ({APPARMOR: "1"}, ("profile arena-bwrap /opt/bwrap flags=(unconfined) {\\n  userns,", f"sysctl -w {APPARMOR}=0")),
        ({"user.max_user_namespaces": "0"}, ("sysctl -w user.max_user_namespaces=10000",)),
    ],
    ids=["an old kernel", "an open host", "Ubuntu 24.04", "none at all"],
)
def test_advice_says_how_to_allow_user_namespaces(values, words, tmp_path):
    advice = bwrap.advice(bwrap.settings(host_with(tmp_path, values)), "/opt/bwrap")
    assert all(word in advice for word in words), advice
    assert bool(advice) == bool(words)


def test_the_advised_profile_is_whole():
    """What the advised `printf` writes: the form of the profiles in Ubuntu's own /etc/apparmor.d."""
    command = re.search(r"`(printf .*?) \| sudo tee", bwrap.advice({APPARMOR: "1"}, "/opt/bwrap"))
    assert command is not None
    written = subprocess.run(["sh", "-c", command[1]], capture_output=True, text=True, check=True).stdout
    assert written == "abi <abi/4.0>,\nprofile arena-bwrap /opt/bwrap flags=(unconfined) {\n  userns,\n}\n"


def test_the_path_of_bwrap_is_absolute(bwrap_backend):
    assert Path(find_bwrap()).is_absolute()


# ---------------------------------------------------------------- its end

SHOW_PID = """
cgroup.arena_cgroups()  # starts a process of its own
start = process.start
def show_pid(*words, **named):
    started = start(*words, **named)
    print(started.pid, flush=True)
    return started
process.start = show_pid
"""


def test_arena_killed_while_bwrap_forks_leaves_nothing(bwrap_backend):
    """bwrap's child waits for a message from bwrap: were that killed along with arena, the child would wait for ever."""
    mark = token()
    words = [sys.executable, "-c", HOLD.format(backend="bwrap", before=SHOW_PID), f"sleep {mark}"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as arena:
        assert arena.stdout is not None
        bwrap_pid = int(arena.stdout.readline())
        children = Path(f"/proc/{bwrap_pid}/task/{bwrap_pid}/children")
        while not children.read_text():
            continue
        os.kill(bwrap_pid, signal.SIGSTOP)  # in the very moment
        try:
            arena.kill()
            arena.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(bwrap_pid, signal.SIGCONT)
        until(0, mark)


def test_a_sandbox_whose_bwrap_was_killed_can_be_killed(bwrap_backend):
    mark = token()
    with bwrap_backend.ready("sh", "-c", STUBBORN.format(mark)) as running:
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait(0.1) is None
        running.kill()
        assert running.wait() == 137
        assert alive(mark) == []


def test_no_zombie_stays_when_bwrap_is_killed(bwrap_backend):
    for _ in range(3):
        with bwrap_backend.ready("sh", "-c", "echo ready; sleep 60") as running:
            init = pid_of(running._init_pidfd)
            os.kill(running.pid, signal.SIGKILL)
            running.kill()
            assert not Path(f"/proc/{init}").exists()


FORK_BOMB = "import os\nprint('ready', flush=True)\nwhile True:\n  try: os.fork()\n  except OSError: pass"


@pytest.mark.timing
@pytest.mark.parametrize(
    ("command", "wait_s", "limit_s"),
    [
        (("sh", "-c", STUBBORN.format("60")), 0.1, 0.25),
        (("sh", "-c", "echo ready; yes | cat >&2 & yes"), 0.1, 0.25),
        # 0.05 s measured here, 1 to 3 s before process 1 was let past the others.
        (("python", "-c", FORK_BOMB), 1.0, 0.5),
    ],
    ids=["daemons that ignore every signal", "a flood of output that is not read", "a fork bomb"],
)
def test_a_kill_is_quick(bwrap_backend, command, wait_s, limit_s):
    with bwrap_backend.ready(*command, kind="agent", limits=Limits(processes=256)) as running:
        time.sleep(wait_s)
        began = time.monotonic()
        running.kill()
        assert time.monotonic() - began < limit_s


# ---------------------------------------------------------------- a plain user's


def test_the_backend_needs_no_installed_package():
    """A plain user runs it with the system's own Python; where that cannot import it, tests for that user are skipped."""
    probe = "import sys, arena.sandboxes.bwrap; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT).returncode == 0


PLAIN = """
import sys
from pathlib import Path
from arena.sandboxes import SandboxSpec, Limits, bwrap
assert bwrap.missing() is None, bwrap.missing()
work = Path(sys.argv[1])
look = "id -u; echo new > made; grep CapEff /proc/self/status; ls /etc/shadow /root 2>&1 | wc -l; ls /proc/1/fd"
with bwrap.run(SandboxSpec("agent", ("sh", "-c", look), workspace=work)) as running:
    print(running.stdout.read().decode().split(), running.wait(10), (work / "made").read_text().strip())
stubborn = "trap '' TERM; (setsid sleep 60 &); echo ready; while :; do :; done"
with bwrap.run(SandboxSpec("worker", ("sh", "-c", stubborn))) as running:
    running.stdout.readline()
    stopped = running.freeze()
    print(running.cpu_ns() == stopped)
    running.resume()
    running.kill()
    print(running.wait())
limits = Limits(memory_bytes=128 << 20, workspace_bytes=8 << 20, workspace_files=50, processes=32)
for program in (
    "import os, time\\nfor n in range(99): os.fork() or time.sleep(60)",
    "held = []\\nwhile True: held.append(bytearray(b'x') * (4 << 20))",
    "import time\\nopen('x', 'wb').write(bytes(9 << 20)); time.sleep(60)",
    "import time\\nfor n in range(99): open(str(n), 'w')\\ntime.sleep(60)",
):
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), workspace=work, limits=limits)) as running:
        code = running.wait(20)
        last = running.stderr.read().decode().strip().rpartition("\\n")[2]
    print(code, last, *running.exceeded)
    for path in work.iterdir():
        path.unlink()
print(running.limits.get("processes"), running.limits["memory"], running.limits["workspace"], sep="; ")
"""


@pytest.mark.slow
def test_a_plain_user_has_the_same_sandbox(bwrap_backend, as_a_plain_user):
    done = as_a_plain_user(PLAIN)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["['1000', 'CapEff:', '0000000000000000', '2'] 2 new", "True", "137"], done.stderr
    watched = ["RLIMIT_NPROC 32 (own user namespace)", "ended above 128 MiB held by processes", "ended above 8 MiB, 50 files"]
    if counts_by_namespace(os.uname().release):
        assert lines[3] == "1 BlockingIOError: [Errno 11] Resource temporarily unavailable"
        assert lines[-1] == "; ".join(watched)
    assert re.fullmatch(r"137  its processes held \d+ MiB of memory, more than 128", lines[4])
    assert re.fullmatch(r"137  its workspace held \d+ bytes, more than 8388608", lines[5])
    assert lines[6] == "137  its workspace held 100 files, more than 50"
