"""The egress proxy's memory while a sandbox floods it: the peak of a process that holds all of arena."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arena.gateway.unix_server import CONNECTIONS

ADDED_MIB = 24
"""What floods may add to a process in which the model gateway's reach 229 MiB (docs/measurements/gateway.md), of 300 in all."""
SERVES = """
import asyncio, socket, sys
from pathlib import Path
import arena.cli.run  # what a real arena has in memory beside the proxy
import aiohttp.web    # and beside the gateway
from arena.gateway.egress.proxy import serve
from arena.gateway.egress.rules import rule
async def names(host, port): return ["127.0.0.1"]
def peak(): return next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
with serve(Path(sys.argv[1]), [rule("good.example:" + sys.argv[3])], Path(sys.argv[2]), reach=lambda a: True, resolve=names):
    print(peak(), flush=True)
    sys.stdin.readline()
    print(peak(), flush=True)
"""
BLOCK = bytes(1 << 20)
FLOOD_S = 2.0


@contextlib.contextmanager
def host(serve_one: Callable[[socket.socket], None]) -> Iterator[int]:
    """A host on loopback that serves every connection so, in a thread of its own; its port."""
    links: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as server:

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    links.append(server.accept()[0])
                    threading.Thread(target=lambda link=links[-1]: quietly(lambda: serve_one(link)), daemon=True).start()

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    for link in links:
        link.close()


def quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        work()


def send_without_end(link: socket.socket) -> None:
    while True:
        link.sendall(BLOCK)


def tunnel_request(port: int) -> bytes:
    return f"CONNECT good.example:{port} HTTP/1.1\r\n\r\n".encode()


def upload(link: socket.socket, port: int) -> None:
    """To a host that reads nothing."""
    link.sendall(tunnel_request(port))
    send_without_end(link)


def download(link: socket.socket, port: int) -> None:
    """From a host that sends without end, and never read."""
    link.sendall(tunnel_request(port))


def long_head(link: socket.socket, port: int) -> None:
    """A request without an end."""
    link.sendall(b"CONNECT good.example:443 HTTP/1.1\r\nx: ")
    send_without_end(link)


def slow_reader(link: socket.socket, port: int) -> None:
    link.sendall(tunnel_request(port))
    while link.recv(1 << 12):
        time.sleep(0.01)


FLOODS = {
    "uploads to a host that reads nothing": (lambda _: time.sleep(60), upload),
    "downloads that nothing reads": (send_without_end, download),
    "both ways": (send_without_end, upload),
    "downloads read slowly": (send_without_end, slow_reader),
    "heads without end": (lambda _: None, long_head),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOODS)
def test_hostile_tunnels_take_little_memory(tmp_path: Path, kind: str) -> None:
    serve_one, flood = FLOODS[kind]
    with host(serve_one) as port:
        command = [sys.executable, "-c", SERVES, str(tmp_path / "s"), str(tmp_path / "log"), str(port)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, cwd=Path(__file__).parents[2], **pipes) as process:  # type: ignore[call-overload]
            before = int(process.stdout.readline()) >> 10
            links = [socket.socket(socket.AF_UNIX) for _ in range(CONNECTIONS)]
            for link in links:
                link.connect(str(tmp_path / "s"))
                threading.Thread(target=lambda link=link: quietly(lambda: flood(link, port)), daemon=True).start()
            time.sleep(FLOOD_S)
            process.stdin.write("\n")
            process.stdin.flush()
            found = int(process.stdout.readline()) >> 10
            for link in links:
                link.close()
    print(f"\n{kind}: {CONNECTIONS} connections, {before} MiB before, peak {found} MiB")
    assert found - before <= ADDED_MIB
