"""What only the docker backend has: the rendering of a profile as data, its engine, and the container's own parts."""

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from sandbox_programs import ROOT

from arena.errors import SandboxError, UsageError
from arena.sandboxes import MIB, Limits, SandboxSpec, lifecycle
from arena.sandboxes.backends import backend
from arena.sandboxes.docker.plan import EMPTY_TMPFS, container_plan, image, mount_points
from arena.sandboxes.host import Host
from arena.sandboxes.profile import Bind, profile
from arena.sandboxes.python_env import PythonEnvironment
from arena.system import tempdirs

pytest.importorskip("docker", reason="the package `docker` is not installed")

from arena.sandboxes import docker
from arena.sandboxes.docker import engine
from arena.sandboxes.docker.start import configuration

DOCKERD = ROOT / "scripts" / "dockerd"
PYTHON = PythonEnvironment(version="3.12", interpreter="/usr/bin/python3.12", library_path="/opt/python/lib")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a sandbox a user of its own")

# ---------------------------------------------------------------- the rendering


def planned(spec=None, host=None, mounts=()):
    shown = profile(spec or SandboxSpec("worker", ("true",)), PYTHON, host or Host(), user=64123)
    return container_plan(shown, 64123, mounts)


def test_every_kind_of_entry_is_rendered():
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
    assert Bind("/usr", Path("/usr")) in made.binds and not [bind for bind in made.binds if bind.source == Path("/s/sock")]
    assert [bind for bind in made.binds if bind.writable] == [Bind("/workspace", Path("/w"), writable=True)]
    assert tuple(made.devices) == host.devices and made.profile.environment["A"] == "1"
    assert Bind("/usr/key", b"", 0o000) in made.binds and made.tmpfs["/usr/secret"] == EMPTY_TMPFS


def test_replaced_files_are_bound_with_their_content():
    made = planned(SandboxSpec("worker", ("true",), replaced={Path("/usr/lib/libx.so"): b"stub"}), mounts=(Path("/usr/lib"),))
    assert {Bind("/usr/lib", Path("/usr/lib")), Bind("/usr/lib/libx.so", b"stub")} <= set(made.binds)


def test_private_places_are_limited_and_the_users_own():
    made = planned(SandboxSpec("worker", ("true",), limits=Limits(tmp_bytes=1, home_bytes=2, shm_bytes=3)))
    owned = "uid=64123,gid=64123"
    assert made.tmpfs["/tmp"] == f"rw,exec,nosuid,nodev,size=1,{owned},mode=1777"
    assert made.tmpfs["/home/agent"] == f"rw,exec,nosuid,nodev,size=2,{owned},mode=0700"
    assert made.tmpfs["/dev/shm"] == f"rw,exec,nosuid,nodev,size=3,{owned},mode=1777"


def test_folders_above_a_private_file_are_the_users():
    made = planned(SandboxSpec("agent", ("true",), files={"/home/agent/.config/cli/key": b"1"}))
    assert {"/home/agent/.config", "/home/agent/.config/cli"} < set(made.tmpfs)
    assert "mode=0755" in made.tmpfs["/home/agent/.config"] and "/home" not in made.tmpfs


def test_accounts_have_the_user_ids_of_the_host():
    files = {bind.target: bind.source for bind in planned().binds if isinstance(bind.source, bytes)}
    assert files["/etc/passwd"].startswith(b"agent:x:64123:64123:") and files["/etc/group"].startswith(b"agent:x:64123:")
    assert files["/etc/resolv.conf"] == files["/etc/hostname"] == b""


def test_mounts_below_a_bound_folder_are_bound_unless_covered():
    mounts = tuple(map(Path, ("/", "/usr", "/usr/lib/x", "/usr/secret/y", "/usrlocal", "/home")))
    made = planned(host=Host(secret_folders=(Path("/usr/secret"),)), mounts=mounts)
    assert [bind for bind in made.binds if bind.source in mounts] == [
        Bind("/usr", Path("/usr")),
        Bind("/usr/lib/x", Path("/usr/lib/x")),
    ]


def test_mount_points_are_read_with_their_escapes():
    assert mount_points("72 48 0:39 / / ro - overlay\n73 72 8:1 /x /a\\040b/c rw - ext4\n") == (Path("/"), Path("/a b/c"))


def test_an_image_is_named_by_its_content_and_holds_no_file():
    tag, content = image(planned())
    assert (tag, content) == image(planned())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert {"opt/venv/bin/python", "workspace"} <= set(tar.getnames())
        assert not [entry for entry in tar if entry.isfile()]


