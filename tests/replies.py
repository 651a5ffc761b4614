"""A worker that sends what a fuzzer says over a real channel, and what the judge makes of it."""

from __future__ import annotations

import json
import math
import os
import re
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fcntl import F_SETFL, F_SETPIPE_SZ, fcntl, ioctl
from itertools import pairwise
from pathlib import Path
from termios import FIONREAD
from typing import Any, BinaryIO, NamedTuple

from hypothesis import strategies as st

from arena.judge.channel import Channel
from arena.judge.rejection import Rejection
from arena.judge.worker import main
from arena.judge.worker_client import Uncapturable, Worker
from arena.sandboxes import LostFiles

CORPUS = Path(__file__).parent / "judge" / "corpus"
LIMIT_S = 0.03
SLACK_S = 2.0
"""For threads that wait for their turn on a busy machine."""
COUNTED = ("incorrect", "cheated", "crashed", "timed_out")
Step = tuple[str, Any]


class Scenario(NamedTuple):
    """What a worker does before and after the order (number 1); each step is a name and its value."""

    op: str
    early: list[Step]
    late: list[Step]

    def text(self) -> str:
        """As it is kept in the corpus."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read(path: Path) -> Scenario:
    """A scenario of the corpus."""
    facts = json.loads(path.read_text())
    return Scenario(facts["op"], *([(name, value) for name, value in facts[part]] for part in ("early", "late")))


class Sandbox:
    """Stands for the sandbox of a worker: a control socket that process 1 may close, and no process."""

    workspace: Path | None = None
    exceeded: tuple[str, ...] = ()
    lost = LostFiles()
    proof_s = 60.0

    def __init__(self) -> None:
        self.control, self._init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.hangup_fd = self.control.fileno()
        self.limits: Mapping[str, str] = {}
        self.stdout: BinaryIO = os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb")
        self.stderr: BinaryIO = os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb")

    def begin_kill(self) -> None:
        self._init.close()

    terminate = kill = resume = begin_kill

    def wait(self, timeout_s: float | None = None) -> int | None:
        return 0 if self._init.fileno() < 0 else None

    def freeze(self) -> int:
        return 0

    cpu_ns = freeze

    def close(self) -> None:
        for end in (self.control, self._init, self.stdout, self.stderr):
            end.close()


class Sender:
    """The worker's ends of the channel, and the steps that it can take."""

    def __init__(self, channel: Channel, sandbox: Sandbox) -> None:
        orders, self.replies = (os.dup(fd) for fd in channel.worker_fds)
        self.orders, self.sandbox = socket.socket(fileno=orders), sandbox
        self.sent = b""
        """All that it tried to send, and more than what arrived."""
        self.delays_s = 0.0
        os.set_blocking(self.replies, False)  # a full pipe takes what fits

    def take(self, steps: Sequence[Step]) -> None:
        """All steps in order. One that the kernel refuses is left out."""
        for name, value in steps:
            try:
                getattr(self, name)(value)
            except (OSError, ValueError):  # a ValueError for a closed descriptor
                continue

    def write(self, text: str) -> None:
        data = bytes.fromhex(text)
        self.sent += data
        os.write(self.replies, data)

    def flood(self, size: int) -> None:
        self.write("41" * size)

    def packets(self, on: bool) -> None:
        fcntl(self.replies, F_SETFL, os.O_WRONLY | os.O_NONBLOCK | (os.O_DIRECT if on else 0))

    def pipe_size(self, size: int) -> None:
        fcntl(self.replies, F_SETPIPE_SZ, size)

    def splice(self, text: str) -> None:
        """Bytes that reach the pipe without a write."""
        source, peer = socket.socketpair()
        with source, peer:
            self.sent += bytes.fromhex(text)
            if peer.send(bytes.fromhex(text)):
                os.splice(source.fileno(), self.replies, len(text) // 2)

    def hold(self, ms: int) -> None:
        """Hold the pipe's lock for so long."""
        source, peer = socket.socketpair()
        with source, peer:
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, ms * 1000))
            self.delays_s += ms / 1e3
            os.splice(source.fileno(), self.replies, 4096)

    def steal(self, size: int) -> None:
        """Take bytes out of the pipe again."""
        other = os.open(f"/proc/self/fd/{self.replies}", os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.read(other, size)
        finally:
            os.close(other)

    def sleep(self, ms: int) -> None:
        self.delays_s += ms / 1e3
        time.sleep(ms / 1e3)

    def descriptors(self, count: int) -> None:
        try:
            socket.send_fds(self.orders, [b"x"], [self.replies] * count)
        except BrokenPipeError:
            return
        raise AssertionError("a descriptor was queued towards the judge")

    def shut_orders(self, _: object) -> None:
        self.orders.shutdown(socket.SHUT_RDWR)

    def close(self, _: object = None) -> None:
        if self.replies >= 0:
            os.close(self.replies)
            self.replies = -1

    def end(self, _: object) -> None:
        """Process 1 ends; a child may keep the pipe."""
        self.sandbox.begin_kill()


def play(scenario: Scenario) -> str:
    """Let the judge give one order to such a worker. Returns the outcome in words; AssertionError when a promise is broken."""
    before = _descriptors()
    channel, sandbox = Channel(), Sandbox()
    sender = Sender(channel, sandbox)
    channel.release_worker_fds()
    worker = Worker(sandbox, channel, 60.0)
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            select.select([sender.orders], [], [], 10.0)  # the order, or the end of the judge
            sender.take(scenario.late)
        except AssertionError as error:
            failures.append(error)

    thread = threading.Thread(target=follow, daemon=True)
    try:
        sender.take(scenario.early)
        waiting = int.from_bytes(ioctl(channel.replies, FIONREAD, bytes(4)), "little")
        thread.start()
        outcome = _outcome(worker, scenario.op, sender, waiting)
    finally:
        channel.orders.close()
        thread.join(30)
        worker.stop_watchdog()
        for log in (worker.stdout, worker.stderr):
            log.text()
        channel.close()
        sender.close()
        sender.orders.close()
        sandbox.close()
    assert not failures, failures
    until_s = time.monotonic() + SLACK_S
    while left := _descriptors() - before:  # other threads of the tests open some, too, and close them again
        assert time.monotonic() < until_s, f"left open: {dict(left)}"
        time.sleep(0.01)
    return outcome


def _outcome(worker: Worker, op: str, sender: Sender, waiting: int) -> str:
    began_s = time.monotonic()
    try:
        device_s = worker.order(op, limit_s=LIMIT_S)
        outcome = "accepted"
    except Rejection as rejection:
        assert rejection.verdict in COUNTED and rejection.message.isprintable()
        outcome = f"{rejection.verdict}: {re.sub(r'-?([0-9][0-9.]*(e[+-]?[0-9]+)?|nan|inf)', 'N', rejection.message)}"
    except Uncapturable:
        outcome = "uncapturable"
    took_s = time.monotonic() - began_s
    assert took_s < LIMIT_S + sender.delays_s + SLACK_S, f"the judge waited {took_s:.2f} s"
    if outcome == "accepted":
        assert not waiting, f"{waiting} bytes from before the order were overlooked"
        assert main.REPLY.pack(main.MAGIC, 1, main.DONE, device_s) in sender.sent
        assert 0 <= device_s < 1 + took_s
    return outcome


def _descriptors() -> Counter[str]:
    """What this process has open, as the kernel names it: a socket or a pipe by its own number."""
    found = Counter[str]()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[str(descriptor.readlink())] += 1
    return found


# ------------------------------------------------------------------ strategies

NUMBERS = st.sampled_from([0, 1, 2, 63, 64, 65, 66, 67, 255, 2**31, 2**32 - 1])
SECONDS = st.sampled_from([0.0, -0.0, 1e-9, 1e-3, 1.0, 1e308, -1.0, math.inf, -math.inf, math.nan, 5e-324])
GOOD = main.REPLY.pack(main.MAGIC, 1, main.DONE, 0.0)
TO_THE_ORDER = st.one_of(
    st.builds(main.REPLY.pack, st.just(main.MAGIC), st.just(1), NUMBERS, st.just(0.0)),
    st.builds(main.REPLY.pack, st.just(main.MAGIC), st.just(1), st.just(main.DONE), SECONDS),
)
REPLIES = st.builds(main.REPLY.pack, st.sampled_from([main.MAGIC, b"ARNB", b"\0\0\0\0"]), NUMBERS, NUMBERS, SECONDS)
MESSAGES = st.one_of(
    TO_THE_ORDER, REPLIES, st.binary(max_size=64), st.builds(bytes.__add__, TO_THE_ORDER, st.binary(max_size=64))
)


def pieces(message: bytes, cuts: list[int], name: str, pause_ms: int) -> list[Step]:
    """A message in several writes."""
    bounds = [0, *sorted(cut % (len(message) + 1) for cut in cuts), len(message)]
    parts = [message[a:b].hex() for a, b in pairwise(bounds)]
    return [step for part in parts for step in ((name, part), ("sleep", pause_ms))[: 2 if pause_ms else 1]]


ONE = st.one_of(
    TO_THE_ORDER.map(lambda message: [("write", message.hex())]),
    st.builds(
        pieces,
        MESSAGES,
        st.lists(st.integers(0, 64), max_size=3),
        st.sampled_from(["write", "splice"]),
        st.sampled_from([0, 0, 1, 5]),
    ),
    st.sampled_from([1, 5, 20, 60]).map(lambda ms: [("sleep", ms)]),
    st.sampled_from([4096, 5000, 1 << 17]).map(lambda size: [("flood", size)]),
    st.booleans().map(lambda on: [("packets", on)]),
    st.sampled_from([4096, 1 << 20]).map(lambda size: [("pipe_size", size)]),
    st.sampled_from([5, 20]).map(lambda ms: [("hold", ms)]),
    st.sampled_from([1, 20, 4096]).map(lambda size: [("steal", size)]),
    st.sampled_from([1, 250]).map(lambda count: [("descriptors", count)]),
    st.sampled_from(["close", "end", "shut_orders"]).map(lambda name: [(name, None)]),
)


def steps(most: int) -> st.SearchStrategy[list[Step]]:
    return st.lists(ONE, max_size=most).map(lambda found: [step for part in found for step in part])


def scenarios() -> st.SearchStrategy[Scenario]:
    """Any byte sequences, chunks, pauses and closings; mostly after the order."""
    return st.builds(Scenario, st.sampled_from(["run", "run", "load", "capture", "shape"]), st.just([]) | steps(2), steps(5))
