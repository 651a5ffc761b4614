"""The egress proxy: CONNECT to an allowlist of names and nothing else, on a unix socket, outside every sandbox; and its log.

The proxy sees the name in the client's request, and then encrypted bytes. Many owners may share one server, as in a large content
network. There a client can ask for another owner's name inside the encryption. So allow no host that is shared with strangers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from arena.files.jsonl import JsonLines
from arena.gateway.egress.rules import Reach, Rule, Target, check_allowed, parse_request, public, reachable
from arena.gateway.unix_server import Refusal, accept, serving

HEAD_BYTES = 1 << 13
HEAD_S = 5.0
CONNECT_S = 15.0
CHUNK_BYTES = 1 << 16
"""The most that one direction of a tunnel holds. asyncio's streams read 256 KiB at once and keep them beside what they write."""
ERROR_CHARS = 300
"""Of an unexpected error, kept in the session's record."""
REASONS = {200: "Connection established", 400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 502: "Bad Gateway"}

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Addresses of a name, from the system's resolver. OSError when it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@contextmanager
def serve(
    path: Path, rules: Sequence[Rule], log: Path, *, reach: Reach = public, resolve: Resolver = resolve
) -> Iterator[Sequence[str]]:
    """Serve on a new socket `path` for the length of the block, and append one JSON line a request to `log`.

    Yields what goes wrong meanwhile, complete when the block has ended. Every user may connect: the folder that holds the
    socket limits access. OSError when it cannot begin.
    """
    with open_log(log) as opened:
        proxy = _Proxy(tuple(rules), reach, resolve, opened)
        with serving(path, lambda listener: accept(listener, proxy.handle, proxy.failed)):
            yield opened.troubles


@dataclass
class LogEntry:
    """One request, filled in while the proxy serves it."""

    at: str
    host: str | None = None
    port: int | None = None
    verdict: str = "refused"
    """`allowed`; `refused` by the proxy; `failed`: allowed, but not reachable; `cut`: the log ends here."""
    status: int = 0
    """Of the HTTP answer; 0 when there was none."""
    reason: str = ""
    address: str | None = None
    """The name's address that was reached, or tried last."""
    up_bytes: int = 0
    """From the sandbox to the host."""
    down_bytes: int = 0
    seconds: float = 0.0


class EgressLog:
    """An open log, and what went wrong."""

    def __init__(self, lines: JsonLines) -> None:
        self.troubles: list[str] = []
        """Text for the session's record."""
        self._lines = lines
        self._reported: set[str] = set()

    def add(self, entry: LogEntry) -> None:
        """Append a line while there is room, and nothing after the first write that fails."""
        last = LogEntry(entry.at, verdict="cut", reason="the log is full: later requests are not in it")
        try:
            self._lines.add(asdict(entry), asdict(last))
        except OSError as error:  # the disk is full or gone: that must not end the session that made these requests
            self.trouble("the log", f"the egress proxy's log ends early, as it cannot be written ({error.strerror})")

    def trouble(self, subject: str, text: str) -> None:
        """Keep the text, once a subject: a sandbox may cause the same trouble any number of times."""
        if subject not in self._reported:
            self._reported.add(subject)
            self.troubles.append(text)


@contextmanager
def open_log(path: Path) -> Iterator[EgressLog]:
    """The log at that path, for appending. OSError."""
    with FileIO(path, "a") as file:  # no buffer: a written line stays, however arena ends
        yield EgressLog(JsonLines(file))


