"""The docker backend holds what bwrap holds: the translation as data, and real boxes of an engine started for these tests."""

import array
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from test_bwrap import PROCESS_1, SYSCALLS
from test_life import BUSY, CHEATS, FORKS, STUBBORN, TIMER, alive, token, until

from arena.errors import SandboxError, UsageError
from arena.sandboxes import MIB, Limits, SandboxSpec, bwrap
from arena.sandboxes.backends import backend
from arena.sandboxes.docker.plan import NOTHING, Bind, image, mount_points, plan
from arena.sandboxes.host import Host
from arena.sandboxes.profile import arguments
from arena.sandboxes.python_env import Runtime
from arena.system import tempdirs

pytest.importorskip("docker", reason="the package `docker` is not installed")

from arena.sandboxes import docker
from arena.sandboxes.docker import engine
from arena.sandboxes.docker.config import User, configuration

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "dockerd"
PYTHON = Runtime(version="3.12", python="/usr/bin/python3.12", library_path="/opt/python/lib")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a box a user of its own")


class Result(NamedTuple):
    code: int | None
    out: str
    err: str


@pytest.fixture(scope="module")
def started():
    """A Docker engine of these tests' own; nothing is left of it afterwards."""
    folder = Path(tempfile.gettempdir(), f"arena-dockerd-{token()}")
    try:
        done = subprocess.run([SCRIPT, folder], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        subprocess.run([SCRIPT, "--stop", folder], timeout=60)
        pytest.skip("scripts/dockerd did not get Debian's packages within two minutes")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    try:
        yield done.stdout.strip().removeprefix("export DOCKER_HOST=")
    finally:
        subprocess.run([SCRIPT, "--stop", folder], check=True, timeout=60)
        assert not folder.exists() and alive(str(folder)) == [] and str(folder) not in Path("/proc/mounts").read_text()


@pytest.fixture
def here(started, monkeypatch):
    """The engine, named in the environment."""
    monkeypatch.setenv("DOCKER_HOST", started)
    return started


@pytest.fixture(scope="module")
def proven(started):
    """Refused by name when this machine's engine cannot seal a box, which is a failure: it could be started."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DOCKER_HOST", started)
        return backend("docker")


@pytest.fixture
def sandbox(proven, here):
    return proven


def finish(*command, secrets=(), **fields):
    """Run a box to its end."""
    with docker.run(SandboxSpec(**{"kind": "worker", "command": command, **fields}), secrets=secrets) as box:
        out, err = box.stdout.read().decode(), box.stderr.read().decode()
        return Result(box.wait(30), out, err)


def shell(script, **fields):
    return finish("sh", "-c", script, **fields)


def python(text, **fields):
    return finish("python", "-c", text, **fields)


@contextmanager
def running(*command, **fields):
    """A box whose command has printed its first line."""
    with docker.run(SandboxSpec(**{"kind": "worker", "command": command, **fields})) as box:
        assert box.stdout.readline() == b"ready\n"
        yield box


# ---------------------------------------------------------------- the translation


def planned(box=None, host=None, mounts=()):
    return plan(arguments(box or SandboxSpec("worker", ("true",)), PYTHON, host or Host()), 64123, 64124, mounts)


def test_every_box_of_bwraps_can_be_translated():
    host = Host(
        system=(("/bin", "usr/bin"), ("/lib64", None)),
        devices=(Path("/dev/nvidia0"), Path("/dev/nvidiactl")),
        secret_folders=(Path("/usr/secret"),),
        secret_files=(Path("/usr/key"),),
    )
    files, bridges = {"/home/agent/.config/cli/key": b"1"}, {3128: Path("/s/sock")}
    made = planned(
        SandboxSpec("agent", ("true",), workspace=Path("/w"), gpu=0, files=files, bridges=bridges, env={"A": "1"}), host
    )
    assert made.links["/bin"] == "usr/bin" and made.links["/opt/venv/bin/python"] == "/usr/bin/python3.12"
    assert {Bind(Path("/usr"), "/usr"), Bind(Path("/s/sock"), "/run/arena/bridge/3128")} <= set(made.binds)
    assert [bind for bind in made.binds if not bind.read_only] == [Bind(Path("/w"), "/workspace", read_only=False)]
    assert made.devices == host.devices and made.environment["A"] == "1"
    assert Bind(b"", "/usr/key", 0o000) in made.binds and made.tmpfs["/usr/secret"] == NOTHING
    assert (made.hostname, made.own_network) == ("arena", True)


def test_an_option_without_a_translation_is_an_error():
    with pytest.raises(SandboxError, match="no translation of bwrap's '--overlay'"):
        plan(("--uid", "1000", "--hostname", "arena", "--overlay", "/x"), 1, 1)


def test_private_places_are_bounded_and_the_users_own():
    made = planned(SandboxSpec("worker", ("true",), limits=Limits(tmp_bytes=1, home_bytes=2, shm_bytes=3)))
    owned = "uid=64123,gid=64124"
    assert made.tmpfs["/tmp"] == f"rw,exec,nosuid,nodev,size=1,{owned},mode=1777"
    assert made.tmpfs["/home/agent"] == f"rw,exec,nosuid,nodev,size=2,{owned},mode=0700"
    assert made.tmpfs["/dev/shm"] == f"rw,exec,nosuid,nodev,size=3,{owned},mode=1777"


def test_folders_between_a_private_one_and_a_file_are_the_users():
    made = planned(SandboxSpec("agent", ("true",), files={"/home/agent/.config/cli/key": b"1"}))
    assert {"/home/agent/.config", "/home/agent/.config/cli"} < set(made.tmpfs)
    assert "mode=0755" in made.tmpfs["/home/agent/.config"] and "/home" not in made.tmpfs


def test_accounts_have_the_numbers_that_they_have_without_a_user_namespace():
    files = {bind.target: bind.source for bind in planned().binds if isinstance(bind.source, bytes)}
    assert files["/etc/passwd"].startswith(b"agent:x:64123:64124:") and files["/etc/group"].startswith(b"agent:x:64124:")
    assert files["/etc/resolv.conf"] == files["/etc/hostname"] == b""


def test_what_is_mounted_below_a_bound_folder_is_bound_too_unless_it_is_covered():
    mounts = tuple(map(Path, ("/", "/usr", "/usr/lib/x", "/usr/secret/y", "/usrlocal", "/home")))
    made = planned(host=Host(secret_folders=(Path("/usr/secret"),)), mounts=mounts)
    assert [bind for bind in made.binds if bind.source in mounts] == [
        Bind(Path("/usr"), "/usr"),
        Bind(Path("/usr/lib/x"), "/usr/lib/x"),
    ]


def test_mount_points_are_read_as_the_kernel_writes_them():
    assert mount_points("72 48 0:39 / / ro - overlay\n73 72 8:1 /x /a\\040b/c rw - ext4\n") == (Path("/"), Path("/a b/c"))


def test_the_image_is_named_by_its_content_and_holds_no_file():
    tag, content = image(planned())
    assert (tag, content) == image(planned())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert {"opt/venv/bin/python", "workspace"} <= set(tar.getnames())
        assert not [entry for entry in tar if entry.isfile()]


def test_the_fences_are_all_there():
    box = SandboxSpec("worker", ("true",), limits=Limits(memory_bytes=7, cpus=0.5, processes=9), cpus=frozenset({0, 1}))
    wanted = configuration(box, planned(box), PYTHON, User(5, 6), [])
    host = wanted["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["CgroupnsMode"], host["CapDrop"]) == (
        "none",
        "private",
        "private",
        ["ALL"],
    )
    assert (host["ReadonlyRootfs"], host["SecurityOpt"], host["Init"]) == (True, ["no-new-privileges:true"], False)
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (7, 7, 500_000_000, 9)
    assert (host["CpusetCpus"], wanted["User"], wanted["Hostname"]) == ("0,1", "5:6", "arena")
    # Nothing that a box is told or may keep secret is told to the engine, which writes it to the disk.
    assert wanted["Env"] == ["LD_LIBRARY_PATH=/opt/python/lib"] and "true" not in str(wanted["Entrypoint"])


# ---------------------------------------------------------------- the engine


@as_root
@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("tcp://127.0.0.1:2375", "may be another machine's"),
        ("unix:///nowhere/docker.sock", "no Docker engine at unix:///nowhere/docker.sock (No such file or directory): start one"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_with_what_to_do(monkeypatch, address, text):
    monkeypatch.setenv("DOCKER_HOST", address)
    assert text in str(docker.missing())
    with pytest.raises(SandboxError) as refused:
        backend("docker")
    assert text in str(refused.value)


def test_both_backends_are_known():
    with pytest.raises(UsageError, match=r"unknown sandbox 'podman' \(known: bwrap, docker\)"):
        backend("podman")


@as_root
def test_without_the_package_it_says_what_to_install(tmp_path):
    ask = "import sys; sys.modules['docker'] = None; from arena.sandboxes import docker; print(docker.missing())"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert "pip install 'arena[docker]'" in done.stdout, done.stderr


def test_the_wall_is_proven_anew_each_time(here):
    began = int(time.time())
    assert docker.missing() is None and docker.missing() is None
    with engine.connected() as found:
        told = found.events(since=began, until=int(time.time()) + 1, decode=True, filters={"event": "create"})
        assert len(list(told)) == 2


def test_the_engine_is_described(here):
    assert docker.describe().startswith("engine ") and here in docker.describe()


def test_doctor_tells_of_the_engine(here):
    doctor = [sys.executable, "-m", "arena", "doctor"]
    told = subprocess.run(doctor, cwd=ROOT, capture_output=True, text=True).stderr
    assert re.search(rf"^ok +docker +engine {re.escape(docker.describe().split()[1])}", told, re.MULTILINE)
    without = subprocess.run(
        doctor, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    )
    assert re.search(
        r"^note +docker +optional, and not available: no Docker engine at unix:///nowhere", without.stderr, re.MULTILINE
    )


@as_root
def test_an_engine_started_twice_is_one(here):
    folder = here.removeprefix("unix://").removesuffix("/docker.sock")
    assert subprocess.run([SCRIPT, folder], capture_output=True, text=True).stdout == f"export DOCKER_HOST={here}\n"


# ---------------------------------------------------------------- what a box has, and what it has not


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)])
def test_status(sandbox, script, code):
    assert shell(script).code == code


def test_streams_are_apart_and_input_arrives(sandbox):
    assert shell("cat; echo err >&2", stdin=b"in\n" * 100_000) == (0, "in\n" * 100_000, "err\n")
    assert shell("cat").out == ""


def test_a_command_that_is_not_there(sandbox):
    assert finish("no-such-command") == (127, "", "no-such-command: not found in the sandbox\n")
    assert finish("/etc").code == 126


def test_it_shows_what_a_bwrap_box_shows(sandbox):
    look = "env | sort; ls -A /etc /opt/venv /opt/venv/bin /run/arena /home /workspace; id -un; id -gn; hostname; pwd; umask"
    look += "; grep -E 'Sig(Ign|Blk)' /proc/self/status; ulimit -n; ulimit -c; tr '\\0' ' ' < /proc/$$/cmdline"
    if reason := bwrap.missing():
        pytest.skip(reason)
    with bwrap.run(SandboxSpec("worker", ("sh", "-c", look), env={"EXTRA": "1"})) as box:
        wanted = box.stdout.read().decode().splitlines()
    found = shell(look, env={"EXTRA": "1"}).out.splitlines()
    own = {"door", "enter.py", "hostname", "resolv.conf", "mtab"}
    assert [line for line in found if line not in own] == [line for line in wanted if line not in own] and len(found) > 40


@as_root
def test_who_it_is(sandbox):
    uid, gid, groups = shell("id -u; id -g; id -G").out.split()
    assert int(uid) in bwrap.UIDS and uid == gid == groups
    with docker.run(SandboxSpec("worker", ("id", "-u"))) as one, docker.run(SandboxSpec("worker", ("id", "-u"))) as two:
        assert one.stdout.read() != two.stdout.read()


def test_workspace_is_writable_and_keeps_what_was_written(sandbox, tmp_path):
    (tmp_path / "closed" / "work").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    work = tmp_path / "closed" / "work"
    (work / "given").write_text("before")
    done = shell("cat given; echo after > given; mkdir -p a/b; echo new > a/b/c", workspace=work, kind="agent")
    assert done == (0, "before", "")
    assert ((work / "given").read_text(), (work / "a/b/c").read_text()) == ("after\n", "new\n")


@as_root
def test_a_bounded_workspace_is_memory_that_no_host_path_leads_to(sandbox, tmp_path):
    limits = Limits(workspace_bytes=2 * MIB, workspace_files=20)
    fill = "head -c 9000000 /dev/zero > big; stat -c %s big; touch $(seq 50); grep -c ' /workspace ' /proc/self/mountinfo"
    with docker.run(SandboxSpec("agent", ("sh", "-c", fill), workspace=tmp_path, limits=limits)) as box:
        size, mounts = box.stdout.read().decode().split()
        assert int(size) <= 2 * MIB and mounts == "1" and box.limits["workspace"] == "tmpfs 2 MiB, 20 files"
        assert Path(str(box.workspace), "big").stat().st_size == int(size)
        host = Path("/proc/mounts").read_text()
        assert str(tmp_path) not in host and tempdirs.owner() not in host
    assert len(list(tmp_path.iterdir())) == 20 and (tmp_path / "big").stat().st_size == int(size)


def test_files_are_there_and_read_only(sandbox):
    done = shell(
        "cat solution.py; echo x > solution.py; rm -f solution.py; mv solution.py b", files={"/workspace/solution.py": b"text\n"}
    )
    assert done.out == "text\n" and done.err.count("solution.py") == 3 and done.code != 0


def test_a_file_in_the_home_leaves_its_folders_writable(sandbox):
    files = {"/home/agent/.cli/settings": b"text"}
    assert shell("cd ~/.cli && cat settings && touch other; rm -f settings; ls", files=files).out == "textother\nsettings\n"


PLACES = "/ /workspace /usr /etc /dev /sys /opt/venv /opt/python /run/arena /home /proc/sys"


def test_read_only_and_private_places(sandbox):
    script = (
        f"for place in {PLACES}; do touch $place/new 2>/dev/null && echo $place; done; touch /usr/bin/env 2>/dev/null && echo usr"
    )
    assert shell(script).out == ""
    private = "for place in /tmp /home/agent /dev/shm; do ls -A $place; cp /bin/true $place/x && $place/x && echo ran; done"
    assert shell(private).out == "ran\nran\nran\n"
    assert shell("ls -A /tmp /home/agent /dev/shm").out == "/dev/shm:\n\n/home/agent:\n\n/tmp:\n"


def test_absent_or_closed(sandbox):
    paths = "/etc/shadow /root /var /mnt /srv /boot /proc/1/root/ /proc/kcore /sys/class /sys/fs/cgroup/memory /dev/vda /dev/mem"
    assert shell(f"for path in {paths}; do ls -a $path/ 2>/dev/null || head -c 1 $path 2>/dev/null; done").out == ""
    assert shell("cat /etc/resolv.conf /etc/hostname").out == ""


def test_secrets_in_a_bound_folder_are_not_to_be_seen(sandbox, tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "lure").write_text("CANARY")
    (tmp_path / "ceiling.yaml").write_text("CANARY")
    done = shell(
        "grep -rs CANARY /workspace; ls hidden; cat ceiling.yaml; touch hidden/x; echo > ceiling.yaml; umount hidden",
        workspace=tmp_path,
        secrets=(tmp_path / "hidden", tmp_path / "ceiling.yaml"),
    )
    assert done.out == "" and done.code != 0
    assert (tmp_path / "hidden" / "lure").read_text() == "CANARY"


def test_no_network_but_its_own_loopback(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as named:
        name = f"arena-test-{os.getpid()}"
        named.bind(f"\0{name}")
        named.listen()
        done = python(
            "import socket\n"
            "print([name for _, name in socket.if_nameindex()])\n"
            f"for address in ('127.0.0.1', {server.getsockname()[1]}), '\\0{name}', ('192.0.2.1', 80):\n"
            "    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET\n"
            "    try: socket.socket(family).connect(address); print('open')\n"
            "    except OSError as error: print(error.strerror)\n"
        )
    assert done.out.splitlines() == ["['lo']", "Connection refused", "Connection refused", "Network is unreachable"]


def test_a_bridge_leads_to_its_socket(sandbox, tmp_path):
    path = Path(tempfile.mkdtemp(prefix="arena-test-"), "sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o666)
        server.listen()
        text = (
            "import socket\nlink = socket.create_connection(('127.0.0.1', 3128))\nlink.sendall(b'ask')\n"
            "link.shutdown(socket.SHUT_WR)\nprint(link.recv(16))"
        )
        with docker.run(SandboxSpec("agent", ("python", "-c", text), bridges={3128: path})) as box:
            server.settimeout(20)
            link, _ = server.accept()
            with link:
                assert link.recv(16) == b"ask" and link.recv(16) == b""
                link.sendall(b"answer")
            assert box.stdout.read() == b"b'answer'\n"
    shutil.rmtree(path.parent)


def test_process_1_cannot_be_read_and_nobody_else_be_seen(sandbox):
    *answers, pids = python(PROCESS_1).out.splitlines()
    assert len(answers) == 9
    assert {answer.split(" ", 1)[1] for answer in answers} <= {"Permission denied", "Operation not permitted"}
    assert pids.split()[0] == "1" and len(pids.split()) == 2


def test_the_door_that_process_1_came_by_is_gone(sandbox):
    assert shell("ls -A /run/arena/door; find / -xdev -type s 2>/dev/null; touch /run/arena/door/x").out == ""


def test_no_descriptor_but_those_that_were_passed_and_nobody_else_holds_them(sandbox):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            fd = theirs.fileno()
            text = (
                "import os, time\n"
                "listing = os.open('/proc/self/fd', os.O_RDONLY)\n"
                f"print(sorted(set(map(int, os.listdir(listing))) - {{listing, listing + 1}}), flush=True)\n"
                f"os.write({fd}, b'hello'); os.close({fd}); time.sleep(60)\n"
            )
            entered = docker.run(SandboxSpec("worker", ("python", "-c", text), pass_fds=(fd,)))
            box = entered.__enter__()
        ours.settimeout(10)
        try:
            assert box.stdout.readline().decode() == f"[0, 1, 2, {fd}]\n"
            assert (ours.recv(16), ours.recv(16)) == (b"hello", b"")  # its end, though the box lives on
            assert box.wait(0) is None
        finally:
            entered.__exit__(None, None, None)


def test_the_judges_socket_carries_packets_and_shared_memory(sandbox):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory = os.memfd_create("arena")
    os.truncate(memory, 4096)
    text = (
        "import mmap, socket, sys\n"
        "channel = socket.socket(fileno=int(sys.argv[1]))\n"
        "order, fds, _, _ = socket.recv_fds(channel, 64, 2)\n"
        "shared = mmap.mmap(fds[0], 4096); shared[:len(order)] = order[::-1]\n"
        "channel.send(b'done')"
    )
    with ours, theirs:
        box = SandboxSpec("worker", ("python", "-c", text, str(theirs.fileno())), pass_fds=(theirs.fileno(),))
        with docker.run(box):
            socket.send_fds(ours, [b"order"], array.array("i", [memory]))
            ours.settimeout(10)
            assert ours.recv(64) == b"done" and os.pread(memory, 5, 0) == b"redro"
    os.close(memory)


def test_no_privilege_in_any_form_and_two_filters(sandbox):
    status = dict(line.split(":\t") for line in shell("cat /proc/self/status").out.splitlines() if ":\t" in line)
    assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status.get("Seccomp_filters", "2") == "2"  # ours and the engine's own; kernels before 5.9 do not count them


def test_root_outside_is_nobody_inside(sandbox):
    places = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger")
    assert shell("; ".join(f"(: >> {place}) && echo open" for place in places)).out == ""


def test_the_filter_is_in_force(sandbox):
    outcomes = dict(line.rsplit(" ", 1) for line in python(SYSCALLS).out.splitlines())
    allowed = {"memfd_create": "done", "setpriority of self": "done", "sched_setaffinity": "EINVAL"}
    assert outcomes.items() >= allowed.items()
    assert (outcomes.pop("clone3"), outcomes.pop("vsock")) == ("ENOSYS", "EAFNOSUPPORT")
    assert {outcome for name, outcome in outcomes.items() if name not in allowed} == {"EPERM"} and len(outcomes) > 10


def test_pinned_to_its_processors(sandbox):
    cpu = min(os.sched_getaffinity(0))
    done = python("import os; print(os.sched_getaffinity(0)); os.sched_setaffinity(0, {0})", cpus=frozenset({cpu}))
    assert done.out == f"{{{cpu}}}\n" and "PermissionError" in done.err


def test_nested_namespaces_are_refused(sandbox):
    assert shell("unshare -Ur true").code != 0
    assert shell("bwrap --ro-bind / / true").code != 0


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here, so a box has none")
def test_torch_works_inside_and_says_nothing(sandbox):
    done = python("import torch; print((torch.ones(3) @ torch.ones(3)).item())")
    assert done == (0, "3.0\n", "")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cpus": frozenset({9999})}, "9999"),
        ({"env": {"A": "1\0B"}}, "NUL"),
        ({"files": {"/usr/no": b""}}, "/usr/no"),
        ({"workspace": Path("/nowhere")}, "is not a folder"),
    ],
    ids=["processor", "environment", "file", "workspace"],
)
def test_a_box_that_cannot_be_built_is_an_error_and_leaves_nothing(sandbox, fields, reason):
    with pytest.raises(SandboxError, match=reason), docker.run(SandboxSpec("worker", ("true",), **fields)):
        raise AssertionError("it started")
    assert containers() == []


def test_a_filter_that_the_kernel_refuses_goes_no_further():
    ask = "from arena.sandboxes.programs.enter import seal; seal(b'not a filter....'); print('went on')"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the kernel refuses the filter" in done.stderr


# ---------------------------------------------------------------- its end, its limits, and freezing


def containers():
    with engine.connected() as found:
        return found.containers(all=True)


def test_kill_ends_daemons_that_ignore_everything(sandbox):
    mark = token()
    with running("sh", "-c", STUBBORN.format(mark)) as box:
        until(6, mark)  # process 1 and both shells have it in their arguments, and three sleeps
        began = time.monotonic()
        box.kill()
        assert time.monotonic() - began < 2
        assert alive(mark) == []
        assert box.wait() == 137
        box.kill()  # once more does nothing
    assert containers() == []


def test_leaving_the_block_kills_and_an_error_passes_through(sandbox):
    mark = token()
    with pytest.raises(ZeroDivisionError), running("sh", "-c", STUBBORN.format(mark)):
        _ = 1 / 0
    assert alive(mark) == [] and containers() == []


def test_what_the_command_leaves_behind_ends_with_it(sandbox):
    mark = token()
    with docker.run(SandboxSpec("worker", ("sh", "-c", f"setsid sleep {mark} & exit 5"))) as box:
        assert box.wait(10) == 5
        assert alive(mark) == []


def test_terminate_lets_the_command_finish_its_work(sandbox):
    script = "trap 'sleep 0.3; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    with running("sh", "-c", script) as box:
        assert box.wait(0.1) is None
        box.terminate()
        assert box.wait(10) == 9
        assert box.stdout.read() == b"saved\n"


def test_freeze_stops_everybody_and_thaw_lets_go(sandbox):
    with running("sh", "-c", BUSY) as box:
        stopped = box.freeze()
        time.sleep(0.3)
        assert stopped > 0 and box.cpu_ns() == stopped
        box.thaw()
        time.sleep(0.2)
        assert box.cpu_ns() > stopped + 50_000_000


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_who_runs_while_frozen_is_seen(sandbox, cheat):
    with running("python", "-c", TIMER + cheat) as box:
        stopped = box.freeze()
        time.sleep(0.4)
        assert box.cpu_ns() > stopped


LIMITS = Limits(tmp_bytes=MIB, home_bytes=2 * MIB, shm_bytes=3 * MIB, file_bytes=8 * MIB, open_files=300, processes=64)


def test_sizes_and_counts_are_bounded(sandbox):
    fill = (
        "for at in /tmp /home/agent /dev/shm; do head -c 9000000 /dev/zero > $at/x; stat -c %s $at/x; done; ulimit -n; ulimit -f"
    )
    with docker.run(SandboxSpec("worker", ("sh", "-c", fill), limits=LIMITS)) as box:
        assert box.stdout.read().decode().split() == [str(MIB), str(2 * MIB), str(3 * MIB), "300", str(8 * MIB // 512)]
        assert box.limits["files"] == "RLIMIT_FSIZE 8 MiB"


def test_a_fork_storm_stops(sandbox):
    with docker.run(SandboxSpec("worker", ("python", "-c", FORKS), limits=LIMITS)) as box:
        made, why = box.stdout.read().decode().split(" ", 1)
        assert 50 <= int(made) < 64 and why == "Resource temporarily unavailable\n"
        assert "64" in box.limits["processes"]


def test_a_memory_hog_is_ended_and_the_limit_it_met_is_named(sandbox):
    hog = "a = []\nwhile True: a.append(bytearray(b'x') * (16 << 20))"
    with docker.run(SandboxSpec("worker", ("python", "-c", hog), limits=Limits(memory_bytes=128 * MIB))) as box:
        assert box.wait(30) == 137
        assert "128 MiB" in box.limits["memory"]
    assert "its memory of 128 MiB was used up" in box.exceeded[0]


def test_the_box_ends_with_arena_and_what_it_left_is_swept(sandbox):
    mark = token()
    script = (
        "import sys, time\nfrom arena.sandboxes import SandboxSpec, docker\n"
        "with docker.run(SandboxSpec('worker', ('sh', '-c', sys.argv[1]))) as box:\n"
        "    box.stdout.readline(); print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, STUBBORN.format(mark)], cwd=ROOT, stdout=subprocess.PIPE) as arena:
        assert arena.stdout.readline() == b"up\n"
        arena.kill()
    until(0, mark)
    while containers()[0]["State"] != "exited":  # the engine hears of it a moment after the kernel
        time.sleep(0.05)
    left = Path(tempfile.gettempdir(), f"{tempdirs.PREFIX}{tempdirs.owner().rsplit('-', 2)[0]}-{arena.pid}-1-x")
    left.mkdir()
    (left / "0").touch()
    (left / "shelf").mkdir()
    (left / "door").mkdir()
    (left / "door" / "control").touch()
    assert shell("true").code == 0
    assert containers() == [] and not left.exists()


def test_nothing_is_left_on_the_host(sandbox, tmp_path):
    def left():
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if tempdirs.owner() in line]
        folders = list(Path(tempfile.gettempdir()).glob(f"{tempdirs.PREFIX}{tempdirs.owner()}*"))
        return mounts, folders, len(list(Path("/proc/self/fd").iterdir())), containers()

    shell("true")
    before = left()
    shell("true", workspace=tmp_path, limits=Limits(workspace_bytes=MIB))
    assert left() == before


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")
def test_a_run_from_the_agent_to_the_score(here, tmp_path):
    from command import copy

    arena = copy(tmp_path)
    arena.one_shape()
    done = arena("run", "--sandbox", "docker", "--model", "naive", "--problem", "paged_attention", "--hardware", "cpu")
    assert done.code == 0, done.err
    (row,) = arena.json("list", "runs")
    assert row["state"] == "committed" and row["verdict"] == "passed"
    assert "sandbox: docker" in arena.annotations[0].read_text()
    assert containers() == []


PLAIN = """
from arena.sandboxes import SandboxSpec, docker
print(docker.missing())
try:
    docker.run(SandboxSpec("worker", ("true",))).__enter__()
except docker.SandboxError as error:
    print(error)
"""


@as_root
def test_a_plain_user_is_refused_even_where_the_engine_lets_it_in(here):
    """With the system's own Python: the one that runs this may lie in a home that a plain user cannot enter."""
    packages = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))])
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c"]
    environment = {"DOCKER_HOST": here, "PYTHONPATH": packages, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        probe = "import sys, arena.sandboxes.docker, docker; assert sys.version_info >= (3, 11)"
        able = subprocess.run([*plain, probe], cwd="/", env=environment, capture_output=True).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("needs setpriv, and a /usr/bin/python3 of 3.11 or later that can import arena's packages as any user")
    Path(here.removeprefix("unix://")).chmod(0o666)  # as a member of the group that may use the engine
    done = subprocess.run([*plain, PLAIN], cwd="/", env=environment, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == 2 and all(line.startswith("the docker backend is for root: ") for line in said), done.stderr


def test_the_hosts_network_only_where_it_is_asked_for(sandbox):
    script = "ls /proc/self/ns/net; readlink /proc/self/ns/net; hostname"
    inside = shell(script, kind="agent", network="open").out.split()
    assert inside[1:] == [str(Path("/proc/self/ns/net").readlink()), "arena"]
