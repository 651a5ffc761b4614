"""Limits, ends, and freezing of real boxes."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits, LostFiles, SandboxSpec, bwrap, workspace_mount
from arena.sandboxes.limits import counts_by_namespace
from arena.sandboxes.running import number_of
from arena.sandboxes.watchdog import resident

REASON = bwrap.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
ROOT = Path(__file__).parents[2]
TOKEN_FOUND_S = 5.0


@contextmanager
def running(*command, **fields):
    """A box whose command has printed its first line."""
    with bwrap.run(SandboxSpec(**{"kind": "worker", "command": command, **fields})) as box:
        assert box.stdout.readline() == b"ready\n"
        yield box


def token():
    """An argument for `sleep` that no other process of the machine has."""
    return f"{random.randrange(10**6, 10**7)}.{os.getpid()}"


def alive(mark):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def until(count, mark):
    """Wait until so many processes with this mark exist."""
    deadline = time.monotonic() + TOKEN_FOUND_S
    while len(alive(mark)) != count:
        assert time.monotonic() < deadline, f"{len(alive(mark))} processes instead of {count}"
        time.sleep(0.01)


STUBBORN = (
    "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; (sleep {0} &) ; sleep {0}' &) ; sleep {0} & echo ready; wait; sleep {0}"
)


@pytest.mark.timing
def test_kill_ends_daemons_that_ignore_everything_and_is_quick():
    mark = token()
    with running("sh", "-c", STUBBORN.format(mark)) as box:
        until(7, mark)  # bwrap, process 1 and both shells have it in their arguments, and three sleeps
        began = time.monotonic()
        box.kill()
        assert time.monotonic() - began < 0.25
        assert alive(mark) == []
        assert box.wait() == 137
        box.kill()  # once more does nothing


def test_leaving_the_block_kills_and_an_error_passes_through():
    mark = token()
    with pytest.raises(ZeroDivisionError), running("sh", "-c", STUBBORN.format(mark)):
        _ = 1 / 0
    assert alive(mark) == []


def test_what_the_command_leaves_behind_ends_with_it():
    mark = token()
    with bwrap.run(SandboxSpec("worker", ("sh", "-c", f"setsid sleep {mark} & exit 5"))) as box:
        assert box.wait(10) == 5
        assert alive(mark) == []


def test_wait_gives_up_at_its_time():
    with running("sh", "-c", "echo ready; sleep 60") as box:
        began = time.monotonic()
        assert box.wait(0.2) is None
        assert 0.2 <= time.monotonic() - began < 0.5
        assert box.wait(0) is None


def test_terminate_lets_the_command_finish_its_work():
    script = "trap 'sleep 0.3; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    with running("sh", "-c", script) as box:
        box.terminate()
        assert box.wait(10) == 9
        assert box.stdout.read() == b"saved\n"
        box.terminate()  # nobody is there any more


def test_kill_from_another_thread_while_waiting():
    with running("sh", "-c", "echo ready; sleep 60") as box:
        threading.Timer(0.1, box.kill).start()
        assert box.wait(10) == 137


@pytest.mark.timing
def test_a_flood_that_nobody_reads_does_not_hold_up_the_end():
    with running("sh", "-c", "echo ready; yes | cat >&2 & yes") as box:
        time.sleep(0.1)
        began = time.monotonic()
        box.kill()
        assert time.monotonic() - began < 0.25


def arena(command, before=""):
    """A process that starts a box, says `up` when it runs, and waits."""
    script = (
        "import sys, time\n"
        "from arena.system import process\n"
        "from arena.sandboxes import SandboxSpec, bwrap, cgroup\n"
        f"{before}\n"
        "with bwrap.run(SandboxSpec('worker', ('sh', '-c', sys.argv[1]))) as box:\n"
        "    box.stdout.readline(); print('up', flush=True); time.sleep(60)\n"
    )
    return subprocess.Popen([sys.executable, "-c", script, command], cwd=ROOT, stdout=subprocess.PIPE)


def test_the_box_ends_with_arena():
    mark = token()
    with arena(STUBBORN.format(mark)) as starter:
        assert starter.stdout.readline() == b"up\n"
        starter.kill()
        starter.wait()
        until(0, mark)


TELL = """
cgroup.home()  # starts a process of its own
start = process.start
def tell(*words, **named):
    started = start(*words, **named)
    print(started.pid, flush=True)
    return started
