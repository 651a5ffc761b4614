"""From a sandbox's own 127.0.0.1 to a unix socket of the host: bytes, ends, floods, and what the command can do about it."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unix_server import echo, served

from arena.errors import SandboxError
from arena.sandboxes import Limits, SandboxSpec, bwrap

REASON = bwrap.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
PORT = 3128
MIB = 1 << 20

CLIENT = f"""
import hashlib, os, select, socket, sys, threading, time
def connect():
    link = socket.create_connection(("127.0.0.1", {PORT}), 20)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
def rest(link):
    found = bytearray()
    while piece := link.recv(1 << 16):
        found += piece
    return bytes(found)
"""


def rest(link: socket.socket) -> bytes:
    found = bytearray()
    while piece := link.recv(1 << 16):
        found += piece
    return bytes(found)


def output(program: str, path: Path, **fields) -> list[str]:
    """What a command with this bridge prints, when it ends well."""
    with bwrap.run(SandboxSpec("agent", ("python", "-c", CLIENT + program), bridges={PORT: path}, **fields)) as running:
        out, err = running.stdout.read().decode(), running.stderr.read().decode()
        assert (running.wait(30), err) == (0, "")
    return out.splitlines()


def test_ten_megabytes_each_way_at_once():
    ours, heard = os.urandom(10 * MIB), []

    def talk(link: socket.socket) -> None:
        sender = threading.Thread(target=lambda: link.sendall(ours))
        sender.start()
        heard.append(rest(link))
        sender.join()
        link.shutdown(socket.SHUT_WR)  # only now: the sandbox ends with its command, and with it what is still on the way

    program = f"""
theirs = os.urandom({10 * MIB})
link = connect()
def send(): link.sendall(theirs); link.shutdown(socket.SHUT_WR)
sender = threading.Thread(target=send); sender.start()
print(hashlib.sha256(rest(link)).hexdigest(), hashlib.sha256(theirs).hexdigest())
sender.join()
"""
    with served(talk) as path:
        (line,) = output(program, path)
    assert line.split() == [hashlib.sha256(data).hexdigest() for data in (ours, heard[0])]


def test_fifty_connections_at_once():
    program = """
links = [connect() for _ in range(50)]
for n, link in enumerate(links): link.sendall(b"%d " % n * 1000)
for link in links: link.shutdown(socket.SHUT_WR)
print(all(rest(link) == b"%d " % n * 1000 for n, link in reversed(list(enumerate(links)))))
"""
    with served(echo) as path:
        assert output(program, path) == ["True"]


def test_connections_beyond_the_room_wait_their_turn():
    """64 descriptors leave room for 16 connections; the others are served as those end."""
    program = """
links = [connect() for _ in range(40)]
for link in links: link.sendall(b"x")
time.sleep(0.2)
first = [link for link in links if select.select([link], [], [], 0)[0]]
for link in first: link.close()
print(len(first), sum(link not in first and link.recv(1) == b"x" and not link.close() for link in links))
"""
    with served(echo) as path:
        assert output(program, path, limits=Limits(open_files=64)) == ["16 24"]


def test_a_half_closed_stream_stays_half_open():
    def talk(link: socket.socket) -> None:
        link.sendall(b"first")
        link.shutdown(socket.SHUT_WR)
        heard.append(rest(link))

    def count(link: socket.socket) -> None:
        link.sendall(b"%d" % len(rest(link)))

    heard: list[bytes] = []
    with served(count) as path:
        assert output("link = connect(); link.sendall(b'y' * 70_000); link.shutdown(1); print(rest(link))", path) == ["b'70000'"]
    program = "link = connect(); print(rest(link), flush=True); link.sendall(b'later' * 20_000); link.close(); time.sleep(0.5)"
    with served(talk) as path:
        assert output(program, path) == ["b'first'"]
    assert heard == [b"later" * 20_000]


ANSWER = """
try:
    link = connect()
    link.sendall(b"hello")
    print(rest(link))
except OSError as error:
    print(error.strerror)
