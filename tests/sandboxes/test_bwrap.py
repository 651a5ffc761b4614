"""The real wall around real commands: what a box has, and what it has not."""

import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec, bwrap, lifecycle
from arena.sandboxes.bwrap.start import program
from arena.system import tempdirs

REASON = bwrap.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a box a user of its own")


class Result(NamedTuple):
    code: int | None
    out: str
    err: str


def finish(*command, secrets=(), **fields):
    """Run a box to its end."""
    with bwrap.run(SandboxSpec(**{"kind": "worker", "command": command, **fields}), secrets=secrets) as box:
        out, err = box.stdout.read().decode(), box.stderr.read().decode()
        return Result(box.wait(30), out, err)


def shell(script, **fields):
    return finish("sh", "-c", script, **fields)


def python(text, **fields):
    return finish("python", "-c", text, **fields)


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)])
def test_status(script, code):
    assert shell(script).code == code


def test_streams_are_apart_and_input_arrives():
    assert shell("cat; echo err >&2", stdin=b"in\n") == (0, "in\n", "err\n")
    assert shell("cat").out == ""


def test_missing_commands_crash():
    assert finish("no-such-command") == (127, "", "no-such-command: not found in the sandbox\n")
    assert finish("/etc").code == 126


def test_environment_is_exactly_this():
    made = dict(line.split("=", 1) for line in finish("env", env={"EXTRA": "1"}).out.splitlines())
    cuda = ":/usr/local/cuda/bin" if Path("/usr/local/cuda/bin").is_dir() else ""
    made.pop("LD_LIBRARY_PATH", None)  # depends on the Python that runs this; test_sandbox_profile.py has it
    assert made == {
        "PATH": f"/opt/venv/bin{cuda}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/agent",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "EXTRA": "1",
        "PWD": "/workspace",
    }


def test_who_it_is():
    assert shell("id -u; id -g; whoami; hostname; pwd").out.split() == ["1000", "1000", "agent", "arena", "/workspace"]


def test_signals_that_arena_ignores_are_not_ignored_inside():
    ignored = shell("grep SigIgn /proc/self/status; grep SigBlk /proc/self/status").out.split()
    # Signals 32 and 33 are the C library's own: no program can set them, and whoever started us may have left them ignored.
    assert [int(ignored[1], 16) & ~(0b11 << 31), int(ignored[3], 16)] == [0, 0]


def test_workspace_is_writable_and_keeps_what_was_written(tmp_path):
    (tmp_path / "given").write_text("before")
    assert (
        shell("cat given; echo after > given; mkdir -p a/b; echo new > a/b/c", workspace=tmp_path, kind="agent").out == "before"
    )
    assert ((tmp_path / "given").read_text(), (tmp_path / "a/b/c").read_text()) == ("after\n", "new\n")


def test_workspace_below_a_folder_that_nobody_else_may_enter(tmp_path):
    (tmp_path / "closed" / "work").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    assert shell("echo x > y && ls", workspace=tmp_path / "closed" / "work", kind="agent").out == "y\n"


def test_files_are_there_and_read_only():
    done = shell(
        "cat solution.py; echo x > solution.py; rm -f solution.py; mv solution.py b", files={"/workspace/solution.py": b"text\n"}
    )
    assert done.out == "text\n" and done.err.count("solution.py") == 3 and done.code != 0


@pytest.mark.parametrize("place", ["/", "/workspace", "/usr", "/etc", "/dev", "/opt/venv", "/opt/python", "/run/arena", "/home"])
def test_read_only_places(place):
    assert shell(f"touch {place}/new").code != 0


@pytest.mark.parametrize("place", ["/tmp", "/home/agent", "/dev/shm"])
def test_writable_places_are_the_boxes_own(place):
    assert shell(f'test -z "$(ls -A {place})" && echo x > {place}/arena-left && cat {place}/arena-left').out == "x\n"
    assert not Path(place, "arena-left").exists()
    assert shell(f"ls -A {place}").out == ""


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/hostname", "/root", "/home/agent/..data", "/var", "/mnt", "/srv", "/boot", "/proc/1/root/"]
)
def test_absent_or_closed(path):
    assert shell(f"ls -a {path}").code != 0


def test_secrets_in_a_bound_folder_are_not_to_be_seen(tmp_path):
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


def test_arena_itself_is_not_inside():
    done = python("import importlib.util, sys; print(importlib.util.find_spec('arena'), importlib.util.find_spec('pytest'))")
    assert done.out == "None None\n"
    source = Path(bwrap.__file__).resolve().parents[1]
    assert shell(f"ls {source}; find / -name 'arena' -not -path '/proc/*' 2>/dev/null").out == "/run/arena\n"


