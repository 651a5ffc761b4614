"""The stub over HTTP: four APIs under any prefix, and a broker where the path contains `/api/v1`, as OpenRouter's does."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web

from . import anthropic, chat, gemini, responses
from .plan import FAILURES, NO_CREDIT, Plan, ends_badly, reply
from .script import COMPACTION, ParsedRequest

RETRY_AFTER_S = 1
LARGEST_BYTES = 64 << 20
ANSWERS: tuple[tuple[str, str, ModuleType], ...] = (
    ("anthropic", r"/v1/messages", anthropic),
    ("responses", r"/responses", responses),
    ("chat", r"/chat/completions", chat),
    ("gemini", r"/models/[^/]+:(streamG|g)enerateContent", gemini),
)
"""(API, end of the path of a request for an answer, its module)."""
COUNTS = re.compile(r".*(/messages/count_tokens|:countTokens)")


class Server:
    """Server of one plan. It logs one JSON line when it has read a request, and one when it has answered."""

    def __init__(self, plan: Plan, log: Path | None) -> None:
        self.plan = plan
        self.log = log
        self.numbers = itertools.count(1)
        self.broke = False
        self.answered = 0
        self.turn = 0
        """Of a session with a length: the next one."""
        self.shortened = False
        """Whether a request came with fewer turns than one before it."""

    def app(self) -> web.Application:
        """The application that serves it."""
        app = web.Application(client_max_size=LARGEST_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    def note(self, **fields: Any) -> None:
        """Append a line to the log."""
        if self.log is not None:
            with self.log.open("ab", buffering=0) as file:
                file.write(json.dumps({"at_s": time.time(), **fields}).encode() + b"\n")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle any request."""
        number, raw = next(self.numbers), await request.read()
        body = json.loads(raw) if raw else {}
        api, module = next(
            ((name, module) for name, end, module in ANSWERS if re.fullmatch(f".*{end}", request.path)), ("", None)
        )
        self.note(
            kind="request",
            number=number,
            method=request.method,
            path=request.path_qs,
            headers=dict(request.headers),
            api=api,
            body=body,
        )
        if module is None or request.method != "POST":
            return self.answer_other(request)
        if self.plan.key is not None and key(request) != self.plan.key:
            self.note(kind="answer", number=number, status=401, wrong_key=True)
            return web.json_response(module.failure(401, "the stub expects another key"), status=401)
        parsed = replace(module.parse(body, request.path), compacts=self.plan.length > 0 and compacts(body))
        if failure := FAILURES.get(self.plan.mode):
            status, message = failure
            self.note(kind="answer", number=number, status=status, turn=parsed.turn, side=parsed.side)
            headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else {}
            return web.json_response(module.failure(status, message), status=status, headers=headers)
        if self.plan.mode == "no_credit" and (self.broke or (parsed.turn >= 1 and not parsed.side)):
            self.broke = True
            status, words = NO_CREDIT[api]
            self.note(kind="answer", number=number, status=status, turn=parsed.turn, side=parsed.side)
            return web.json_response(words, status=status)
        try:
            return await self.answer(request, number, module, parsed)
        except ConnectionResetError:
            self.note(kind="gone", number=number)
            return web.Response()  # the client is gone

    def answer_other(self, request: web.Request) -> web.Response:
        """Answer what agent CLIs request besides answers."""
        if COUNTS.fullmatch(request.path):
            return web.json_response({"input_tokens": 1000, "totalTokens": 1000})
        if request.method == "HEAD" or request.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [], "models": []})
        return web.json_response({"error": {"message": f"the stub has no {request.path}"}}, status=404)

    async def answer(self, request: web.Request, number: int, module: ModuleType, parsed: ParsedRequest) -> web.StreamResponse:
        """Send the next turn of the script, whole or as the mode breaks it."""
        crowded = True
        if self.plan.length:
            parsed, crowded = self.placed(parsed)
        answer = reply(parsed, self.plan, "/api/v1/" in request.path, crowded=crowded, number=self.answered)
        self.answered += 1
        usage = {"usage": asdict(module.reported(answer.tokens)) | {"cost_usd": answer.cost_usd}} if answer.metered else {}
        line = {
            "kind": "answer",
            "number": number,
            "status": 200,
            "turn": parsed.turn,
            "side": parsed.side,
            "model": answer.model,
        }
        # A provider that begins to fail fails every request from then on, with arena's own.
        broken = self.broke = self.broke or ends_badly(parsed, self.plan)
        if not parsed.stream and (not broken or self.plan.mode == "early"):
            self.note(**line, **usage)
            return web.json_response(module.whole(answer))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        if broken:
            self.note(**line, broken=self.plan.mode)
            await self.broken(request, response, module, replace(answer, calls=() if self.plan.mode == "early" else answer.calls))
            return response
        for frame in [*module.frames(answer), *module.end(answer)]:
            await response.write(frame.encoded())
        self.note(**line, **usage)
        await response.write_eof()
        return response

    def placed(self, parsed: ParsedRequest) -> tuple[ParsedRequest, bool]:
        """The request with its turn in the whole session, and whether its context is full: from the middle until shortened."""
        if parsed.side:
            return parsed, False
        self.shortened = self.shortened or parsed.turn < self.turn
        parsed = replace(parsed, turn=self.turn)
        self.turn += 1
        return parsed, self.turn > self.plan.length // 2 and not self.shortened

    async def broken(self, request: web.Request, response: web.StreamResponse, module: ModuleType, answer: Any) -> None:
        """Send the answer as the mode breaks it."""
        if self.plan.mode == "hang":
            await asyncio.get_running_loop().create_future()  # until the client goes
        frames = module.frames(answer)
        for frame in frames if self.plan.mode == "early" else frames[: max(1, len(frames) // 2)]:
            await response.write(frame.encoded())
        if self.plan.mode == "cut":
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()


def compacts(body: dict[str, Any]) -> bool:
    """Whether a request's last message asks for a summary of those before it."""
    given = next((body[name] for name in ("messages", "input", "contents") if body.get(name)), "")
    return COMPACTION.search(json.dumps(given[-1] if isinstance(given, list) else given)) is not None


def key(request: web.Request) -> str | None:
    """The key of the request, from any of the places where clients put it."""
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    named = (request.headers.get(name) for name in ("x-api-key", "x-goog-api-key"))
    return bearer or next((value for value in named if value), None) or request.query.get("key")
