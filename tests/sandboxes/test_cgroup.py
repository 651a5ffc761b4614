"""Control groups: the choice of hierarchies on texts and faked trees of files, limits and removal on real groups.

Version 2 is faked throughout: its files are plain ones here, so what is shown is what arena writes and reads, not that a kernel
obeys. The real ones are those of the machine that runs this.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import needs_sandbox
from sandbox_programs import FORKS, ROOT

from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits, SandboxSpec, bwrap, cgroup
from arena.sandboxes.cgroup import Cgroup, SandboxCgroup, delegated_parent, own_cgroups, parse_cgroups, settings
from arena.sandboxes.lifecycle import counts_by_namespace
from arena.sandboxes.programs import keeper
from arena.sandboxes.watchdog import process_tree

HYBRID = """\
24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
25 24 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
26 24 0:23 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
27 24 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
28 24 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
UNIFIED = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "31 1 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


def test_groups_of_a_machine_with_both_versions():
    found = parse_cgroups("4:memory:/a/b\n1:cpu,cpuacct:/\n7:name=systemd:/\n0::/c\n", HYBRID)
    assert found == {
        "cpu": Cgroup(1, Path("/sys/fs/cgroup/cpu,cpuacct")),
        "memory": Cgroup(1, Path("/sys/fs/cgroup/memory/a/b")),
        "": Cgroup(2, Path("/sys/fs/cgroup/unified/c")),
    }


def test_groups_of_a_machine_with_version_2_only():
    assert parse_cgroups("0::/user.slice/s.scope\n", UNIFIED) == {"": Cgroup(2, Path("/sys/fs/cgroup/user.slice/s.scope"))}


def test_groups_in_a_container_that_shows_part_of_the_hierarchy():
    assert parse_cgroups("0::/docker/abc/run\n", CONTAINER) == {"": Cgroup(2, Path("/sys/fs/cgroup/run"))}
    assert parse_cgroups("0::/elsewhere\n", CONTAINER) == {}


LIMITS = Limits(processes=64, memory_bytes=512 * MIB, cpus=1.5)


def written(version: int, controller: str, limits: Limits = LIMITS, **given: bool) -> dict[str, str]:
    return {setting.file: setting.value for setting in settings(version, limits, **given)[controller]}


def test_settings_are_those_of_the_kernels_version():
    assert written(1, "pids") == written(2, "pids") == {"pids.max": "64"}
    assert written(1, "memory") == {
        "memory.limit_in_bytes": "536870912",
        "memory.memsw.limit_in_bytes": "536870912",
        "memory.kmem.tcp.limit_in_bytes": str(64 * MIB),
    }
    assert written(1, "memory", Limits(memory_bytes=MIB))["memory.kmem.tcp.limit_in_bytes"] == str(MIB)
    assert written(2, "memory") == {"memory.max": "536870912", "memory.swap.max": "0", "memory.oom.group": "1"}
    assert written(1, "cpu") == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}
    assert written(2, "cpu") == {"cpu.max": "150000 100000"}
    assert written(2, "cpu", Limits(), fair=True) == {"cpu.weight": "100"}
    assert "memory" not in settings(2, Limits()) and settings(2, Limits())["cpu"] == []