def test_no_network_but_its_own_loopback():
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


PROCESS_1 = """
import os
for name in ("environ", "mem", "maps", "auxv", "syscall"):
    try: open(f"/proc/1/{name}", "rb").read(1); print(name, "was read")
    except OSError as error: print(name, error.strerror)
for name in ("fd", "map_files", "cwd", "root"):
    try: print(name, os.listdir(f"/proc/1/{name}"))
    except OSError as error: print(name, error.strerror)
print(*sorted(name for name in os.listdir("/proc") if name.isdigit()))
"""


def test_process_1_cannot_be_read_and_no_process_of_the_host_be_seen():
    *answers, pids = python(PROCESS_1).out.splitlines()
    assert len(answers) == 9 and {answer.split(" ", 1)[1] for answer in answers} <= {
        "Permission denied",
        "Operation not permitted",
    }
    assert pids == "1 2"


def test_no_descriptor_but_those_that_were_passed_and_nobody_else_holds_them():
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
            entered = bwrap.run(SandboxSpec("worker", ("python", "-c", text), pass_fds=(fd,)))
            box = entered.__enter__()
        ours.settimeout(10)
        try:
            assert box.stdout.readline().decode() == f"[0, 1, 2, {fd}]\n"
            assert (ours.recv(16), ours.recv(16)) == (b"hello", b"")  # its end, though the box lives on
            assert box.wait(0) is None
        finally:
            entered.__exit__(None, None, None)


def test_no_privilege_in_any_form():
    status = dict(line.split(":\t") for line in shell("cat /proc/self/status").out.splitlines() if ":\t" in line)
    assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@as_root
def test_root_outside_is_nobody_inside():
    places = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger")
    assert shell("; ".join(f"(: >> {place}) && echo open" for place in places)).out == ""
    with bwrap.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as box:
        uid = int(box.limits["processes"].split("uid ")[1].rstrip(")"))
        status = Path(f"/proc/{child_of_init(box)}/status").read_text()
    assert uid in lifecycle.UIDS and f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in status and "Groups:\t \n" in status


@as_root
def test_a_user_who_still_has_a_dead_process_is_left_alone():
    with lifecycle.throw_away_user() as uid:
        pass
    with subprocess.Popen(["true"], user=uid, stdout=subprocess.DEVNULL) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # not reaped: it counts for its user
        with lifecycle.throw_away_user() as other:
            assert other != uid


def child_of_init(box):
    """Host pid of the command."""
    bwrap_pid = box._bwrap.pid
    (init,) = Path(f"/proc/{bwrap_pid}/task/{bwrap_pid}/children").read_text().split()
    while not (children := Path(f"/proc/{init}/task/{init}/children").read_text().split()):
        continue
    return children[0]


@as_root
def test_boxes_that_run_together_have_different_users():
    with (
        bwrap.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as one,
        bwrap.run(SandboxSpec(kind="worker", command=("sleep", "60"))) as two,
    ):
        assert one.limits["processes"] != two.limits["processes"]


SYSCALLS = """
import ctypes, errno, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def call(x86, aarch, *args):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(aarch if arm else x86), *map(ctypes.c_long, args))
    return errno.errorcode.get(ctypes.get_errno(), "done")
print("keyctl", call(250, 219, 0, -3, 1))
print("io_uring_setup", call(425, 425, 8, 0))
print("unshare", call(272, 97, 0x10000000))
print("clone3", call(435, 435, 0, 0))
print("ptrace", call(101, 117, 16, 1, 0, 0))
print("bpf", call(321, 280, 0, 0, 0))
print("prlimit of 1", call(302, 261, 1, 7, 0, 0))
print("setpriority of 1", call(141, 140, 0, 1, 19))
print("setpriority of self", call(141, 140, 0, 0, 19))
print("tiocsti", call(16, 29, 0, 0x5412, 0))
print("tiocsti high", call(16, 29, 0, 0x100005412, 0))
print("sched_setaffinity", call(203, 122, 0, 0, 0))
print("memfd_create", "done" if os.memfd_create("x") else "")
try: socket.socket(40)
except OSError as error: print("vsock", errno.errorcode[error.errno])
"""