def test_a_configuration_has_every_isolation_layer():
    spec = SandboxSpec("worker", ("true",), limits=Limits(memory_bytes=7, cpus=0.5, processes=9), cpus=frozenset({0, 1}))
    wanted = configuration(spec, planned(spec), PYTHON, 5, [])
    host = wanted["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["CgroupnsMode"], host["CapDrop"]) == (
        "none",
        "private",
        "private",
        ["ALL"],
    )
    assert (host["ReadonlyRootfs"], host["SecurityOpt"], host["Init"]) == (True, ["no-new-privileges:true"], False)
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (7, 7, 500_000_000, 9)
    assert (host["CpusetCpus"], wanted["User"], wanted["Hostname"]) == ("0,1", "5:5", "arena")
    # The engine gets neither a sandbox's input nor what it may keep secret: the engine writes its configuration to the disk.
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
def test_an_unusable_engine_is_an_error_that_says_what_to_do(monkeypatch, address, text):
    monkeypatch.setenv("DOCKER_HOST", address)
    assert text in str(docker.missing())
    with pytest.raises(SandboxError) as refused:
        backend("docker")
    assert text in str(refused.value)


def test_an_unknown_backend_lists_the_choices():
    with pytest.raises(UsageError, match=r"unknown sandbox 'podman' \(known: bwrap, docker\)"):
        backend("podman")


@as_root
def test_a_missing_package_is_named():
    ask = "import sys; sys.modules['docker'] = None; from arena.sandboxes import docker; print(docker.missing())"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert "pip install 'arena[docker]'" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_self_test_runs_each_time(docker_host):
    began_ns = time.time_ns()
    assert docker.missing() is None and docker.missing() is None
    with engine.connected() as found:
        events = found.events(since=began_ns // 10**9, until=int(time.time()) + 1, decode=True, filters={"event": "create"})
        # Whole seconds: the first one may hold a container of the test before.
        assert sum(event["timeNano"] >= began_ns for event in events) == 2


def test_an_engine_is_described(docker_host):
    assert docker.describe().startswith("engine ") and docker_host in docker.describe()


@pytest.mark.slow
def test_doctor_reports_the_engine(docker_host):
    doctor = [sys.executable, "-m", "arena", "doctor"]
    report = subprocess.run(doctor, cwd=ROOT, capture_output=True, text=True).stderr
    assert re.search(rf"^ok +docker +engine {re.escape(docker.describe().split()[1])}", report, re.MULTILINE)
    without = subprocess.run(
        doctor, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    )
    assert re.search(
        r"^note +docker +optional, and not available: no Docker engine at unix:///nowhere", without.stderr, re.MULTILINE
    )


@as_root
def test_an_engine_started_twice_is_one(docker_host):
    folder = docker_host.removeprefix("unix://").removesuffix("/docker.sock")
    assert subprocess.run([DOCKERD, folder], capture_output=True, text=True).stdout == f"export DOCKER_HOST={docker_host}\n"


# ---------------------------------------------------------------- the container


def test_a_container_shows_what_a_bwrap_sandbox_shows(docker_backend, bwrap_backend):
    look = "env | sort; ls -A /etc /opt/venv /opt/venv/bin /home /workspace; id -un; id -gn; hostname; pwd; umask"
    look += "; grep -E 'Sig(Ign|Blk)' /proc/self/status; ulimit -n; ulimit -c; tr '\\0' ' ' < /proc/$$/cmdline"
    wanted = bwrap_backend.shell(look, env={"EXTRA": "1"}).out.splitlines()
    found = docker_backend.shell(look, env={"EXTRA": "1"}).out.splitlines()
    own = {"hostname", "resolv.conf", "mtab"}
    assert [line for line in found if line not in own] == [line for line in wanted if line not in own] and len(found) > 40
    # A bwrap sandbox runs the compiled process 1 from memory, and has no such folder.
    assert set(docker_backend.shell("ls -A /run/arena").out.split()) <= {"socket", "enter.py", "init", "init.pyc"}


@as_root
def test_containers_have_throw_away_users(docker_backend):
    uid, gid, groups = docker_backend.shell("id -u; id -g; id -G").out.split()
    assert int(uid) in lifecycle.UIDS and uid == gid == groups
    with docker.run(SandboxSpec("worker", ("id", "-u"))) as one, docker.run(SandboxSpec("worker", ("id", "-u"))) as two:
        assert one.stdout.read() != two.stdout.read()


@as_root
def test_no_host_path_leads_to_a_workspace_in_memory(docker_backend, tmp_path):
    limits = Limits(workspace_bytes=2 * MIB, workspace_files=20)
    script = "echo x > x; echo ready; sleep 60"
    with docker_backend.ready("sh", "-c", script, kind="agent", workspace=tmp_path, limits=limits):
        mounts = Path("/proc/mounts").read_text()
        assert str(tmp_path) not in mounts and tempdirs.owner() not in mounts
        assert not list(tmp_path.iterdir())
    assert (tmp_path / "x").read_text() == "x\n"


def test_a_file_in_home_leaves_its_folders_writable(docker_backend):
    files = {"/home/agent/.cli/settings": b"text"}
    script = "cd ~/.cli && cat settings && touch other; rm -f settings; ls"
    assert docker_backend.shell(script, files=files).out == "textother\nsettings\n"


def test_arenas_socket_is_gone_when_the_command_starts(docker_backend):
    script = "test -d /run/arena/socket && ls -A /run/arena/socket; find / -xdev -type s 2>/dev/null; touch /run/arena/socket/x"
    done = docker_backend.shell(script)
    assert done.out == "" and done.code != 0


def test_arenas_and_the_engines_filter_are_in_force(docker_backend):
    lines = docker_backend.shell("cat /proc/self/status").out.splitlines()
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert status.get("Seccomp_filters", "2") == "2"  # ours and the engine's own; kernels before 5.9 do not count them


def test_a_filter_that_the_kernel_refuses_is_an_error():
    ask = "from arena.sandboxes.programs.enter import install_filter; install_filter(b'not a filter....'); print('went on')"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the kernel refuses the filter" in done.stderr


def test_a_memory_hog_is_ended_and_its_limit_is_named(docker_backend):
    hog = "a = []\nwhile True: a.append(bytearray(b'x') * (16 << 20))"
    with docker.run(SandboxSpec("worker", ("python", "-c", hog), limits=Limits(memory_bytes=128 * MIB))) as running:
        assert running.wait(30) == 137
        assert "128 MiB" in running.limits["memory"]
    assert "its memory of 128 MiB was used up" in running.exceeded[0]


def test_nothing_is_left_on_the_host(docker_backend, tmp_path):
    def left():
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if tempdirs.owner() in line]
        folders = list(Path(tempfile.gettempdir()).glob(f"{tempdirs.PREFIX}{tempdirs.owner()}*"))
        return mounts, folders, len(list(Path("/proc/self/fd").iterdir())), docker_backend.leftovers()

    docker_backend.shell("true")
    before = left()
    docker_backend.shell("true", workspace=tmp_path, limits=Limits(workspace_bytes=MIB))
    assert left() == before


