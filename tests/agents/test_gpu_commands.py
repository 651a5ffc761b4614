"""`gpu` in real sandboxes on this CPU: only the device is absent. Leases, their ends, and what waiting does to the clock."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import needs_sandbox, until
from records import cell
from sessions import DONE, play, python

from arena.agents.gpu_commands import GpuCommands, Lease, OwnTurns, share
from arena.errors import SandboxError
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.sandboxes import Limits
from arena.sandboxes.programs import no_sockets
from arena.system import tempdirs

pytestmark = needs_sandbox
RUN = """import subprocess, sys, time, os, json
def gpu(*words, **given):
    return subprocess.run(['gpu', *words], capture_output=True, text=True, **given)
"""


@pytest.fixture
def run(tmp_path: Path):
    with run_folder.create(cell(), manifest={}, root=tmp_path / "runs") as made:
        yield made


class Queue:
    """Turns that are had after some time, and counted."""

    def __init__(self, wait_s: float = 0.0, lease_s: float = 30.0) -> None:
        self.wait_s, self.lease_s = wait_s, lease_s
        self.asked: list[float] = []
        self.given = 0
        self.back: list[float] = []
        self.holders = 0

    def take(self, left: Callable[[], bool], told: Callable[[int], None]) -> Lease | None:
        began_s = time.monotonic()
        self.asked.append(began_s)
        while time.monotonic() - began_s < self.wait_s:
            told(2)
            if left():
                return None
            time.sleep(0.02)
        left()
        assert self.holders == 0, "one lease a session"
        self.holders += 1
        self.given += 1
        return Lease(None, self.lease_s, lambda: False)

    def give_back(self) -> None:
        self.holders -= 1
        self.back.append(time.monotonic())


def test_a_command_runs_beside_the_session_with_its_workspace(run: RunFolder) -> None:
    program = RUN + (
        "os.makedirs('below'); open('below/in', 'w').write('from the agent\\n'); open('/tmp/own', 'w').close()\n"
        "done = gpu('sh', '-c', 'cat in - >out; echo $NOTE $GPU_TURN; ls /tmp /proc | grep -c own; echo bad >&2; exit 7',"
        " cwd='below', env={**os.environ, 'NOTE': 'a b'}, input='piped')\n"
        "open('seen', 'w').write(json.dumps([done.returncode, done.stdout, done.stderr]))\n"
        "open('solution.py', 'w').write(open('below/out').read())\n" + DONE
    )
    queue = Queue()
    played = play(python(program), run, leased=queue)
    assert played.agent_status == "complete", played.message
    assert json.loads((run.work / "seen").read_text()) == [7, "a b 1\n0\n", "bad\n"]
    assert (run.work / "solution.py").read_text() == "from the agent\npiped"
    assert (played.leases, queue.given, len(queue.back)) == (1, 1, 1)
    assert played.leased_s > 0 and played.waited_s == pytest.approx(0, abs=0.5)


def test_a_lease_that_is_held_for_ever_is_cut(run: RunFolder) -> None:
    program = RUN + (
        "done = gpu('sh', '-c', 'trap : TERM; setsid sleep 600 & echo begun; while :; do sleep 600; done')\n"
        "open('seen', 'w').write(json.dumps([done.returncode, done.stdout, done.stderr]))\n"
        "open('again', 'w').write(gpu('echo', 'next').stdout)\n" + DONE
    )
    queue = Queue(lease_s=1.0)
    played = play(python(program), run, leased=queue)
    code, out, err = json.loads((run.work / "seen").read_text())
    assert (code, out) == (124, "begun\n") and "killed: a turn on the GPU is 1 s at most" in err
    assert (run.work / "again").read_text() == "next\n"
    assert played.leases == 2 and played.leased_s < 10
    assert "gpu_cut" in [event["kind"] for event in run_folder.read_events(run)]


def test_the_death_of_a_client_frees_its_lease(run: RunFolder) -> None:
    program = RUN + (
        "held = subprocess.Popen(['gpu', 'sh', '-c', 'touch held; sleep 600'])\n"
        "while not os.path.exists('held'): time.sleep(0.01)\n"
        "held.kill(); open('killed_at', 'w').write(str(time.monotonic()))\n"
        "gpu('true')\n" + DONE
    )
    queue = Queue()
    play(python(program), run, leased=queue)
    freed_s = queue.back[0] - float((run.work / "killed_at").read_text())
    print(f"a lease is free {freed_s:.3f} s after kill -9 of its client")
    assert queue.given == 2 and freed_s < 1.0


HANDOVER = """import socket
try:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind('/workspace/door')
    print('made')