def branch(folder: Path, controllers: str, delegated: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.procs").write_text("")
    (folder / "cgroup.subtree_control").write_text(delegated)
    return folder


def test_the_parent_is_the_nearest_group_that_delegates(tmp_path):
    top = branch(tmp_path / "user.slice", "cpu io memory pids", "memory pids")
    own = branch(top / "a.scope", "memory pids", "")
    (own / "cgroup.subtree_control").unlink()
    (own / "cgroup.subtree_control").mkdir()  # refuses to be written, as the kernel's does while the group holds processes
    assert delegated_parent(own) == top
    assert (top / "cgroup.subtree_control").read_text() == "+cpu"
    (top / "cgroup.controllers").write_text("cpu hugetlb")
    assert delegated_parent(own) is None


def test_a_group_of_version_2_on_faked_files(tmp_path):
    place = Cgroup(2, tmp_path)
    group = SandboxCgroup(LIMITS, {"memory": place, "pids": place, "cpu": place}, fair=True)
    with group:
        (folder,) = tmp_path.iterdir()
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "memory.max": "536870912", "pids.max": "64", "cpu.weight": "100", "cpu.max": "150000 100000",
        }  # fmt: skip
        assert group.in_force == {
            "memory": "cgroup v2 memory.max 512 MiB",
            "processes": "cgroup v2 pids.max 64",
            "cpu": "cgroup v2 cpu.max 1.5 processors",
        }
        assert group.procs_files == [str(folder / "cgroup.procs")]
        assert group.exceeded() == []
        (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1\n")
        (folder / "pids.events").write_text("max 0\n")
        (folder / "pids.peak").write_text("64\n")
        assert group.oom_kills() == 3
        assert group.exceeded() == [
            "its memory of 512 MiB was used up, and the kernel ended 3 of its processes",
            "it was at its limit of 64 processes",
        ]
        for path in folder.iterdir():  # the kernel's own files do not keep a group from being removed
            path.unlink()
    assert not folder.exists()


def test_an_unreadable_count_is_no_finding(tmp_path):
    place = Cgroup(2, tmp_path)
    with SandboxCgroup(LIMITS, {"pids": place}) as group:
        (folder,) = tmp_path.iterdir()
        (folder / "pids.events").mkdir()
        assert group.exceeded() == []
        (folder / "pids.events").rmdir()
        (folder / "pids.max").unlink()


# ---------------------------------------------------------------- the real ones

HIGHEST = cgroup.arena_cgroups().get("pids", Cgroup(2, Path())).folder / "pids.peak"
real = pytest.mark.skipif(
    bool(bwrap.missing()) or "pids" not in cgroup.arena_cgroups() or "memory" not in cgroup.arena_cgroups(),
    reason=f"needs bwrap and control groups that this user may make (there are: {', '.join(cgroup.arena_cgroups()) or 'none'})",
)


def groups() -> list[Path]:
    """Groups that ended arenas have left behind."""
    found = {folder for place in own_cgroups().values() for folder in place.folder.glob(cgroup.NAME_PATTERN)}
    dead = []
    for folder in found:
        if (held := keeper.lock(str(folder), wait=False)) is not None:
            os.close(held)
            dead.append(folder)
    return dead


HOG = "held = []\nwhile True: held.append(bytearray(b'x') * (16 << 20))"
FILE = "head -c 300000000 /dev/zero > /tmp/file; sleep 60"


@real
@pytest.mark.parametrize(
    ("program", "word"), [(("python", "-c", HOG), "hog"), (("sh", "-c", FILE), "file in /tmp")], ids=["hog", "file"]
)
def test_memory_is_limited_and_reported(program, word):
    with bwrap.run(SandboxSpec("agent", program, limits=Limits(memory_bytes=128 * MIB))) as running:
        assert "memory" in running.limits and "128 MiB" in running.limits["memory"], word
        assert running.wait(20) == 137
    assert running.exceeded[0].startswith("its memory of 128 MiB was used up")


@real
def test_processes_are_limited_from_the_first_fork_on():
    with bwrap.run(SandboxSpec("agent", ("python", "-c", FORKS), limits=Limits(processes=16))) as running:
        made, why = running.stdout.read().decode().split(" ", 1)
        assert 8 <= int(made) < 16 and why == "Resource temporarily unavailable\n"


@real
@pytest.mark.skipif(not HIGHEST.exists(), reason="this kernel does not keep the highest count of processes")
def test_a_reached_limit_of_processes_is_reported():
    with bwrap.run(SandboxSpec("agent", ("python", "-c", FORKS), limits=Limits(processes=16))) as running:
        running.wait(30)
    assert running.exceeded[0].startswith("it was at its limit of 16 processes")


@real
@pytest.mark.skipif(not counts_by_namespace(os.uname().release), reason="needs Linux 5.14")
def test_a_fork_is_refused_before_the_group_sees_it():  # which is late: by then it has held up every other sandbox's programs
    program = "import resource; print(*resource.getrlimit(resource.RLIMIT_NPROC))"
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), limits=Limits(processes=16))) as running:
        assert running.stdout.read().decode() == "15 15\n"


@real
@pytest.mark.skipif("cpu" not in cgroup.arena_cgroups(), reason="no cpu controller here")
def test_cpu_time_is_limited():
    clocks = "time.monotonic(), time.process_time()"  # those of a slow machine's start of Python do not count
    spin = f"import time\nend, used = {clocks}\nwhile time.monotonic() < end + 1: pass\nprint(time.process_time() - used)"
    with bwrap.run(SandboxSpec("agent", ("python", "-c", spin), limits=Limits(cpus=0.25))) as running:
        assert float(running.stdout.read()) < 0.5


