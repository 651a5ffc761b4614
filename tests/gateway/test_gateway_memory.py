"""The gateway's memory while a sandbox floods it: its peak in a process of its own."""

import contextlib
import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from provider import Answer, provider

from arena.gateway.model import answers
from arena.gateway.model.policy import BODY_BYTES

PEAK_MIB = 300
"""Of arena's whole process."""
AT_ONCE = 24
SERVES = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from provider import access, serve
import arena.cli.run  # what a real arena has in memory beside the gateway
with serve(Path(sys.argv[1]), Path(sys.argv[2]), access("chat", sys.argv[3])) as gateway:
    print(gateway.key, flush=True)
    sys.stdin.readline()
    gateway.leaving()
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1], flush=True)
"""
HEAD, END = b'{"model": "m-1", "messages": [', b"]}"


def filled(unit: Callable[[int], bytes], size: int = BODY_BYTES - 100) -> bytes:
    """A body as long as it may be, of such units."""
    parts: list[bytes] = []
    length, number = 0, 0
    while True:
        part = unit(number)
        if length + len(part) > size:
            return HEAD + b"".join(parts) + b"1" + END
        parts.append(part)
        length += len(part)
        number += 1


BODIES: dict[str, Callable[[], tuple[bytes, str]]] = {
    "numbers": lambda: (HEAD + b"1," * (BODY_BYTES // 2 - 100) + b"1" + END, ""),
    "empty lists": lambda: (HEAD + b"[]," * (BODY_BYTES // 3 - 100) + b"1" + END, ""),
    "small objects": lambda: (filled(lambda n: b'{"a":1},'), ""),
    "distinct names": lambda: (HEAD + b"{" + b",".join(b'"%d":1' % n for n in range(290_000)) + b"}" + END, ""),
    "wide characters": lambda: (HEAD + b'"' + "\U0001f600".encode() + b"a" * (BODY_BYTES - 200) + b'"' + END, ""),
    "wide characters and names": lambda: (
        HEAD + '{"\U0001f600":1,'.encode() + b",".join(b'"%040d":1' % n for n in range(290_000)) + b"}" + END,
        "",
    ),
    "nested": lambda: (HEAD + b"[" * 800 + b"]" * 800 + b',"' + b"a" * (BODY_BYTES - 4000) + b'"' + END, ""),
    "compressed": lambda: (gzip.compress(HEAD + b'"' + b"a" * (BODY_BYTES - 200) + b'"' + END), "gzip"),
}


@contextlib.contextmanager
def served(folder: Path, url: str) -> Iterator[tuple[Path, str, Callable[[], int]]]:
    """A gateway in its own process: its socket, its key, and a function that ends it and returns its peak in MiB."""
    command = [sys.executable, "-c", SERVES, str(folder / "model"), str(folder / "ledger.jsonl"), url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=Path(__file__).parents[2], **pipes) as process:  # type: ignore[call-overload]

        def peak() -> int:
            process.stdin.write("\n")
            process.stdin.flush()
            return int(process.stdout.readline()) >> 10

        try:
            yield folder / "model", process.stdout.readline().strip(), peak
        finally:
            process.stdin.close()


def connect(path: Path) -> http.client.HTTPConnection:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(120)
    link.connect(str(path))
    connection = http.client.HTTPConnection("127.0.0.1")
    connection.sock = link
    return connection


def flood(path: Path, key: str, body: bytes, encoding: str) -> list[int]:
    """The statuses of that many requests at once with that body; 0 for a connection that broke."""
    statuses: list[int] = []

    def ask() -> None:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        with contextlib.closing(connect(path)) as link:
            try:
                link.request("POST", "/v1/chat/completions", body, headers | ({"Content-Encoding": encoding} if encoding else {}))
                answer = link.getresponse()
                answer.read()
                statuses.append(answer.status)
            except (OSError, http.client.HTTPException):
                statuses.append(0)

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("kind", BODIES)
def test_hostile_bodies_take_little_memory(tmp_path: Path, kind: str):
    body, encoding = BODIES[kind]()
    whole = json.dumps({"model": "m-1", "choices": [{"finish_reason": "stop"}]}).encode()
    answer = Answer([whole], 200, {"Content-Type": "application/json"}, late_s=1.0)  # so that bodies are held together
    with provider(answer) as upstream, served(tmp_path, upstream.url) as (path, key, peak):
        statuses = flood(path, key, body, encoding)
        found = peak()
    print(f"\n{kind}: {len(body) >> 20} MiB x {AT_ONCE}, statuses {sorted(set(statuses))}, peak {found} MiB")
    assert found <= PEAK_MIB


ECHOES: dict[str, bytes] = {
    "a long event": b'data: {"x": "' + b"a" * (answers.FRAME_BYTES - 100) + b'"}\n\n',
    "an event of numbers": b'data: {"model": "m-1", "x": [' + b"1," * (answers.FRAME_BYTES // 2 - 100) + b"1]}\n\n",
    "an event of lists": b'data: {"model": "m-1", "x": [' + b"[]," * (answers.FRAME_BYTES // 3 - 100) + b"1]}\n\n",
    "a line without end": b"data: " + b"a" * (32 << 20),
    "short lines": b"data: 1\n" * (1 << 20),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ECHOES)
def test_hostile_answers_take_little_memory(tmp_path: Path, kind: str):
    pieces = [ECHOES[kind][start : start + (1 << 16)] for start in range(0, len(ECHOES[kind]), 1 << 16)]
    with provider(Answer([*pieces, b"\n\n"])) as upstream, served(tmp_path, upstream.url) as (path, key, peak):
        statuses = flood(path, key, b'{"model": "m-1", "stream": true}', "")
        found = peak()
    print(f"\n{kind}: {len(ECHOES[kind]) >> 20} MiB x {AT_ONCE}, statuses {sorted(set(statuses))}, peak {found} MiB")
    assert found <= PEAK_MIB


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 13, 1 << 16])
def test_endless_headers_take_little_memory(tmp_path: Path, size: int):
    with provider(Answer()) as upstream, served(tmp_path, upstream.url) as (path, _, peak):
        links = [socket.socket(socket.AF_UNIX) for _ in range(128)]
        for link in links:
            link.settimeout(5)
            link.connect(str(path))
        for link in links:
            with contextlib.suppress(OSError):
                link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
                for number in range(200):
                    link.sendall(b"x-%d: " % number + b"a" * (size - 20) + b"\r\n")
        found = peak()
        for link in links:
            link.close()
    print(f"\nheaders of {size >> 10} KiB on 128 connections: peak {found} MiB")
    assert found <= PEAK_MIB