except OSError as error:
    print(type(error).__name__)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind('/tmp/door')
try:
    import os
    os.rename('/tmp/door', '/workspace/door')
except OSError as error:
    print(type(error).__name__)
os.makedirs('deep/down', exist_ok=True)
open('deep/down/file', 'w').close()
os.rename('deep/down/file', 'file')
os.link('file', 'deep/link')
os.remove('deep/link')
print('moved')
"""


def test_a_command_cannot_hand_its_gpu_to_the_session(run: RunFolder) -> None:
    """The attack: a socket in the shared workspace, over which the command sends the GPU's open files to the session."""
    assert no_sockets.available(), "this kernel has no Landlock"
    program = RUN + (
        f"program = {HANDOVER!r}\nhere = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)\n"
        "open('seen', 'w').write(json.dumps([here.stdout.split(), gpu(sys.executable, '-c', program).stdout.split()]))\n" + DONE
    )
    played = play(python(program), run, leased=Queue())
    assert json.loads((run.work / "seen").read_text()) == [["PermissionError", "OSError", "moved"]] * 2
    assert "Landlock" not in played.message


def test_a_turn_comes_back_when_a_slow_death_is_over(run: RunFolder) -> None:
    dead, queue = threading.Event(), Queue(lease_s=0.1)

    def await_empty(limit_s: float) -> None:
        if not dead.wait(limit_s):
            raise SandboxError("was killed and is still not empty")

    commands = GpuCommands(queue, Limits(), lambda: False, run.event, await_empty=await_empty)
    with tempdirs.folder() as short, commands.serving(short / "gpu"):
        with asked(short / "gpu") as first:
            assert b'"exit": 125' in first.recv(4096), "its client is answered meanwhile"
        with asked(short / "gpu") as second:
            time.sleep(0.3)
            assert (queue.given, queue.back) == (1, []), "the GPU is nobody's"
            dead.set()
            assert b'"exit": 125' in second.recv(4096) and queue.given == 2
        until(lambda: len(queue.back) == 2, "the turns")
        dead.clear()
        with asked(short / "gpu") as third:
            assert b'"exit": 125' in third.recv(4096)
    assert len(queue.back) == 2, "a session that ends leaves it to the sweep, which is told of the end"


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: out of memory"), KeyError("a bug")])
def test_a_turn_that_fails_unexpectedly_ends(error: Exception) -> None:
    class Sick(Queue):
        def take(self, left: Callable[[], bool], told: Callable[[int], None]) -> Lease | None:
            super().take(left, told)
            self.give_back()
            raise error

    events: list[dict] = []
    commands = GpuCommands(Sick(), Limits(), lambda: False, lambda kind, **data: events.append(data))

    def two_clients() -> None:
        with tempdirs.folder() as short, commands.serving(short / "gpu"):
            for _ in range(2):
                with asked(short / "gpu") as client:
                    answers.append(client.recv(4096))

    answers: list[bytes] = []
    serving = threading.Thread(target=two_clients, daemon=True)
    serving.start()
    serving.join(5)
    assert not serving.is_alive(), "the session would never end"
    assert [b'"exit": 125' in answer for answer in answers] == [True, True]
    assert events == [{"message": str(error)}] * 2 * isinstance(error, RuntimeError)