process.start = tell
"""


def test_arena_killed_while_bwrap_forks_leaves_nothing():
    """bwrap's child waits for a word from bwrap: were that killed along with arena, the child would wait for ever."""
    mark = token()
    with arena(f"sleep {mark}", before=TELL) as starter:
        bwrap_pid = int(starter.stdout.readline())
        children = Path(f"/proc/{bwrap_pid}/task/{bwrap_pid}/children")
        while not children.read_text():
            continue
        os.kill(bwrap_pid, signal.SIGSTOP)  # in the very moment
        try:
            starter.kill()
            starter.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(bwrap_pid, signal.SIGCONT)
        until(0, mark)


def test_a_box_whose_bwrap_was_killed_is_still_ours():
    mark = token()
    with running("sh", "-c", STUBBORN.format(mark)) as box:
        os.kill(box._bwrap.pid, signal.SIGKILL)
        assert box.wait(0.1) is None
        box.kill()
        assert box.wait() == 137
        assert alive(mark) == []


def test_largest_file_is_bounded():
    limits = Limits(file_bytes=MIB)
    with bwrap.run(
        SandboxSpec("worker", ("sh", "-c", "head -c 3000000 /dev/zero > /tmp/x; stat -c %s /tmp/x"), limits=limits)
    ) as box:
        assert box.stdout.read() == b"1048576\n"
        assert box.limits["files"] == "RLIMIT_FSIZE 1 MiB"


@pytest.mark.parametrize(("place", "field"), [("/tmp", "tmp_bytes"), ("/home/agent", "home_bytes"), ("/dev/shm", "shm_bytes")])
def test_private_memory_is_bounded(place, field):
    command = ("sh", "-c", f"head -c 9000000 /dev/zero > {place}/x; stat -c %s {place}/x")
    with bwrap.run(SandboxSpec("worker", command, limits=Limits(**{field: 2 * MIB}))) as box:
        assert box.stdout.read() == b"2097152\n"


def test_home_holds_what_it_is_given_and_the_command_may_replace_it():
    files = {".tool/config.toml": b"a = 1\n", "plain": b"x"}
    look = "cd $HOME; cat plain .tool/config.toml; cd .tool && echo b >> config.toml && mv config.toml new && stat -c %a-%u new"
    with bwrap.run(SandboxSpec("agent", ("sh", "-c", look), home=files)) as box:
        assert box.stdout.read() == b"xa = 1\n600-1000\n"
        assert box.wait() == 0