"""


def test_a_socket_without_a_server_resets():
    with served(echo) as path:
        copy = path.with_name("dead")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(copy))
        copy.chmod(0o666)
        assert output(ANSWER * 2, copy) == ["Connection reset by peer"] * 2


def test_a_dying_server_resets_and_the_next_client_is_served():
    seen: list[bytes] = []

    def talk(link: socket.socket) -> None:
        seen.append(link.recv(2))
        if len(seen) > 1:
            link.sendall(b"alive")

    with served(talk) as path:
        assert output(ANSWER * 2, path)[0] == "Connection reset by peer"
    assert seen == [b"he", b"he"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.write_text(""), "not a socket"),
        pytest.param(
            lambda path: bound(path, 0o600),
            "make it mode 0666",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="a plain user's sandboxes are that user's"),
        ),
    ],
    ids=["absent", "a file", "closed"],
)
def test_an_unusable_socket_is_an_error(make: Callable[[Path], object], why: str, tmp_path: Path):
    make(tmp_path / "s")
    with pytest.raises(SandboxError, match=why), bwrap.run(SandboxSpec("agent", ("true",), bridges={PORT: tmp_path / "s"})):
        raise AssertionError("it started")


def bound(path: Path, mode: int) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    path.chmod(mode)


FLOOD = """
link = connect(); link.setblocking(False)
sent = 0
while select.select([], [link], [], 1.0)[1]:
    sent += link.send(b"f" * (1 << 16))
print(sent, flush=True)
sys.stdin.read(); link.close(); time.sleep(5)
"""


def test_a_slow_reader_is_waited_for_and_process_1_answers():
    go, heard = threading.Event(), []

    def talk(link: socket.socket) -> None:
        go.wait(20)
        heard.append(len(rest(link)))

    with served(talk) as path, bwrap.run(SandboxSpec("agent", ("python", "-c", CLIENT + FLOOD), bridges={PORT: path})) as running:
        sent = int(running.stdout.readline())
        assert sent < 32 * MIB, "kernel buffers, and one chunk in process 1"
        began = time.monotonic()
        assert running.freeze() > 0
        running.resume()
        assert time.monotonic() - began < 1
        go.set()
        give_up = time.monotonic() + 20
        while not heard:
            assert time.monotonic() < give_up
            time.sleep(0.01)
    assert heard == [sent]


def test_a_flood_of_connections_does_not_delay_the_end():
    program = "\nprint(flush=True)\nwhile True:\n    try: connect().close()\n    except OSError: pass"
    with (
        served(echo) as path,
        bwrap.run(SandboxSpec("agent", ("python", "-c", CLIENT + program), bridges={PORT: path})) as running,
    ):
        running.stdout.readline()
        time.sleep(0.3)
        began = time.monotonic()
        running.freeze()
        running.resume()
        running.kill()
        assert time.monotonic() - began < 3


def test_the_command_cannot_end_the_bridge():
    program = """
import signal
for number in range(1, 65):
    for pid in (1, -1):
        try: os.kill(pid, number)
        except OSError: pass
for name in ("fd", "mem", "environ"):
    try: os.listdir("/proc/1/fd") if name == "fd" else open(f"/proc/1/{name}", "rb").read(1); print(name, "was read")
    except OSError as error: pass
for what in (os.unlink, lambda path: open(path + "x", "w"), lambda path: os.rename(path, "/tmp/x")):
    try: what("/run/arena/bridge.pyc"); print("changed")
    except OSError as error: pass
link = connect(); link.sendall(b"still here"); link.shutdown(1); print(rest(link))
"""
    ignore = "import signal\nfor n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
    with served(echo) as path:
        assert output(ignore + program, path) == ["b'still here'"]


def test_two_bridges_lead_to_two_servers():
    program = "\nfor port in (3128, 4000): print(rest(socket.create_connection(('127.0.0.1', port))))"
    with served(lambda link: link.sendall(b"one")) as one, served(lambda link: link.sendall(b"two")) as two:
        command = ("python", "-c", CLIENT + program)
        with bwrap.run(SandboxSpec("agent", command, bridges={3128: one, 4000: two})) as running:
            assert running.stdout.read() == b"b'one'\nb'two'\n"


ROUND_TRIPS = """
import statistics, time
def round_trip_ms(link):
    found = []
    for _ in range(3):
        taken = []
        for _ in range(1000):
            began = time.perf_counter(); link.sendall(b"x" * 200); link.recv(4096)
            taken.append((time.perf_counter() - began) * 1e3)
        found.append(statistics.median(taken))
    return min(found)
"""


@pytest.mark.timing
def test_a_streamed_chunk_is_not_delayed():
    """A round trip is two chunks; the bridge may add 0.3 ms to each."""
    with served(echo) as path:
        program: dict[str, Callable[[socket.socket], float]] = {}
        with socket.socket(socket.AF_UNIX) as direct:
            direct.connect(str(path))
            exec(ROUND_TRIPS, program)
            direct_ms = program["round_trip_ms"](direct)
        (bridged_ms,) = map(float, output(ROUND_TRIPS + "print(round_trip_ms(connect()))", path))
    assert bridged_ms - direct_ms < 2 * 0.3