@contextmanager
def asked(path: Path) -> Iterator[socket.socket]:
    """A client that has asked for a command, which cannot start: no session is there."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(json.dumps({"argv": ["true"], "cwd": "/", "env": {}, "stdin": ""}).encode() + b"\n")
        yield client


@pytest.mark.slow
def test_commands_have_their_turns_one_after_the_other(run: RunFolder) -> None:
    program = RUN + (
        "all = [subprocess.Popen(['gpu', 'sh', '-c', f'echo + >>log; sleep 0.2; echo - >>log']) for _ in range(4)]\n"
        "print([each.wait() for each in all])\n" + DONE
    )
    queue = Queue()
    play(python(program), run, leased=queue)
    assert (run.work / "log").read_text().split() == ["+", "-"] * 4
    assert queue.given == len(queue.back) == 4


def test_a_session_ends_with_its_commands(run: RunFolder) -> None:
    program = RUN + (
        "subprocess.Popen(['gpu', 'sh', '-c', 'while :; do echo late >solution.py; sleep 0.01; done'])\n"
        "while not os.path.exists('solution.py'): time.sleep(0.01)\n" + DONE
    )
    queue = Queue()
    play(python(program), run, leased=queue)
    text = (run.work / "solution.py").read_bytes()
    time.sleep(0.3)
    assert (run.work / "solution.py").read_bytes() == text and queue.holders == 0


@pytest.mark.slow
def test_waits_lengthen_the_session(run: RunFolder) -> None:
    program = RUN + "gpu('true')\nopen('after', 'w').close()\ntime.sleep(600)\n"
    queue = Queue(wait_s=1.5)
    played = play(python(program), run, leased=queue, budget_s=2.0)
    assert played.agent_status == "deadline"
    assert played.credit_s == pytest.approx(1.5, abs=0.4) and played.waited_s == pytest.approx(played.credit_s, abs=0.3)
    assert played.elapsed_s == pytest.approx(2.0 + played.credit_s, abs=0.5)
    assert (run.work / "after").exists()


@pytest.mark.slow
def test_to_ask_and_to_give_up_gains_nothing(run: RunFolder) -> None:
    """The attack: wait for ever in the background, never take the lease, and compute meanwhile."""
    program = RUN + (
        "while True:\n    asking = subprocess.Popen(['gpu', 'true'])\n    time.sleep(0.4)\n    asking.kill(); asking.wait()\n"
    )
    played = play(python(program), run, leased=Queue(wait_s=600), budget_s=2.0)
    assert (played.leases, played.credit_s, played.waited_s) == (0, 0.0, 0.0)
    assert played.elapsed_s < 3.0, "what is under way at the end adds at most its own wait"


HALF = b'{"argv": ["\\ud800"], "cwd": "/", "env": {}, "stdin": ""}\n'
"""A character that no system call can hold."""


@pytest.mark.parametrize(
    "sent", [b"\n", b"{}\n", b"[1]\n", b'{"argv": [], "cwd": "/", "env": {}, "stdin": ""}\n', HALF, b"x" * 70000]
)
def test_a_wrong_order_is_refused(run: RunFolder, sent: bytes) -> None:
    program = RUN + (
        f"import socket\nc = socket.create_connection(('127.0.0.1', 3129)); c.sendall({sent!r}); c.shutdown(1)\n"
        "open('seen', 'wb').write(c.makefile('rb').read())\n"
        "open('good', 'w').write(gpu('echo', 'good').stdout)\n" + DONE
    )
    played = play(python(program), run, leased=Queue())
    assert played.agent_status == "complete"
    assert b'"exit": 125' in (run.work / "seen").read_bytes() or sent == b"x" * 70000
    assert (run.work / "good").read_text() == "good\n"


@pytest.mark.slow
def test_the_kits_programs_run_in_their_turn(run: RunFolder) -> None:
    kit = Path(__file__).parents[2] / "problems" / "kit"
    for name in ("check.py", "benchmark.py"):
        (run.work / name).write_bytes((kit / name).read_bytes())
    assert "a turn lasts 120 s at most" in share(run.work, "Prompt.\n", 120.0)
    program = RUN + "print(subprocess.run([sys.executable, 'check.py', '--help']).returncode)\n" + DONE
    queue = Queue()
    play(python(program), run, leased=queue)
    assert queue.given == 1 and "usage: check.py" in (run.agent / "stdout.jsonl").read_text()


def test_a_session_alone_has_its_turn_at_once() -> None:
    lease = OwnTurns(3, 60).take(lambda: False, lambda _: None)
    assert lease and (lease.gpu, lease.lease_s, lease.over()) == (3, 60, False)
    assert threading.active_count() >= 1