def test_a_bound_folder_is_read_only_and_comes_first_on_path(tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "ls"
    tool.write_text("#!/bin/sh\necho own\n")
    tool.chmod(0o755)
    tmp_path.chmod(0o755)
    box = SandboxSpec("agent", ("sh", "-c", "ls; touch /opt/cli/bin/new"), binds={"/opt/cli": tmp_path}, path=("/opt/cli/bin",))
    with bwrap.run(box) as running:
        assert running.stdout.read() == b"own\n"
        assert b"Read-only file system" in running.stderr.read()


def test_open_files_are_bounded():
    with bwrap.run(
        SandboxSpec("worker", ("sh", "-c", "ulimit -n; ulimit -c; ulimit -n 5000"), limits=Limits(open_files=300))
    ) as box:
        assert box.stdout.read() == b"300\n0\n" and box.wait() != 0


FORKS = """
import os, time
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="RLIMIT_NPROC needs a user of the box's own, which only root can give")
def test_a_fork_storm_stops():
    with bwrap.run(SandboxSpec("worker", ("python", "-c", FORKS), limits=Limits(processes=64))) as box:
        made, why = box.stdout.read().decode().split(" ", 1)
        assert 50 <= int(made) < 64 and why == "Resource temporarily unavailable\n"
        assert " 64" in box.limits["processes"]


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a workspace a file system of its own")
BOUNDED = Limits(workspace_bytes=8 * MIB, workspace_files=50)


@root
def test_a_workspace_in_memory_is_bounded_and_brought_home(tmp_path):
    (tmp_path / "given").write_text("from arena")
    (tmp_path / "given").chmod(0o640)
    script = (
        "cat given; echo new > given; echo kept > solution.py; mkdir -p a/b; echo deep > a/b/c; ln -s /etc/shadow link;"
        "mkfifo pipe; for n in $(seq 99); do echo -n > f$n; done 2>/dev/null; ls -A | wc -l;"
        "head -c 99999999 /dev/zero > f1; stat -c %s f1;"
        "grep -c ' /workspace ' /proc/self/mountinfo; grep -F " + str(tmp_path) + " /proc/self/mountinfo; chmod 4755 solution.py"
    )
    with bwrap.run(SandboxSpec("agent", ("sh", "-c", script), workspace=tmp_path, limits=BOUNDED)) as box:
        words = box.stdout.read().decode().split()
        assert box.wait(10) == 0, box.stderr.read()
        assert (box.workspace / "solution.py").read_text() == "kept\n"
        assert (tmp_path / "given").read_text() == "from arena"
        assert box.limits["workspace"] == "tmpfs 8 MiB, 50 files"
    assert words[:2] == ["from", "arena48"]  # and a/b, a/b/c: 50 in all
    assert 8 * MIB - 40 * 4096 < int(words[2]) <= 8 * MIB and words[3:] == ["1"]
    assert (tmp_path / "given").read_text() == "new\n" and (tmp_path / "a/b/c").read_text() == "deep\n"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "solution.py").stat().st_mode & 0o7777 == 0o755 and (tmp_path / "solution.py").stat().st_uid == 0
    assert box.lost == LostFiles()


@root
def test_what_cannot_be_kept_is_named(tmp_path):
    script = "import socket; socket.socket(socket.AF_UNIX).bind('a\\nb'); open('c', 'w').write('x')"
    with bwrap.run(SandboxSpec("agent", ("python", "-c", script), workspace=tmp_path, limits=BOUNDED)) as box:
        assert box.wait(10) == 0, box.stderr.read()
    assert box.lost == LostFiles(1, ("a\nb (a socket or a device)",))
    assert (tmp_path / "c").read_text() == "x"


@root
def test_a_workspace_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 9 * MIB)
    with pytest.raises(SandboxError, match="do not fit into a workspace of 8 MiB, 50 files: large"):
        bwrap.run(SandboxSpec("agent", ("true",), workspace=tmp_path, limits=BOUNDED)).__enter__()
    assert (tmp_path / "large").stat().st_size == 9 * MIB


@root
def test_a_disk_without_room_for_the_workspace_is_refused_before_the_start(tmp_path):
    needed = Limits(workspace_bytes=1 << 60)
    with (
        pytest.raises(
            SandboxError, match=rf"^\d+ MiB are free on the disk of {re.escape(str(tmp_path))}, and {(1 << 40) + 1024} "
        ),
        bwrap.run(SandboxSpec("agent", ("touch", "started"), workspace=tmp_path, limits=needed)),
    ):
        raise AssertionError("it started")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def disk():
    """A folder on a disk of 64 MiB, less than what is left free there when a workspace is brought home."""
    mount = workspace_mount.detached(Limits(workspace_bytes=64 * MIB))
    folder = Path(f"/proc/{os.getpid()}/fd/{mount}/home")
    folder.mkdir()
    yield folder
    os.close(mount)


@root
def test_a_full_disk_still_takes_the_small_files(disk):
    mount = workspace_mount.detached(BOUNDED)
    shelf = workspace_mount.Shelf(disk, mount, BOUNDED)
    shelf.path.mkdir()
    (shelf.path / "solution.py").write_text("x = 1\n")
    (shelf.path / "large").write_bytes(bytes(range(256)) * (3 * MIB // 256))
    assert shelf.bring_home() == LostFiles(1, ("large (more than what may be kept)",))
    os.close(mount)
    assert (disk / "solution.py").read_text() == "x = 1\n" and not (disk / "large").exists()


WATCHED = """
import sys
from pathlib import Path
from arena.sandboxes import SandboxSpec, Limits, bwrap
work = Path(sys.argv[1])
limits = Limits(workspace_bytes=8 << 20, workspace_files=50)
for program in (
    "import os, time\\nos.mkdir('d'); open('d/x', 'wb').write(bytes(9 << 20)); os.chmod('d', 0o300); time.sleep(60)",
    "import os, time\\nfile = open('x', 'wb'); os.unlink('x'); os.posix_fallocate(file.fileno(), 0, 1100 << 20); time.sleep(60)",
):
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), workspace=work, limits=limits)) as box:
        code = box.wait(20)
    print(code, *box.exceeded)
    for path in work.iterdir():
        path.chmod(0o700)
        (path / "x").unlink()
        path.rmdir()