def test_the_folder_of_a_killed_arena_is_swept(docker_backend):
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    left = Path(tempfile.gettempdir(), f"{tempdirs.PREFIX}{tempdirs.owner().rsplit('-', 2)[0]}-{dead.pid}-1-x")
    for folder in (left, left / engine.WORKSPACE_MOUNT, left / "socket"):
        folder.mkdir()
    (left / "0").touch()
    (left / "socket" / "control").touch()
    assert docker_backend.shell("true").code == 0
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")
def test_a_run_from_the_agent_to_the_score(docker_backend, tmp_path):
    from command import copy

    arena = copy(tmp_path)
    arena.one_shape()
    done = arena("run", "--sandbox", "docker", "--model", "naive", "--problem", "paged_attention", "--hardware", "cpu")
    assert done.code == 0, done.err
    (row,) = arena.json("list", "runs")
    assert row["state"] == "committed" and row["verdict"] == "passed"
    assert "sandbox: docker" in arena.annotations[0].read_text()
    assert docker_backend.leftovers() == []


PLAIN = """
from arena.sandboxes import SandboxSpec, docker
print(docker.missing())
try:
    docker.run(SandboxSpec("worker", ("true",))).__enter__()
except docker.SandboxError as error:
    print(error)
"""


@as_root
def test_a_plain_user_is_refused_also_by_an_open_engine(docker_host):
    """With the system's own Python: the one that runs this test may lie in a home that a plain user cannot enter."""
    packages = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))])
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c"]
    environment = {"DOCKER_HOST": docker_host, "PYTHONPATH": packages, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        probe = "import sys, arena.sandboxes.docker, docker; assert sys.version_info >= (3, 11)"
        able = subprocess.run([*plain, probe], cwd="/", env=environment, capture_output=True).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("needs setpriv, and a /usr/bin/python3 of 3.11 or later that can import arena's packages as any user")
    Path(docker_host.removeprefix("unix://")).chmod(0o666)  # as a member of the group that may use the engine
    done = subprocess.run([*plain, PLAIN], cwd="/", env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("the docker backend is for root: ") for line in lines), done.stderr
