"""The egress proxy: requests, tunnels and the log. Names come from a table."""

import asyncio
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loopback import echo, reach_loopback, upstream

from arena.files.jsonl import BYTES
from arena.gateway.egress.proxy import HEAD_S, resolve, serve
from arena.gateway.egress.rules import Reach, private, public, rule
from arena.gateway.unix_server import CONNECTIONS
from arena.system import process

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass
class Proxy:
    """A running proxy, from a client's view."""

    path: Path
    log: Path
    troubles: Sequence[str] = ()

    def connect(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(20)
        link.connect(str(self.path))
        return link

    def ask(self, request: bytes) -> tuple[int, str]:
        """Status and body of an answer that ends the connection."""
        with self.connect() as link:
            link.sendall(request)
            return answer(link)

    def tunnel(self, host: str, port: int) -> socket.socket:
        """An open tunnel."""
        link = self.connect()
        link.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert link.recv(len(ESTABLISHED), socket.MSG_WAITALL) == ESTABLISHED
        return link

    def lines(self, count: int) -> list[dict[str, Any]]:
        """The log, once it has that many lines."""
        give_up = time.monotonic() + 10
        while len(lines := self.log.read_text().splitlines()) < count:
            assert time.monotonic() < give_up, lines
            time.sleep(0.01)
        return [json.loads(line) for line in lines]


def answer(link: socket.socket) -> tuple[int, str]:
    head, _, body = rest(link).decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body)}" in head
    return int(head.split()[1]), body.strip()


def rest(link: socket.socket) -> bytes:
    found = bytearray()
    while piece := link.recv(1 << 16):
        found += piece
    return bytes(found)