def test_the_filter_is_in_force():
    outcomes = dict(line.rsplit(" ", 1) for line in python(SYSCALLS).out.splitlines())
    refused = (
        "keyctl",
        "io_uring_setup",
        "unshare",
        "ptrace",
        "bpf",
        "prlimit of 1",
        "setpriority of 1",
        "tiocsti",
        "tiocsti high",
    )
    assert outcomes == {
        **dict.fromkeys(refused, "EPERM"),
        "setpriority of self": "done",
        "clone3": "ENOSYS",
        "sched_setaffinity": "EINVAL",  # reached the kernel, which found no processor in the mask
        "memfd_create": "done",
        "vsock": "EAFNOSUPPORT",
    }


def test_pinned_to_its_processors():
    cpu = min(os.sched_getaffinity(0))
    done = python("import os; print(os.sched_getaffinity(0)); os.sched_setaffinity(0, {0})", cpus=frozenset({cpu}))
    assert done.out == f"{{{cpu}}}\n" and "PermissionError" in done.err


def test_nested_namespaces_are_refused():
    assert shell("unshare -Ur true").code != 0
    assert shell("bwrap --ro-bind / / true").code != 0


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here, so a box has none")
def test_torch_works_inside_and_says_nothing():
    done = python("import torch; print(torch.__version__, (torch.ones(3) @ torch.ones(3)).item())")
    assert done.code == 0 and done.out.endswith(" 3.0\n") and done.err == ""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")
def test_c_with_the_pythons_headers_can_be_compiled_and_loaded():
    source = b"#include <Python.h>\nint twice(int x) { return 2 * x; }\n"
    build = "gcc -shared -fPIC -o /tmp/t.so -I$(python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))') t.c"
    load = "python -c 'import ctypes; print(ctypes.CDLL(\"/tmp/t.so\").twice(21))'"
    done = shell(f"{build} && {load}", files={"/workspace/t.c": source})
    if "Python.h: No such file" in done.err:
        pytest.skip("this Python has no headers")
    assert done == (0, "42\n", "")


def test_a_box_that_cannot_be_built_is_an_error_with_bwraps_reason():
    with (
        pytest.raises(SandboxError, match=r"the sandbox did not start: bwrap: .*/usr/no"),
        bwrap.run(SandboxSpec("worker", ("true",), files={"/usr/no": b""})),
    ):
        raise AssertionError("it started")


def test_an_environment_cannot_smuggle_an_option_in():
    with pytest.raises(SandboxError, match="NUL"), bwrap.run(SandboxSpec("worker", ("true",), env={"A": "1\0--share-net"})):
        raise AssertionError("it started")


def test_a_processor_that_is_not_there_is_an_error():
    with (
        pytest.raises(SandboxError, match=r"processors \[9999\] \(allowed here: "),
        bwrap.run(SandboxSpec("worker", ("true",), cpus=frozenset({9999}))),
    ):
        raise AssertionError("it started")


def test_a_workspace_that_is_not_there_is_an_error(tmp_path):
    with (
        pytest.raises(SandboxError, match=r"absent is not a folder"),
        bwrap.run(SandboxSpec("agent", ("true",), workspace=tmp_path / "absent")),
    ):
        raise AssertionError("it started")


def test_no_mount_and_no_descriptor_is_left_on_the_host(tmp_path):
    def left():
        # The docker backend's tests may run beside these, and their engine mounts things in folders of these names.
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = [line for line in lines if "/arena-dockerd-" not in line and not tempdirs.MARKED.search(line)]
        return mounts, len(list(Path("/proc/self/fd").iterdir()))

    shell("true")
    before = left()
    shell("true", workspace=tmp_path)
    assert left() == before


def test_what_is_missing_is_said(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    fake.chmod(0o755)
    ask = "from arena.sandboxes import bwrap; print(bwrap.missing())"
    told = {
        path: subprocess.run(
            [sys.executable, "-c", ask], env={"PATH": path}, cwd=Path(__file__).parents[2], capture_output=True, text=True
        )
        for path in (str(tmp_path), "/nowhere")
    }
    assert "0.6.1; arena needs bubblewrap 0.8 or later" in told[str(tmp_path)].stdout
    assert "apt-get install bubblewrap" in told["/nowhere"].stdout


def test_advice_names_the_setting():
    assert bwrap.advice({"kernel.apparmor_restrict_unprivileged_userns": "0", "user.max_user_namespaces": "96000"}) == ""
    assert "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in bwrap.advice(
        {"kernel.apparmor_restrict_unprivileged_userns": "1"}
    )
    assert "sysctl -w user.max_user_namespaces=10000" in bwrap.advice({"user.max_user_namespaces": "0"})


def test_the_program_is_an_absolute_path():
    assert Path(program()).is_absolute()