"""


def test_a_watched_workspace_hides_nothing_that_is_large(as_a_plain_user):
    hidden, nameless = as_a_plain_user(WATCHED).stdout.splitlines()
    assert re.fullmatch(r"137 its workspace could not be measured: du: cannot read directory '.*/d': Permission denied", hidden)
    assert re.fullmatch(r"137 the disk of its workspace lost 11\d{8} bytes, and the workspace may have 8388608", nameless)


def test_a_watched_workspace_in_motion_is_measured(tmp_path):
    for number in range(200):
        (tmp_path / f"{number}" / "a").mkdir(parents=True)
    program = (
        "import os, time\nend = time.monotonic() + 2\nprint('ready', flush=True)\nwhile time.monotonic() < end:\n"
        "    for n in range(200): os.rename(f'{n}', f'x{n}'); os.rename(f'x{n}', f'{n}')"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE) as mover:
        mover.stdout.readline()
        while mover.poll() is None:
            assert workspace_mount.over(tmp_path, Limits(workspace_bytes=1 << 40, workspace_files=1 << 20)) == ""


@pytest.mark.parametrize(
    ("times", "said"), [(1, ""), (3, "its workspace could not be measured: its folders are moved all the time")]
)
def test_a_measurement_that_aborts_is_made_again(times, said, tmp_path, monkeypatch):
    """GNU du 9.1 fails an assertion of its own, once in a while, where folders are moved under it."""
    aborting, tries = tmp_path / "du", tmp_path / "tries"
    aborts = "{ echo 'du: src/du.c:638: process_file: Assertion failed.' >&2; kill -ABRT $$; }"
    aborting.write_text(
        f'#!/bin/sh\necho >> {tries}\n[ $(wc -l < {tries}) -gt {times} ] || {aborts}\nexec {shutil.which("du")} "$@"\n'
    )
    aborting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert workspace_mount.over(tmp_path, Limits(workspace_bytes=1 << 40)) == said


@root
def test_nothing_of_a_workspace_in_memory_is_mounted_on_the_host(tmp_path):
    before = set(Path("/proc/self/mountinfo").read_text().splitlines())
    with bwrap.run(
        SandboxSpec("agent", ("sh", "-c", "echo x > x; echo ready; sleep 60"), workspace=tmp_path, limits=BOUNDED)
    ) as box:
        box.stdout.readline()
        assert not [line for line in set(Path("/proc/self/mountinfo").read_text().splitlines()) - before if "tmpfs" in line]
        assert not list(tmp_path.iterdir())


def test_no_zombie_stays_when_bwrap_is_killed():
    for _ in range(3):
        with running("sh", "-c", "echo ready; sleep 60") as box:
            init = number_of(box._init)
            os.kill(box._bwrap.pid, signal.SIGKILL)
            box.kill()
            assert not Path(f"/proc/{init}").exists()


@pytest.mark.timing
def test_a_fork_bomb_is_ended_quickly():
    program = "import os\nprint('ready', flush=True)\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    with running("python", "-c", program, kind="agent", limits=Limits(processes=256)) as box:
        time.sleep(1)
        began = time.monotonic()
        box.kill()
        assert time.monotonic() - began < 0.5  # 0.05 s measured here, 1 to 3 s before process 1 was let past the others


SPIN = "sh -c 'while :; do :; done'"
BUSY = f"{SPIN} & {SPIN} & echo ready; {SPIN}"


def test_freeze_stops_everybody_and_thaw_lets_go():
    with running("sh", "-c", BUSY) as box:
        stopped = box.freeze()
        time.sleep(0.3)
        assert stopped > 0 and box.cpu_ns() == stopped
        box.thaw()
        time.sleep(0.2)
        assert box.cpu_ns() > stopped + 50_000_000
        again = box.freeze()
        assert box.cpu_ns() == again > stopped


def test_freeze_stops_threads_and_processes_in_the_middle_of_forks():
    text = (
        "import subprocess, threading, time\n"
        "def spin():\n    while True: sum(range(1000))\n"
        "def fork():\n    while True: subprocess.run(['true'])\n"
        "for work in (spin, spin, fork, fork): threading.Thread(target=work).start()\n"
        "print('ready', flush=True)\n"
    )
    with running("python", "-c", text) as box:
        for _ in range(10):
            stopped = box.freeze()
            time.sleep(0.03)
            assert box.cpu_ns() == stopped
            box.thaw()
            time.sleep(0.03)


def test_a_frozen_box_can_be_killed_and_terminated():
    mark = token()
    with running("sh", "-c", STUBBORN.format(mark)) as box:
        box.freeze()
        box.kill()
        assert alive(mark) == []
    with running("sh", "-c", "echo ready; exec sleep 60") as box:
        box.freeze()
        box.terminate()
        assert box.wait(0.1) is None
        box.thaw()
        assert box.wait(10) == 143


# A process cannot run while it is stopped, but it can leave a timer that continues or kills it.
TIMER = """
import ctypes, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def timer(number, seconds):
    event = struct.pack("=Qii", 0, number, 0) + bytes(48)   # struct sigevent, SIGEV_SIGNAL
    made = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(made)) == 0
    arm(made, seconds)
    return made