@dataclass
class _Proxy:
    rules: tuple[Rule, ...]
    reach: Reach
    resolve: Resolver
    log: EgressLog

    def failed(self, error: BaseException) -> None:
        """Record that the task of a connection ended by an exception."""
        self.log.trouble("a connection", f"a connection of the egress proxy failed, a bug of arena: {repr(error)[:ERROR_CHARS]}")

    async def handle(self, client: socket.socket) -> None:
        """Serve one connection, from its request to its log line."""
        began_s = time.monotonic()
        entry = LogEntry(datetime.now(UTC).isoformat(timespec="milliseconds"))
        client.setblocking(False)
        try:
            await self.answer(entry, client)
        except asyncio.CancelledError:
            entry.reason = "the session ended"
            raise
        except OSError as error:  # the client is gone, or one side was reset
            entry.reason = entry.reason or f"broken off: {error.strerror or error}"
        finally:
            entry.seconds = round(time.monotonic() - began_s, 3)
            self.log.add(entry)

    async def answer(self, entry: LogEntry, client: socket.socket) -> None:
        """Serve a request, or answer why not."""
        loop = asyncio.get_running_loop()
        try:
            head, early = await _head(client)
            target = parse_request(head)
            entry.host, entry.port = target
            check_allowed(target, self.rules)
            upstream = await self.connect(target, entry)
        except Refusal as refusal:
            entry.status, entry.reason = refusal.status, refusal.reason
            if refusal.target:
                entry.host, entry.port = refusal.target
            body = f"{refusal.reason}\n".encode()
            fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
            await loop.sock_sendall(
                client, f"HTTP/1.1 {refusal.status} {REASONS[refusal.status]}\r\n{fields}\r\n".encode() + body
            )
            return
        entry.verdict, entry.status = "allowed", 200
        with upstream:
            await loop.sock_sendall(client, f"HTTP/1.1 200 {REASONS[200]}\r\n\r\n".encode())
            await _tunnel(entry, early, client, upstream)

    async def connect(self, target: Target, entry: LogEntry) -> socket.socket:
        """Connect to a checked address, without a second lookup of the name. Refusal 403 or 502."""
        reason = "no address"
        try:
            async with asyncio.timeout(CONNECT_S):
                found = reachable(await self.resolve(*target), self.reach)
                for address in found:
                    entry.address = address
                    try:
                        return await _connected(address, target.port)
                    except OSError as error:
                        reason = error.strerror or str(error)
        except TimeoutError:
            reason = f"no answer within {CONNECT_S:.0f} s"
        except OSError as error:  # the resolver's
            reason = error.strerror or str(error)
        entry.verdict = "failed"
        raise Refusal(502, f"cannot reach {target.host}:{target.port}: {reason}")


async def _connected(address: str, port: int) -> socket.socket:
    """A connection to that address, which needs no lookup. OSError."""
    link = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(link, (address, port))
    except BaseException:
        link.close()
        raise
    return link


async def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """Everything before the empty line, and what came after it already. Refusal 400."""
    loop, data = asyncio.get_running_loop(), b""
    try:
        async with asyncio.timeout(HEAD_S):
            while (end := data.find(b"\r\n\r\n")) < 0 and len(data) <= HEAD_BYTES:
                if not (piece := await loop.sock_recv(client, HEAD_BYTES)):
                    raise Refusal(400, "the request head has no end")
                data += piece
    except TimeoutError:
        raise Refusal(400, f"the request head did not arrive within {HEAD_S:.0f} s") from None
    if not 0 <= end <= HEAD_BYTES:
        raise Refusal(400, f"the request head is larger than {HEAD_BYTES} bytes")
    return data[:end], data[end + 4 :]


async def _tunnel(entry: LogEntry, early: bytes, client: socket.socket, host: socket.socket) -> None:
    """Pass bytes both ways until both have ended; `early` goes up first. When one side breaks, so does the other. OSError."""

    def up(count: int) -> None:
        entry.up_bytes += count

    def down(count: int) -> None:
        entry.down_bytes += count

    try:
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(_pump(early, client, host, up))
            pumps.create_task(_pump(b"", host, client, down))
    except ExceptionGroup as errors:  # not `except*`: Python before 3.11.4 wraps what is raised in it in a group again
        raise errors.exceptions[0] from None


async def _pump(data: bytes, source: socket.socket, target: socket.socket, count: Callable[[int], None]) -> None:
    loop = asyncio.get_running_loop()
    while data or (data := await loop.sock_recv(source, CHUNK_BYTES)):
        await loop.sock_sendall(target, data)
        count(len(data))
        data = b""
    target.shutdown(socket.SHUT_WR)
