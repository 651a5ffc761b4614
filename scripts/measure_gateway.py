"""Measure the delay that the model gateway adds to each piece of an answer: direct and through it, in turn, in one run.

A provider in its own process sends 300 events, 5 ms apart, each with its sending time. A client in its own process reads them
over loopback or through the gateway's socket. Needs arena installed, and an otherwise idle machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from arena.gateway.config import ModelAccess
from arena.gateway.model.server import Gateway, serve
from arena.schema import Route

EVENTS, APART_S = 300, 0.005
STREAMS, ROUNDS = (1, 8), 4
KEY = "sk-measure-0123456789"
LAST = {"finish_reason": "stop", "index": 0, "delta": {}}


async def provide() -> None:
    """Print the port and serve until the standard input ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await out.prepare(request)
        next_s = time.monotonic()
        for _ in range(EVENTS):
            next_s += APART_S
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            delta = {"index": 0, "delta": {"content": "twelve words of an answer, as long as they often are"}}
            await out.write(_event([delta], time.monotonic_ns()))
        await out.write(_event([LAST], 0))
        return out

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


def _event(choices: list[object], sent_ns: int) -> bytes:
    return b"data: " + json.dumps({"id": "c", "model": "m", "sent_ns": sent_ns, "choices": choices}).encode() + b"\n\n"


async def ask(where: str, key: str, streams: int) -> list[float]:
    """Milliseconds from sending to receiving, of every event of that many concurrent streams."""
    unix = where.startswith("/")
    connector = aiohttp.UnixConnector(where) if unix else aiohttp.TCPConnector()
    url = f"http://127.0.0.1:{3127 if unix else where}/v1/chat/completions"
    delays_ms: list[float] = []

    async def one(session: aiohttp.ClientSession) -> None:
        async with session.post(url, json={"model": "m", "stream": True}, headers={"Authorization": f"Bearer {key}"}) as found:
            async for line in found.content:
                now_ns = time.monotonic_ns()
                if line.startswith(b"data: ") and (sent_ns := json.loads(line[6:])["sent_ns"]):
                    delays_ms.append((now_ns - sent_ns) / 1e6)

    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(one(session) for _ in range(streams)))
    return delays_ms


def ask_in_process(where: str, key: str, streams: int) -> list[float]:
    """The same from its own process."""
    command = [sys.executable, __file__, "ask", where, key, str(streams)]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout))


def measure(port: str, socket: Path, gateway: Gateway) -> None:
    """Print the table."""
    print("| streams | direct p50, p99 (ms) | through p50, p99 (ms) | added p50, p99 (ms) |\n|---|---|---|---|")
    for streams in STREAMS:
        direct: list[float] = []
        through: list[float] = []
        for _ in range(ROUNDS):  # in turn, so that a busy moment of the machine affects both
            direct += ask_in_process(port, KEY, streams)
            through += ask_in_process(str(socket), gateway.key, streams)
        assert len(direct) == len(through) == ROUNDS * streams * EVENTS
        (d50, d99), (t50, t99) = _percentiles(direct), _percentiles(through)
        print(f"| {streams} | {d50:.2f}, {d99:.2f} | {t50:.2f}, {t99:.2f} | {t50 - d50:+.2f}, {t99 - d99:+.2f} |")


def _percentiles(values: list[float]) -> tuple[float, float]:
    return statistics.median(values), statistics.quantiles(values, n=100)[98]


def main() -> None:
    """Run the part that the arguments name."""
    words = sys.argv[1:]
    if words[:1] == ["provide"]:
        asyncio.run(provide())
    elif words[:1] == ["ask"]:
        print(json.dumps(asyncio.run(ask(words[1], words[2], int(words[3])))))
    else:
        command = [sys.executable, __file__, "provide"]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as provider,
            tempfile.TemporaryDirectory() as folder,
        ):
            assert provider.stdout is not None
            port = provider.stdout.readline().strip()
            route = Route(title="Here", apis=("chat",), base_url=f"http://127.0.0.1:{port}/v1", key="K")
            socket = Path(folder) / "model"
            with serve(socket, Path(folder) / "ledger.jsonl", ModelAccess("chat", route, KEY, "m")) as gateway:
                measure(port, socket, gateway)
                assert gateway.usage().failed == 0


if __name__ == "__main__":
    main()