@real
def test_a_sandbox_leaves_no_group():
    before = {parent: set(parent.iterdir()) for _, parent in cgroup.arena_cgroups().values()}
    with bwrap.run(SandboxSpec("agent", ("sleep", "60"), limits=LIMITS)):
        assert all(set(parent.iterdir()) > there for parent, there in before.items())
    assert before == {parent: set(parent.iterdir()) for _, parent in cgroup.arena_cgroups().values()}


@real
def test_a_limit_that_the_kernel_refuses_leaves_no_group():
    before = {parent: set(parent.iterdir()) for _, parent in cgroup.arena_cgroups().values()}
    with pytest.raises(SandboxError, match=r"cannot make the control group .*-4096.*Invalid argument"):
        SandboxCgroup(Limits(memory_bytes=-4096), cgroup.arena_cgroups()).__enter__()
    assert before == {parent: set(parent.iterdir()) for _, parent in cgroup.arena_cgroups().values()}


@real
def test_a_group_that_its_engine_removes_reports_nothing(tmp_path):
    version, parent = cgroup.arena_cgroups()["pids"]
    (parent / "taken").mkdir()
    with (parent / "taken" / "pids.events").open() as held:
        (parent / "taken").rmdir()
        (tmp_path / "pids.events").symlink_to(f"/proc/self/fd/{held.fileno()}")
        with pytest.raises(OSError, match="No such device"):
            (tmp_path / "pids.events").read_text()
        group = SandboxCgroup(LIMITS, {})
        group._cgroups = {"pids": Cgroup(version, tmp_path)}
        assert group.exceeded() == []


HOLD = """
from arena.sandboxes import SandboxSpec, Limits, bwrap, cgroup
with bwrap.run(SandboxSpec("agent", ("sleep", "60"), limits=Limits(memory_bytes=1 << 30))) as running:
    print(*(place.folder for place in set(cgroup.arena_cgroups().values())), flush=True)
    running.wait()
"""


@real
@pytest.mark.parametrize("keeper_too", [False, True], ids=["arena", "arena and its keeper"])
def test_groups_of_a_killed_arena_are_removed(keeper_too):
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, text=True) as arena:
        assert arena.stdout is not None
        folders = [Path(name) for name in arena.stdout.readline().split()]
        assert all(folder.is_dir() for folder in folders)
        if keeper_too:
            (number,) = (pid for pid in process_tree(arena.pid) if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes())
            os.kill(number, signal.SIGKILL)
        arena.kill()
    end_s = time.monotonic() + 1
    if keeper_too:
        time.sleep(0.3)  # the sandboxes end without it
        for folder in folders:
            cgroup._sweep(folder.parent)  # as the next arena does, and one that another test has started may have done already
    while any(folder.exists() for folder in folders):
        assert time.monotonic() < end_s
        time.sleep(0.01)


FULL_SOCKETS = """
import socket
server = socket.create_server(("127.0.0.1", 0))
sent, held = 0, []
for _ in range(100):
    client = socket.create_connection(server.getsockname())
    held += [client, server.accept()[0]]
    client.setblocking(False)
    try:
        while True: sent += client.send(bytes(1 << 16))
    except BlockingIOError: pass
print(sent >> 20)
"""
FULL_DATAGRAM_SOCKETS = """
import socket
sender, held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
for _ in range(1000):
    held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    held[-1].bind(("127.0.0.1", 0)); held[-1].setblocking(False)
    for _ in range(5):
        try: sender.sendto(bytes(32000), held[-1].getsockname())
        except OSError: pass
received = 0
for each in held:
    try:
        while True: received += len(each.recv(65536))
    except BlockingIOError: pass
print(received >> 20)
"""


@needs_sandbox
@pytest.mark.parametrize("program", [FULL_SOCKETS, FULL_DATAGRAM_SOCKETS], ids=["tcp", "udp"])
def test_unread_network_data_is_bounded(program):
    """The kernel has one pool for it for the whole machine: 60 TCP connections of one sandbox took a tenth of that."""
    parent = cgroup.arena_cgroups().get("memory")
    if parent is None or (parent.version == 1 and not (parent.folder / "memory.kmem.tcp.limit_in_bytes").exists()):
        pytest.skip("no control group counts TCP memory here")
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), limits=Limits(memory_bytes=512 * MIB))) as running:
        sent = running.stdout.read()
        assert running.wait(30) == 0, running.stderr.read()
    # Version 2 has no limit of its own for it: it counts as the sandbox's memory.
    assert 1 <= int(sent) <= (80 if parent.version == 1 else 512)
