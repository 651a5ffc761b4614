"""A provider of models on loopback with the answers of a test, and an agent's program that uses it through the gateway."""

import asyncio
import contextlib
import http.client
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from arena.gateway.config import ModelAccess
from arena.gateway.model.apis import WORDS
from arena.gateway.model.ledger import read as read_ledger
from arena.gateway.model.server import Gateway, serve
from arena.schema import Api, Route

KEY = "sk-real-0123456789abcdef-never-inside"
TARGETS: dict[Api, str] = {
    "anthropic": "/v1/messages?beta=true",
    "responses": "/v1/responses",
    "chat": "/api/v1/chat/completions",
    "gemini": "/v1beta/models/m-1:streamGenerateContent?alt=sse",
}


def events(*bodies: Any, name: bool = False) -> bytes:
    """Those bodies as server-sent events."""
    lines = ((f"event: {body['type']}\n" if name else "") + f"data: {json.dumps(body)}\n\n" for body in bodies)
    return "".join(lines).encode()


STREAMS: dict[Api, bytes] = {
    "anthropic": events(
        {
            "type": "message_start",
            "message": {
                "type": "message",
                "model": "m-1",
                "usage": {
                    "input_tokens": 100,
                    "cache_creation_input_tokens": 20,
                    "cache_read_input_tokens": 30,
                    "output_tokens": 1,
                },
            },
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
        name=True,
    ),
    "responses": events(
        {"type": "response.created", "response": {"object": "response", "model": "m-1", "status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "Grüße"},
        {
            "type": "response.completed",
            "response": {
                "object": "response",
                "model": "m-1-2026-11-20",
                "status": "completed",
                "output": [],
                "usage": {
                    "input_tokens": 150,
                    "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
                    "output_tokens": 40,
                    "output_tokens_details": {"reasoning_tokens": 15},
                },
            },
        },
        name=True,
    ),
    "chat": events(
        {"model": "m-1", "provider": "Deep Infra", "choices": [{"index": 0, "delta": {"content": "Grüße"}}]},
        {"model": "m-1", "provider": "Deep Infra", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {
            "model": "m-1",
            "provider": "Deep Infra",
            "choices": [],
            "usage": {
                "prompt_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
                "completion_tokens": 40,
                "completion_tokens_details": {"reasoning_tokens": 15},
                "cost": 0.0125,
            },
        },
    )
    + b"data: [DONE]\n\n",
    "gemini": events(
        {
            "candidates": [{"content": {"parts": [{"text": "Grüße"}]}}],
            "modelVersion": "m-1",
            "usageMetadata": {"promptTokenCount": 150},
        },
        {
            "candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
            "modelVersion": "m-1",
            "usageMetadata": {
                "promptTokenCount": 150,
                "cachedContentTokenCount": 30,
                "candidatesTokenCount": 25,
                "thoughtsTokenCount": 15,
            },
        },
    ).replace(b"\n", b"\r\n"),
}
TOKENS: dict[Api, tuple[int, int, int, int, int]] = {
    "anthropic": (100, 30, 20, 40, 0),
    "responses": (100, 30, 20, 25, 15),
    "chat": (100, 30, 20, 25, 15),
    "gemini": (120, 30, 0, 25, 15),
}
"""The streams' totals: input, cache read, cache write, output, reasoning."""


@dataclass(frozen=True)
class Answer:
    """One answer of the provider."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream; charset=utf-8"})
    pause_s: float = 0.0
    """Before each piece."""
    late_s: float = 0.0
    """Before the answer begins."""
    hold: threading.Event | None = None
    """What the pieces after the first one wait for."""
    cut: bool = False
    """The connection breaks after the pieces."""


def json_answer(status: int, body: Any) -> Answer:
    """A JSON answer."""
    return Answer([json.dumps(body).encode()], status, {"Content-Type": "application/json"})


@dataclass(frozen=True)
class Received:
    """One request, as it reached the provider."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Provider:
    """Sends `answers` in turn, and repeats the last one. Arena's own requests get `own`."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.own: Answer | None = None
        """None: the answer that the agent's last request got."""
        self._last = self.answers[:1]
        self.received: list[Received] = []
        """Requests of the agent."""
        self.own_received: list[Received] = []
        self.broken = 0
        """Answers during which the client left."""
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.method, request.raw_path, headers, await request.read())
        if WORDS.encode() in received.body:
            self.own_received.append(received)
            answer = self.own or self._last[0]
        else:
            self.received.append(received)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self._last = [answer]
        await asyncio.sleep(answer.late_s)
        out = web.StreamResponse(status=answer.status, headers=answer.headers)
        await out.prepare(request)
        try:
            for number, piece in enumerate(answer.pieces):
                while number and answer.hold and not answer.hold.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(answer.pause_s)
                await out.write(piece)
        except (ConnectionError, asyncio.CancelledError):
            self.broken += 1
            raise
        if answer.cut:
            assert request.transport
            request.transport.close()
        return out


@contextmanager
def provider(*answers: Answer) -> Iterator[Provider]:
    """A provider that serves for the length of the block."""
    made, loop, ready = Provider(answers), asyncio.new_event_loop(), threading.Event()
    over: asyncio.Future[None] = loop.create_future()

    async def main() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{rest:.*}", made.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, auto_decompress=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/base"
        ready.set()
        await over
        assert runner.server is not None
        transports = [each.transport for each in runner.server.connections]
        await runner.cleanup()
        for transport in transports:  # one whose client does not read would stay open for what is left to send
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)  # they close in the next round of the loop

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(20)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set_result, None)
        thread.join()
        loop.close()


@contextmanager
def tls_provider(context: ssl.SSLContext, answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """A provider behind TLS that sends that answer: its URL, and the paths of the requests that it got.

    One thread takes one connection after the other, and closes it before the next: none is open when the block ends.
    """
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 20

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/base", paths
        finally:
            server.shutdown()
            thread.join()


class Reply(NamedTuple):
    """An answer, as it reached the agent's program."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    """Whether the answer came to its proper end."""


@dataclass
class Agent:
    """A gateway, and an agent's program that uses it."""

    gateway: Gateway
    access: ModelAccess
    socket: Path
    ledger: Path
    upstream: Provider = field(default_factory=lambda: Provider(()))

    def connect(self) -> http.client.HTTPConnection:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(20)
        link.connect(str(self.socket))
        connection = http.client.HTTPConnection("127.0.0.1")
        connection.sock = link
        return connection

    def headers(self) -> dict[str, str]:
        """The headers of a program with this interface."""
        names: dict[Api, str] = {"anthropic": "X-Api-Key", "gemini": "X-Goog-Api-Key"}
        name = names.get(self.access.api)
        key = {name: self.gateway.key} if name else {"Authorization": f"Bearer {self.gateway.key}"}
        return {**key, "Content-Type": "application/json", "Accept-Encoding": "gzip, br", "User-Agent": "a program"}

    def body(self, **more: Any) -> bytes:
        """A valid request body."""
        return json.dumps({} if self.access.api == "gemini" else {"model": "m-1", "stream": True} | more).encode()

    def ask(self, body: bytes | None = None, *, target: str = "", method: str = "POST", **headers: str) -> Reply:
        """Send one request on its own connection."""
        with contextlib.closing(self.connect()) as connection:
            given = self.headers() | {name.replace("_", "-"): value for name, value in headers.items()}
            data = self.body() if body is None and method == "POST" else body
            connection.request(method, target or TARGETS[self.access.api], data, given)
            return read(connection)

    def lines(self) -> list[dict[str, Any]]:
        """The ledger's lines."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def ended(self) -> dict[str, Any]:
        """The ledger's last `ended` line."""
        return next(line for line in reversed(self.lines()) if line["event"] == "ended")


def read(connection: http.client.HTTPConnection) -> Reply:
    try:
        answer = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return Reply(0, {}, b"", False)
    headers = {name.lower(): value for name, value in answer.getheaders()}
    try:
        return Reply(answer.status, headers, answer.read(), True)
    except http.client.IncompleteRead as error:
        return Reply(answer.status, headers, error.partial, False)
    except ConnectionResetError:
        return Reply(answer.status, headers, b"", False)


def access(api: Api, url: str, **more: Any) -> ModelAccess:
    """Settings for a gateway of these tests."""
    broker = more.pop("broker", False)
    route = Route(title="The provider", apis=(api,), base_url=url, key="K", broker=broker)
    return ModelAccess(**{"api": api, "route": route, "key": KEY, "model": "m-1"} | more)


@contextmanager
def gateway_agent(folder: Path, given: ModelAccess) -> Iterator[Agent]:
    """A gateway for the length of the block. Checks at the end that its ledger agrees with it, and that it had no trouble."""
    path, ledger = folder / "model", folder / "ledger.jsonl"
    with serve(path, ledger, given) as gateway:
        yield Agent(gateway, given, path, ledger)
    assert read_ledger(ledger) == gateway.usage()
    assert gateway.troubles == []
    assert not path.exists()


@contextmanager
def run(folder: Path, api: Api, *answers: Answer, **more: Any) -> Iterator[Agent]:
    """The same, with a provider that sends those answers."""
    with provider(*answers) as upstream, gateway_agent(folder, access(api, upstream.url, **more)) as made:
        made.upstream = upstream
        yield made