def arm(made, seconds):
    whole, rest = int(seconds), int(seconds % 1 * 1e9)
    assert libc.timer_settime(made, 0, struct.pack("=4q", whole, rest, whole, rest), None) == 0
"""
CHEATS = {
    "spins when continued by its timer": "timer(signal.SIGCONT, 0.1)\nprint('ready', flush=True)\nwhile True: pass",
    "runs a moment when continued, then stops itself": (
        "def again(*_):\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "signal.signal(signal.SIGCONT, again)\ntimer(signal.SIGCONT, 0.1)\nprint('ready', flush=True)\nwhile True: time.sleep(1)"
    ),
    "vanishes": ("if os.fork() == 0:\n    timer(signal.SIGKILL, 0.2)\n    print('ready', flush=True)\nwhile True: time.sleep(1)"),
    "dies, so that the kernel continues the group it leaves orphaned": (
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "        while True: pass\n"
        "    timer(signal.SIGKILL, 0.2)\n    print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_who_runs_while_frozen_is_seen(cheat):
    with running("python", "-c", TIMER + cheat) as box:
        stopped = box.freeze()
        time.sleep(0.4)
        assert box.cpu_ns() > stopped


AMID_A_CROWD = (
    TIMER
    + """
import threading
if os.fork():
    threading.stack_size(65536)
    for _ in range(300): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    os.write(1, b"ready\\n")
    time.sleep(1e6)