NAMES = {
    "good.example": ["127.0.0.1"],
    "deep.below.example": ["127.0.0.1"],
    "two.example": ["169.254.169.254", "127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "no-ipv6.example": ["::1", "127.0.0.1"],
    "other.example": ["127.0.0.2"],
}


async def table(host: str, port: int) -> Sequence[str]:
    """A resolver with these names only."""
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[host]


@contextmanager
def proxy(folder: Path, *rules: str, reach: Reach = reach_loopback, resolve: Any = table) -> Iterator[Proxy]:
    made = Proxy(folder / "s", folder / "network.jsonl")
    with serve(made.path, [rule(text) for text in rules], made.log, reach=reach, resolve=resolve) as made.troubles:
        yield made
    assert not made.path.exists()


CONNECT = b"CONNECT %s HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (CONNECT % b"evil.net:443", 403, "not on the allowlist"),
        (CONNECT % b"good.example:80", 403, "not on the allowlist"),
        (CONNECT % b"good.example.evil.net:443", 403, "not on the allowlist"),
        (CONNECT % b"notgood.example:443", 403, "not on the allowlist"),
        (CONNECT % b"below.example:443", 403, "not on the allowlist"),
        (CONNECT % b"127.0.0.1:443", 403, "addresses are refused"),
        (CONNECT % b"127.1:443", 403, "addresses are refused"),
        (CONNECT % b"0x7f000001:443", 403, "addresses are refused"),
        (CONNECT % b"2130706433:443", 403, "addresses are refused"),
        (CONNECT % b"169.254.169.254:80", 403, "addresses are refused"),
        (CONNECT % b"[::1]:443", 403, "addresses are refused"),
        (CONNECT % b"[::ffff:169.254.169.254]:443", 403, "addresses are refused"),
        (CONNECT % b"localhost:443", 403, "not on the allowlist"),
        (CONNECT % b"metadata.example:443", 403, "private or reserved address"),
        (CONNECT % b"good.example@evil.net:443", 400, "user name"),
        (CONNECT % b"evil.net:443@good.example:443", 400, "user name"),
        (CONNECT % b"good.example\x00.evil.net:443", 400, "control character"),
        (CONNECT % b"good.example\n.evil.net:443", 400, "control character"),
        (CONNECT % b"good.example\r\n.evil.net:443", 400, "not an HTTP/1 request line"),
        (CONNECT % b"good.example\r.evil.net:443", 400, "control character"),
        (CONNECT % b"good.example%00:443", 400, "not a host name"),
        (CONNECT % b"good.example..:443", 400, "not a host name"),
        (CONNECT % b"good.example", 400, "host:port"),
        (CONNECT % b"good.example:", 400, "host:port"),
        (CONNECT % b"good.example:0443", 400, "host:port"),
        (CONNECT % b"good.example:65536", 400, "host:port"),
        (CONNECT % b"good.example:+443", 400, "host:port"),
        (CONNECT % b"https://good.example:443", 400, "not a host name"),
        (CONNECT % b"good.example:443/path", 400, "host:port"),
        (CONNECT % b"good_example:443", 400, "not a host name"),
        (CONNECT % "göod.example:443".encode(), 400, "byte above 126"),
        (b"CONNECT good.example:443 HTTP/2\r\n\r\n", 400, "not an HTTP/1 request line"),
        (b"CONNECT  good.example:443 HTTP/1.1\r\n\r\n", 400, "not an HTTP/1 request line"),
        (b" CONNECT good.example:443 HTTP/1.1\r\n\r\n", 400, "not an HTTP/1 request line"),
        (b"CONNECT good.example:443 HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400, "control character"),
        (b"\r\n\r\n", 400, "not an HTTP/1 request line"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "control character"),
        (b"CONNECT good.example:443 HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 400, "larger than 8192"),
        (b"CONNECT good.example:443 HTTP/1.1\r\nX: " + b"y" * 900_000, 400, "larger than 8192"),
        (b"GET http://good.example/ HTTP/1.1\r\n\r\n", 405, "only CONNECT"),
        (b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", 405, "only CONNECT"),
        (b"connect good.example:443 HTTP/1.1\r\n\r\n", 405, "only CONNECT"),
        (b"CONNECT gone.example:443 HTTP/1.1\r\n\r\n", 502, "cannot reach gone.example:443: Name or service not known"),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else None,
)
def test_refused_requests_get_a_reason_and_a_log_line(request_: bytes, status: int, reason: str, tmp_path: Path) -> None:
    with proxy(tmp_path, "good.example", "*.below.example", "metadata.example", "gone.example") as made:
        try:
            found = made.ask(request_)
        except (BrokenPipeError, ConnectionResetError):  # the proxy answered before all was sent
            found = (status, made.lines(1)[0]["reason"])
        (line,) = made.lines(1)
    assert found[0] == status and reason in found[1]
    assert (line["status"], line["reason"]) == found
    assert line["verdict"] == ("failed" if status == 502 else "refused")
    assert (line["up_bytes"], line["down_bytes"], line["address"]) == (0, 0, None)


@pytest.mark.parametrize("written", ["good.example", "GOOD.example", "good.example."])
def test_an_allowed_host_is_reached_and_logged(written: str, tmp_path: Path) -> None:
    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}") as made:
        with made.tunnel(written, port) as link:
            link.sendall(b"hello")
            assert link.recv(5) == b"hello"
            link.shutdown(socket.SHUT_WR)
            assert rest(link) == b""
        (line,) = made.lines(1)
    assert {
        name: line[name] for name in ("host", "port", "verdict", "status", "reason", "address", "up_bytes", "down_bytes")
    } == {
        "host": "good.example",
        "port": port,
        "verdict": "allowed",
        "status": 200,
        "reason": "",
        "address": "127.0.0.1",
        "up_bytes": 5,
        "down_bytes": 5,
    }
    assert 0 <= line["seconds"] < 5 and line["at"].endswith("+00:00")


def test_a_socket_path_may_be_long(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    with proxy(deep) as made:
        assert made.path.is_socket() and made.path.stat().st_mode & 0o777 == 0o666


def test_a_wildcard_rule_covers_names_below_it_only(tmp_path: Path) -> None:
    with upstream(echo) as port, proxy(tmp_path, f"*.example:{port}".replace("*.", "*.below.")) as made:
        made.tunnel("deep.below.example", port).close()
        assert made.ask(CONNECT % f"below.example:{port}".encode())[0] == 403


@pytest.mark.parametrize("reach", [public, private])
def test_the_hosts_own_services_are_refused(reach: Reach, tmp_path: Path) -> None:
    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}", reach=reach) as made:
        assert made.ask(CONNECT % f"good.example:{port}".encode()) == (403, "the name resolves to a private or reserved address")


def test_the_checked_address_is_the_one_reached(tmp_path: Path) -> None:
    """A name that resolves differently the second time (DNS rebinding) gains nothing: the proxy looks it up once."""
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    with (
        upstream(lambda link: link.sendall(b"checked"), "127.0.0.2") as port,
        proxy(tmp_path, f"good.example:{port}", resolve=rebinding) as made,
    ):
        with made.tunnel("good.example", port) as link:
            assert rest(link) == b"checked"
        assert made.lines(1)[0]["address"] == "127.0.0.2"
    assert asked == ["good.example"]


def test_the_next_allowed_address_is_tried(tmp_path: Path) -> None:
    with upstream(echo) as port, proxy(tmp_path, f"two.example:{port}", f"no-ipv6.example:{port}") as made:
        for name in ("two.example", "no-ipv6.example"):
            made.tunnel(name, port).close()
        assert [line["address"] for line in made.lines(2)] == ["127.0.0.1"] * 2


def test_a_closed_port_is_a_logged_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with proxy(tmp_path, f"good.example:{port}") as made:
        status, reason = made.ask(CONNECT % f"good.example:{port}".encode())
        assert status == 502 and "Connect" in reason
        assert made.lines(1)[0]["verdict"] == "failed"


def test_ten_megabytes_pass_each_way_unchanged(tmp_path: Path) -> None:
    ours, theirs, heard = os.urandom(10 << 20), os.urandom(10 << 20), list[bytes]()

    def send(link: socket.socket, data: bytes) -> None:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)

    def talk(link: socket.socket) -> None:
        sender = threading.Thread(target=send, args=(link, theirs))
        sender.start()
        heard.append(rest(link))
        sender.join()

    with upstream(talk) as port, proxy(tmp_path, f"good.example:{port}") as made:
        with made.connect() as link:
            link.sendall(CONNECT % f"good.example:{port}".encode() + b"at once")
            sender = threading.Thread(target=send, args=(link, ours))
            sender.start()
            got = rest(link)
            sender.join()
        (line,) = made.lines(1)
    digest = hashlib.sha256
    assert digest(got.partition(b"\r\n\r\n")[2]).digest() == digest(theirs).digest()
    assert digest(heard[0]).digest() == digest(b"at once" + ours).digest()
    assert (line["up_bytes"], line["down_bytes"]) == (len(ours) + 7, len(theirs))


def test_bytes_behind_the_request_pass_first(tmp_path: Path) -> None:
    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}") as made, made.connect() as link:
        link.sendall(CONNECT % f"good.example:{port}".encode() + b"early ")
        assert link.recv(len(ESTABLISHED), socket.MSG_WAITALL) == ESTABLISHED
        link.sendall(b"late")
        link.shutdown(socket.SHUT_WR)
        assert rest(link) == b"early late"