signal.signal(signal.SIGCONT, lambda *_: None)
made = timer(signal.SIGCONT, 0.01)
while True:
    os.kill(os.getpid(), signal.SIGSTOP)
    arm(made, 0.01)  # a SIGSTOP that meets the SIGCONT takes it away, and with it the timer's next ones
    began = time.monotonic()
    while time.monotonic() < began + 0.001: pass
    os.write(1, b"%.6f %.6f\\n" % (began, time.monotonic()))
"""
)


@pytest.mark.slow
def test_who_runs_while_a_crowd_is_looked_at_is_seen():
    """A millisecond now and then between the looks at the clocks and at 300 threads: 8 to 52 of these
    400 were missed before the looks changed places."""
    asked = []
    with running("python", "-c", AMID_A_CROWD, cpus=frozenset({max(os.sched_getaffinity(0))})) as box:
        time.sleep(0.5)
        for _ in range(400):
            stopped, frozen = box.freeze(), time.monotonic()
            time.sleep(random.uniform(0, 0.02))
            ran = box.cpu_ns() - stopped
            asked.append((frozen, time.monotonic(), ran))
            box.thaw()
            time.sleep(0.004)
        box.kill()
        runs = [tuple(map(float, line.split())) for line in box.stdout.read().splitlines() if line.count(b" ") == 1]
    missed = [ran for frozen, answered, ran in asked if not ran and any(frozen < a and b < answered for a, b in runs)]
    assert sum(bool(ran) for *_, ran in asked) > 40, "it hardly ever ran"
    assert len(missed) <= 3


INTO_THE_GROUP_OF_PROCESS_1 = """
import os, sys
for what in (lambda: os.setpgid(0, 1), lambda: os.setpriority(os.PRIO_PGRP, 0, 19), lambda: os.setpriority(os.PRIO_PGRP, 1, 19)):
    try:
        what()
    except PermissionError:
        print("refused")
print(os.getsid(0) == os.getpgid(0) == os.getpid(), os.getsid(1), os.getpriority(os.PRIO_PROCESS, 1), flush=True)
"""


def test_the_command_has_a_session_of_its_own_and_cannot_lower_process_1():
    with bwrap.run(SandboxSpec("worker", ("python", "-c", INTO_THE_GROUP_OF_PROCESS_1))) as box:
        words = box.stdout.read().decode().split()
        assert words[:4] == ["refused"] * 3 + ["True"] and words[4] in "01", box.stderr.read()
        assert words[5] == str(os.getpriority(os.PRIO_PROCESS, 0))


@pytest.mark.parametrize("turn", range(5))
def test_terminate_at_once_finds_the_command(turn):
    with bwrap.run(SandboxSpec("worker", ("sleep", "60"))) as box:
        box.terminate()
        assert box.wait(10) == 128 + signal.SIGTERM


SPREAD = """
import os, sys, time
if sys.argv[1] == "memfds":
    kept = [os.memfd_create(str(number)) for number in range(8)]
else:
    kept = [os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY) for number in range(8)]
    for number in range(8): os.unlink(f"/tmp/{number}")
for fd in kept: os.write(fd, bytes(8 << 20))
print("ready", flush=True); time.sleep(60)
"""


@pytest.mark.parametrize("where", ["memfds", "tmp"])
def test_the_watcher_of_memory_sees_what_no_process_maps(where):
    with running("python", "-c", SPREAD, where) as box:
        assert re.search(r"held (6[4-9]|[789]\d) MiB of memory, more than 60", resident(box.pid, 60 * MIB))
        assert resident(box.pid, 120 * MIB) == ""


def test_an_honest_process_with_timers_is_not_accused():
    text = TIMER + (
        "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.001)"
    )
    with running("python", "-c", text) as box:
        for _ in range(5):
            stopped = box.freeze()
            time.sleep(0.1)
            assert box.cpu_ns() == stopped
            box.thaw()


def test_orders_to_a_box_that_has_ended():
    with bwrap.run(SandboxSpec("worker", ("true",))) as box:
        box.wait(10)
        with pytest.raises(SandboxError, match="has ended"):
            box.freeze()


PLAIN = """
import sys
from pathlib import Path
from arena.sandboxes import SandboxSpec, Limits, bwrap
assert bwrap.missing() is None, bwrap.missing()
work = Path(sys.argv[1])
look = "id -u; echo new > made; grep CapEff /proc/self/status; ls /etc/shadow /root 2>&1 | wc -l; ls /proc/1/fd"
with bwrap.run(SandboxSpec("agent", ("sh", "-c", look), workspace=work)) as box:
    print(box.stdout.read().decode().split(), box.wait(10), (work / "made").read_text().strip())
with bwrap.run(SandboxSpec("worker", ("sh", "-c", "trap '' TERM; (setsid sleep 60 &); echo ready; while :; do :; done"))) as box:
    box.stdout.readline()
    stopped = box.freeze()
    print(box.cpu_ns() == stopped)
    box.thaw()
    box.kill()
    print(box.wait())
limits = Limits(memory_bytes=128 << 20, workspace_bytes=8 << 20, workspace_files=50, processes=32)
for program in (
    "import os, time\\nfor n in range(99): os.fork() or time.sleep(60)",
    "held = []\\nwhile True: held.append(bytearray(b'x') * (4 << 20))",
    "import time\\nopen('x', 'wb').write(bytes(9 << 20)); time.sleep(60)",
    "import time\\nfor n in range(99): open(str(n), 'w')\\ntime.sleep(60)",
):
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), workspace=work, limits=limits)) as box:
        code = box.wait(20)
        said = box.stderr.read().decode().strip().rpartition("\\n")[2]
    print(code, said, *box.exceeded)
    for path in work.iterdir():
        path.unlink()
print(box.limits.get("processes"), box.limits["memory"], box.limits["workspace"], sep="; ")
"""


@pytest.fixture
def as_a_plain_user():
    """Runs a program with a folder that is that user's, with the system's own Python.

    The one that runs this may lie in a home that a plain user cannot enter.
    """
    system = "/usr/bin/python3"
    if os.geteuid() != 0:
        pytest.skip("the other tests run as a plain user already")
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", system, "-c"]
    try:
        probe = "import sys, arena.sandboxes.bwrap; assert sys.version_info >= (3, 11)"
        able = subprocess.run([*plain, probe], cwd=ROOT, capture_output=True).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip(f"needs setpriv and {system} of 3.11 or later in a place that every user may enter")
    work = Path("/tmp", f"arena-plain-{token()}")
    work.mkdir()
    os.chown(work, 65534, 65534)

    def run(program):
        environment = os.environ | {"HOME": str(work)}
        return subprocess.run([*plain, program, str(work)], cwd=ROOT, env=environment, capture_output=True, text=True)

    yield run
    subprocess.run(["rm", "-rf", str(work)])


def test_a_plain_user_has_the_same_wall(as_a_plain_user):
    done = as_a_plain_user(PLAIN)
    said = done.stdout.splitlines()
    assert said[:3] == ["['1000', 'CapEff:', '0000000000000000', '2'] 2 new", "True", "137"], done.stderr
    watched = ["RLIMIT_NPROC 32 (own user namespace)", "ended above 128 MiB held by processes", "ended above 8 MiB, 50 files"]
    if counts_by_namespace(os.uname().release):
        assert said[3] == "1 BlockingIOError: [Errno 11] Resource temporarily unavailable"
        assert said[-1] == "; ".join(watched)
    assert re.fullmatch(r"137  its processes held \d+ MiB of memory, more than 128", said[4])
    assert re.fullmatch(r"137  its workspace held \d+ bytes, more than 8388608", said[5])
    assert said[6] == "137  its workspace held 100 files, more than 50"