def test_half_closed_streams_stay_half_open(tmp_path: Path) -> None:
    heard: list[bytes] = []

    def talk(link: socket.socket) -> None:
        link.sendall(b"first")
        link.shutdown(socket.SHUT_WR)
        heard.append(rest(link))

    with upstream(talk) as port, proxy(tmp_path, f"good.example:{port}") as made:
        with made.tunnel("good.example", port) as link:
            assert rest(link) == b"first"
            link.sendall(b"later" * 50_000)
        made.lines(1)
        give_up = time.monotonic() + 10
        while not heard and time.monotonic() < give_up:
            time.sleep(0.01)
    assert heard == [b"later" * 50_000]


def test_a_host_that_breaks_off_is_logged(tmp_path: Path) -> None:
    def talk(link: socket.socket) -> None:
        link.recv(1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with upstream(talk) as port, proxy(tmp_path, f"good.example:{port}") as made:
        with made.tunnel("good.example", port) as link:
            link.sendall(b"xyz")
            assert link.recv(1) == b""
        (line,) = made.lines(1)
    assert line["verdict"] == "allowed" and line["reason"].startswith("broken off: ")


def test_hosts_that_reset_do_not_end_the_proxy(tmp_path: Path) -> None:
    """Both directions of a tunnel may break at once. Python before 3.11.4 wraps what `except*` raises in a group."""

    def talk(link: socket.socket) -> None:
        link.sendall(b"x" * (1 << 20))
        link.recv(1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with upstream(talk) as port, proxy(tmp_path, f"good.example:{port}") as made:
        for _ in range(20):
            with made.tunnel("good.example", port) as link:
                link.sendall(b"y" * 200_000)
                try:
                    rest(link)
                except ConnectionResetError:
                    continue
        lines = made.lines(20)
    assert {line["verdict"] for line in lines} == {"allowed"} and any(line["reason"] for line in lines)
    assert made.troubles == []


def test_a_bug_ends_only_its_own_connection(tmp_path: Path) -> None:
    async def buggy(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1" if host == "good.example" else "no address"]

    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}", "bad.example", resolve=buggy) as made:
        with made.tunnel("good.example", port) as link:
            for _ in range(2):
                with made.connect() as bad:
                    bad.sendall(CONNECT % b"bad.example:443")
                    assert rest(bad) == b""
            link.sendall(b"on")
            assert link.recv(2) == b"on"
        made.tunnel("good.example", port).close()
    (trouble,) = made.troubles
    assert "a bug of arena" in trouble and "no address" in trouble


def test_connections_above_the_limit_wait(tmp_path: Path) -> None:
    """They use no descriptor of arena, and are served when others end."""
    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}") as made:
        tunnels = [made.tunnel("good.example", port) for _ in range(CONNECTIONS)]
        for link in tunnels:  # the hosts, also in this process, have accepted them
            link.sendall(b"x")
            assert link.recv(1) == b"x"
        before = len(list(Path("/proc/self/fd").iterdir()))
        waiting = [made.connect() for _ in range(20)]
        for link in waiting:
            link.sendall(CONNECT % f"good.example:{port}".encode())
        waiting[0].settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting[0].recv(1)
        assert len(list(Path("/proc/self/fd").iterdir())) == before + len(waiting), "only the test's own"
        for link in tunnels:
            link.close()
        waiting[0].settimeout(20)
        assert all(link.recv(12) == b"HTTP/1.1 200" for link in waiting)
        for link in waiting:
            link.close()


@pytest.mark.slow
def test_an_unfinished_request_times_out(tmp_path: Path) -> None:
    with proxy(tmp_path) as made, made.connect() as link:
        link.sendall(b"CONNECT good.example:443 HTTP/1.1\r\n")
        began = time.monotonic()
        assert answer(link) == (400, f"the request head did not arrive within {HEAD_S:.0f} s")
        assert time.monotonic() - began < HEAD_S + 2
    with proxy(tmp_path / "..") as made:
        made.connect().close()
        assert made.lines(1)[-1]["reason"] == "the request head has no end"


def test_the_sessions_end_closes_and_logs_its_tunnels(tmp_path: Path) -> None:
    with upstream(echo) as port:
        with proxy(tmp_path, f"good.example:{port}") as made:
            link = made.tunnel("good.example", port)
            link.sendall(b"abc")
            assert link.recv(3) == b"abc"
            idle = made.connect()
            time.sleep(0.2)  # until it is accepted, which nothing shows
        assert link.recv(1) == b""
        lines = made.lines(2)
        link.close()
        idle.close()
    found = sorted((line["verdict"], line["reason"], line["up_bytes"]) for line in lines)
    assert found == [("allowed", "the session ended", 3), ("refused", "the session ended", 0)]


def test_a_full_log_ends_with_one_line_that_says_so(tmp_path: Path) -> None:
    log = tmp_path / "network.jsonl"
    with log.open("wb") as file:
        file.truncate(BYTES - 600)
    with proxy(tmp_path) as made:
        for _ in range(8):
            assert made.ask(CONNECT % b"evil.net:443")[0] == 403
    tail = [json.loads(line.strip("\0")) for line in log.read_text()[-2000:].splitlines()]
    assert [line["verdict"] for line in tail] == ["refused", "refused", "cut"]
    assert log.stat().st_size < BYTES + 400


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "network.jsonl").symlink_to("/dev/full")
    with upstream(echo) as port, proxy(tmp_path, f"good.example:{port}") as made:
        for _ in range(3):
            assert made.ask(CONNECT % b"evil.net:443")[0] == 403
        with made.tunnel("good.example", port) as link:
            link.sendall(b"on")
            assert link.recv(2) == b"on"
    assert made.troubles == ["the egress proxy's log ends early, as it cannot be written (No space left on device)"]


def test_a_line_that_does_not_fit_is_not_written(tmp_path: Path) -> None:
    """In a process with a limit on file sizes, which acts like a full disk."""
    program = """
import resource, signal, sys
from pathlib import Path
from arena.gateway.egress.proxy import LogEntry, open_log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
with open_log(Path(sys.argv[1])) as log:
    for number in range(5):
        log.add(LogEntry(str(number)))
    print(log.troubles)
"""
    log = tmp_path / "network.jsonl"
    done = process.run([sys.executable, "-c", program, str(log)], limit_s=20)
    assert b"ends early" in done.stdout, done.stderr
    kept = [json.loads(line)["at"] for line in log.read_text().splitlines()]
    assert kept == ["0", "1"]


def test_the_system_resolver_finds_addresses(tmp_path: Path) -> None:
    assert "127.0.0.1" in asyncio.run(resolve("127.0.0.1", 443))
