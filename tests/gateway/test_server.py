"""The whole model gateway: a real provider on loopback, a real socket for the agent's program."""

import gzip
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from provider import (
    KEY,
    STREAMS,
    TARGETS,
    TOKENS,
    Agent,
    Answer,
    access,
    events,
    gateway_agent,
    json_answer,
    provider,
    run,
    tls_provider,
)

from arena.errors import UsageError
from arena.files import jsonl
from arena.files.documents import to_yaml
from arena.gateway.config import Caps, Stop
from arena.gateway.model import exchange, server
from arena.gateway.model.ledger import read
from arena.gateway.model.policy import BODY_BYTES
from arena.gateway.model.server import serve
from arena.gateway.unix_server import CONNECTIONS
from arena.schema import Api
from arena.system import process

APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
BUCKETS = ("input", "cache_read", "cache_write", "output", "reasoning")
EMPTY = events({"choices": [{"delta": {"content": "hm"}}], "model": "m-1"})


def wait(until, seconds=20.0):
    """Wait until it is true."""
    give_up = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("size", [7, 1 << 16])
def test_an_answer_passes_byte_for_byte_and_is_metered(tmp_path: Path, api: Api, size: int):
    stream = STREAMS[api]
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    with run(tmp_path, api, Answer(pieces)) as agent:
        reply = agent.ask()
        assert (reply.status, reply.body, reply.whole) == (200, stream, True)
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        received = agent.upstream.received[0]
        assert received.target == "/base" + TARGETS[api].replace("/api", "").removeprefix("/v1beta").removeprefix("/v1")
        assert received.body == agent.body()
        assert received.headers["user-agent"] == "a program"
        assert received.headers["accept-encoding"] == "identity"
        wait(lambda: agent.gateway.in_flight == 0)
        usage = agent.gateway.usage()
        assert tuple(getattr(usage, f"{name}_tokens") for name in BUCKETS) == TOKENS[api]
        assert (usage.requests, usage.failed, usage.unmetered) == (1, 0, 0)
        assert usage.models == ("m-1-2026-11-20" if api == "responses" else "m-1",)
        assert usage.cost_usd == (0.0125 if api == "chat" else None)
        assert agent.ended()["how"] == "whole"
        assert (agent.gateway.stop, agent.gateway.last_failure, agent.gateway.backoff_s) == (None, "", 0.0)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (
            "anthropic",
            {"type": "message", "model": "m-1", "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 4}},
        ),
        (
            "responses",
            {"object": "response", "model": "m-1", "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 4}},
        ),
        ("chat", {"model": "m-1", "choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        (
            "gemini",
            [
                {"modelVersion": "m-1", "candidates": [{}]},
                {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}},
            ],
        ),
    ],
)
def test_a_whole_answer_is_metered(tmp_path: Path, api: Api, body: Any):
    with run(tmp_path, api, json_answer(200, body)) as agent:
        reply = agent.ask()
        assert (reply.body, reply.whole) == (json.dumps(body).encode(), True)
        wait(lambda: agent.gateway.in_flight == 0)
        usage = agent.gateway.usage()
        assert (usage.input_tokens, usage.output_tokens, usage.models, usage.failed) == (3, 4, ("m-1",), 0)


def test_an_error_inside_a_stream_is_recorded(tmp_path: Path):
    start = STREAMS["anthropic"].partition(b"event: message_delta")[0]
    stream = start + events({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    with run(tmp_path, "anthropic", Answer([stream])) as agent:
        assert agent.ask().body == stream
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.last_failure == "an error inside an answer: busy"
        assert (agent.ended()["how"], agent.ended()["error"]) == ("error", "busy")


def test_too_large_bodies_are_refused(tmp_path: Path):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]])) as agent:
        assert agent.ask(b" " * (BODY_BYTES + 1)).status in (413, 0)
        assert agent.ask().status == 200
        assert len(agent.upstream.received) == 1


def test_bodies_beside_too_many_others_may_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "HELD_BYTES", 1000)
    with run(tmp_path, "chat", Answer([STREAMS["chat"]])) as agent:
        reply = agent.ask(agent.body(user="x" * 1000))
        assert (reply.status, reply.headers.get("x-should-retry")) == (503, None)
        assert agent.ask().status == 200
        assert agent.gateway.last_failure == ""


def test_a_cap_in_dollars_needs_a_price(tmp_path: Path):
    with (
        pytest.raises(UsageError, match="the price of m-1 by The provider is unknown"),
        run(tmp_path, "chat", Answer(), caps=Caps(cost_usd=1.0)),
    ):
        pass


def test_unreadable_authorities_are_a_usage_error(tmp_path: Path):
    for file in (tmp_path / "none.pem", tmp_path):
        with (
            pytest.raises(UsageError, match="cannot read certificate authorities"),
            run(tmp_path, "chat", Answer(), authorities=file),
        ):
            pass


def test_a_proxys_password_is_used_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with provider(Answer([STREAMS["chat"]])) as server:
        address = server.url.removeprefix("http://").removesuffix("/base")
        monkeypatch.setenv("http_proxy", f"http://me:hidden-word@{address}")
        monkeypatch.setenv("https_proxy", f"http://me:hidden-word@{address}")
        monkeypatch.delenv("no_proxy", raising=False)
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        with gateway_agent(tmp_path / "one", access("chat", "http://p.test/v1")) as agent:
            assert agent.ask().body == STREAMS["chat"]
        assert server.received[0].target == "http://p.test/v1/chat/completions"
        assert "proxy-authorization" in server.received[0].headers
        server.answers = [Answer([], 403)]
        with gateway_agent(tmp_path / "two", access("chat", "https://p.test/v1")) as agent:
            reply = agent.ask()
            assert reply.status == 502
            assert "hidden-word" not in str(reply) + agent.ledger.read_text()


def test_certificates_are_verified(tmp_path: Path):
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl is missing, which makes the certificate")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=a -addext subjectAltName=IP:127.0.0.1"
    pair, own = tmp_path / "pair.pem", tmp_path / "own.pem"
    command = [openssl, *words.split(), "-keyout", str(pair), "-out", str(own)]
    assert process.run(command, limit_s=60).returncode == 0
    pair.write_text(pair.read_text() + own.read_text())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with tls_provider(context, STREAMS["chat"]) as (url, paths):
        with gateway_agent(tmp_path / "one", access("chat", url)) as agent:
            assert agent.ask().status == 502
            wait(lambda: agent.gateway.in_flight == 0)
            assert "certificate" in agent.gateway.last_failure
        assert paths == []
        with gateway_agent(tmp_path / "two", access("chat", url, authorities=own)) as agent:
            assert agent.ask().body == STREAMS["chat"]
        assert paths == ["/base/chat/completions"]


@pytest.mark.parametrize("api", APIS)
def test_the_real_key_goes_out_and_nowhere_else(tmp_path: Path, api: Api):
    with run(tmp_path, api, Answer([STREAMS[api]])) as agent:
        reply = agent.ask(Cookie="a=b", Authorization=f"Bearer {agent.gateway.key}")
        headers = agent.upstream.received[0].headers
        name, value = {"anthropic": ("x-api-key", KEY), "gemini": ("x-goog-api-key", KEY)}.get(
            api, ("authorization", f"Bearer {KEY}")
        )
        assert headers[name] == value
        assert agent.gateway.key not in str(agent.upstream.received)
        assert "cookie" not in headers
        assert str(agent.upstream.received).count(KEY) == 1
    inside = str(reply) + agent.ledger.read_text() + repr(agent.access) + repr(agent.gateway) + str(vars(agent.gateway))
    assert KEY not in inside


def test_a_bearer_route_gets_the_key_as_a_bearer(tmp_path: Path):
    with provider(Answer([STREAMS["anthropic"]])) as upstream:
        route = access("anthropic", upstream.url).route.model_copy(update={"bearer": True})
        with gateway_agent(tmp_path, access("anthropic", upstream.url, route=route)) as agent:
            assert agent.ask().status == 200
        assert upstream.received[0].headers["authorization"] == f"Bearer {KEY}"
        assert "x-api-key" not in upstream.received[0].headers


def test_a_key_in_the_query_stays_inside(tmp_path: Path):
    with run(tmp_path, "gemini", Answer([STREAMS["gemini"]])) as agent:
        target = f"/v1beta/models/m-1:streamGenerateContent?key={agent.gateway.key}&alt=sse"
        assert agent.ask(target=target, X_Goog_Api_Key="").status == 200
        assert agent.upstream.received[0].target == "/base/models/m-1:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("api", APIS)
def test_requests_without_the_runs_key_are_refused(tmp_path: Path, api: Api):
    with run(tmp_path, api, Answer([STREAMS[api]])) as agent:
        for wrong in ("", KEY, agent.gateway.key[:-1]):
            reply = agent.ask(X_Api_Key=wrong, X_Goog_Api_Key=wrong, Authorization=f"Bearer {wrong}")
            assert reply.status == 401
            assert b"not the key of this run" in reply.body
        assert agent.upstream.received == []
        assert [line["event"] for line in agent.lines()] == ["refused"] * 3
        assert agent.gateway.usage().requests == 0


def test_head_and_models_are_answered_by_the_gateway(tmp_path: Path):
    with run(tmp_path, "anthropic", Answer()) as agent:
        assert agent.ask(method="HEAD", target="/").status == 200
        assert agent.ask(method="HEAD", target="/api/hello").status == 200
        models = agent.ask(method="GET", target="/v1/models?limit=5")
        assert [model["id"] for model in json.loads(models.body)["data"]] == ["m-1"]
        assert agent.ask(Upgrade="websocket", Connection="Upgrade").status == 426
        assert agent.ask(target="/v1/files").status == 404
        assert agent.upstream.received == []


def test_counting_tokens_is_not_a_model_request(tmp_path: Path):
    with run(tmp_path, "anthropic", json_answer(200, {"input_tokens": 5}), json_answer(404, {})) as agent:
        assert json.loads(agent.ask(target="/v1/messages/count_tokens").body) == {"input_tokens": 5}
        assert agent.ask(target="/v1/messages/count_tokens").status == 404
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.usage().requests == 0
        assert agent.gateway.stop is None


def test_compressed_requests_pass_unchanged(tmp_path: Path):
    with run(tmp_path, "responses", Answer([STREAMS["responses"]])) as agent:
        packed = gzip.compress(agent.body(reasoning={"effort": "high"}))
        assert agent.ask(packed, Content_Encoding="gzip").status == 200
        assert agent.upstream.received[0].body == packed
        assert agent.upstream.received[0].headers["content-encoding"] == "gzip"
        assert agent.gateway.usage().efforts == ("high",)
        assert agent.ask(gzip.compress(b'{"model": "m-2"}'), Content_Encoding="gzip").status == 403
        assert agent.ask(b"x", Content_Encoding="zstd").status == 415


def test_a_broken_answer_breaks_off_inside_too(tmp_path: Path):
    half = STREAMS["anthropic"].partition(b"event: content")[0]
    with run(tmp_path, "anthropic", Answer([half], cut=True)) as agent:
        reply = agent.ask()
        assert (reply.status, reply.body, reply.whole) == (200, half, False)
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.ended()["how"] == "cut"
        assert "broke off" in agent.gateway.last_failure
        usage = agent.gateway.usage()
        assert (usage.failed, usage.input_tokens, usage.output_tokens) == (1, 100, 1)  # the reported part counts
        assert agent.gateway.stop is None


def test_a_program_that_leaves_ends_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "REST_S", 0.1)
    pieces = [events({"model": "m-1", "choices": []})] * 400
    with run(tmp_path, "chat", Answer(pieces, pause_s=0.02)) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        assert link.getresponse().read(10)
        link.sock.shutdown(socket.SHUT_RDWR)
        link.close()
        wait(lambda: agent.upstream.broken == 1)
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.ended()["how"] == "left"
        assert agent.gateway.usage().failed == 0


@pytest.mark.parametrize(("status", "stops"), [(401, True), (402, True), (403, True), (404, True), (429, False), (500, False)])
def test_provider_errors_pass_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, stops: bool):
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    body = {"error": {"message": f"no, because of {status}", "type": "t"}}
    with run(tmp_path, "chat", json_answer(status, body)) as agent:
        reply = agent.ask()
        assert (reply.status, json.loads(reply.body)) == (status, body)
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.last_failure == f"status {status}: no, because of {status}"
        words = f"status {status}: no, because of {status}"
        stop = Stop("provider_error", f"The provider: {words} (arena's own request: {words})")
        assert agent.gateway.stop == (stop if stops else None)
        if stops:
            assert agent.ask().status == 400
            assert len(agent.upstream.received) == 1


def test_status_400_is_not_the_providers_fault(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(400, {"error": {"message": "too long"}}), patience_s=0.0) as agent:
        assert [agent.ask().status for _ in range(10)] == [400] * 10
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.gateway.stop, agent.gateway.last_failure, agent.ended()["how"]) == (None, "", "rejected")
        assert agent.gateway.usage().failed == 10


def test_a_key_that_google_rejects_ends_the_run(tmp_path: Path):
    error = {"error": {"code": 400, "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}
    with run(tmp_path, "gemini", json_answer(400, error)) as agent:
        agent.ask()
        wait(lambda: agent.gateway.stop is not None)
        assert (stop := agent.gateway.stop) is not None
        assert stop.status == "provider_error" and "API key not valid" in stop.message


@pytest.mark.parametrize("status", [403, 404])
def test_403_after_success_is_the_requests_fault(tmp_path: Path, status: int):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]]), json_answer(status, {"error": "not this"})) as agent:
        assert [agent.ask().status for _ in range(3)] == [200, status, status]
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.gateway.stop, agent.gateway.last_failure, agent.ended()["how"]) == (None, "", "rejected")


def test_patience_ends_between_requests(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(503, {"error": "busy"}), patience_s=0.5) as agent:
        agent.ask()
        assert agent.gateway.stop is None
        wait(lambda: agent.gateway.stop is not None)
        stop: Any = agent.gateway.stop
        assert "no good answer for" in stop.message


def test_patience_ends_during_retries(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(503, {"error": "busy"}), patience_s=0.2) as agent:
        give_up = time.monotonic() + 20
        while agent.gateway.stop is None and time.monotonic() < give_up:
            agent.ask()
            time.sleep(0.02)
        assert agent.gateway.stop is not None
        assert agent.gateway.stop.status == "provider_error"
        assert "no good answer" in agent.gateway.stop.message
        assert agent.gateway.backoff_s == 0.2  # and no more: the patience


def test_a_good_answer_ends_the_back_off(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(429, {}), Answer([STREAMS["chat"]])) as agent:
        agent.ask()
        time.sleep(0.1)
        agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.gateway.last_failure, agent.gateway.usage().failed) == ("", 1)
        assert 0.05 < agent.gateway.backoff_s < 10
        assert agent.gateway.usage().backoff_s == agent.gateway.backoff_s


def test_an_unreachable_provider_is_a_502(tmp_path: Path):
    with provider(Answer()) as upstream:
        pass
    with gateway_agent(tmp_path, access("gemini", upstream.url)) as agent:
        reply = agent.ask()
        assert reply.status == 502
        assert "cannot be reached" in json.loads(reply.body)["error"]["message"]
        wait(lambda: agent.gateway.in_flight == 0)
        assert "cannot be reached" in agent.gateway.last_failure
        assert (agent.ended()["how"], agent.ended()["status"]) == ("error", None)


def test_endless_retries_end_the_run(tmp_path: Path):
    with run(tmp_path, "chat", Answer([EMPTY])) as agent:
        replies = [agent.ask() for _ in range(12)]
        assert [reply.status for reply in replies] == [200] * 8 + [400] * 4
        assert agent.gateway.stop is not None
        assert "without a finish reason" in agent.gateway.stop.message
        assert len(agent.upstream.received) == 8
        assert agent.gateway.usage().unmetered == 8


def test_an_answer_of_another_model_ends_the_run(tmp_path: Path):
    first = events({"model": "m-2", "choices": [{"delta": {"content": "hi"}}]})
    pieces = [first, *[events({"model": "m-2", "choices": [{"delta": {"content": "more"}}]})] * 20]
    with run(tmp_path, "chat", Answer(pieces, pause_s=0.05)) as agent:
        reply = agent.ask()
        assert not reply.whole
        assert b"more" not in reply.body
        wait(lambda: agent.gateway.in_flight == 0)
        words = "model 'm-2' answered, and the request was for 'm-1'"
        assert agent.gateway.stop == Stop("provider_error", f"{words} (arena's own request: {words})")
        assert agent.gateway.usage().models == ("m-2",)


@pytest.mark.parametrize(("pin", "good"), [("deepinfra", True), ("deep-infra/fp8", True), ("fireworks", False)])
def test_a_pin_is_checked_in_request_and_answer(tmp_path: Path, pin: str, good: bool):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]]), broker=True, provider=(pin,)) as agent:
        assert agent.ask().status == 403
        assert agent.ask(agent.body(provider={"order": [pin]})).status == 403
        assert agent.upstream.received == []
        body = agent.body(provider={"order": [pin], "allow_fallbacks": False})
        agent.ask(body)
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.upstream.received[0].body == body
        assert (agent.gateway.stop is None) == good
        assert agent.gateway.usage().providers == ("Deep Infra",)


@pytest.mark.parametrize("cut", [3, len(KEY) - 1, len(KEY)])
def test_the_key_in_an_answer_stays_out(tmp_path: Path, cut: int):
    data = b'data: {"x": "' + KEY.encode() + b'"}\n\n'
    at = data.index(KEY.encode()) + cut
    with run(tmp_path, "chat", Answer([data[:at], data[at:]], pause_s=0.05)) as agent:
        reply = agent.ask()
        assert KEY[:2].encode() not in reply.body
        wait(lambda: agent.gateway.in_flight == 0)
        words = "the provider's answer holds the real key (arena's own request: the answer holds the real key)"
        assert agent.gateway.stop == Stop("provider_error", words)
    assert KEY not in agent.ledger.read_text()


@pytest.mark.parametrize("answer", [json_answer(401, {"error": {"message": f"bad key {KEY}"}}), Answer([], 200, {"x-what": KEY})])
def test_the_key_in_an_error_or_a_header_stays_out(tmp_path: Path, answer: Answer):
    with run(tmp_path, "chat", answer) as agent:
        assert KEY not in str(agent.ask())
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.stop is not None
        assert KEY not in agent.gateway.stop.message + agent.gateway.last_failure
    assert KEY not in agent.ledger.read_text()


def test_redirects_and_compressed_answers_are_refused(tmp_path: Path):
    moved = Answer([], 302, {"Location": "http://127.0.0.1:1/"})
    packed = Answer([gzip.compress(STREAMS["chat"])], 200, {"Content-Encoding": "gzip"})
    with run(tmp_path, "chat", moved, packed) as agent:
        for words in ("does not follow redirects", "could not meter it"):
            reply = agent.ask()
            assert reply.status == 502
            assert words in json.loads(reply.body)["error"]["message"]
        assert agent.gateway.usage().failed == 2


def test_a_refusal_of_the_model_is_reported(tmp_path: Path):
    refusal = events(
        {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 2}},
    )
    with run(tmp_path, "anthropic", Answer([refusal]), Answer([STREAMS["anthropic"]])) as agent:
        agent.ask()
        wait(lambda: agent.gateway.refused)
        assert agent.ended()["how"] == "refused"
        agent.ask()
        wait(lambda: not agent.gateway.refused)
        assert agent.gateway.usage().failed == 0


@pytest.mark.parametrize("caps", [Caps(requests=2), Caps(tokens=300), Caps(cost_usd=0.02)])
def test_used_up_caps_end_the_run(tmp_path: Path, caps: Caps):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]]), broker=True, caps=caps) as agent:
        assert [agent.ask().status for _ in range(2)] == [200] * 2
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.stop is None  # the agent may still use the answer
        reply = agent.ask()
        assert reply.status == 400
        assert reply.headers["x-should-retry"] == "false"
        assert agent.gateway.stop is not None
        assert (stop := agent.gateway.stop) is not None and stop.status == "budget_exhausted"
        assert len(agent.upstream.received) == 2


def test_many_programs_at_once(tmp_path: Path):
    with run(tmp_path, "chat", Answer([STREAMS["chat"][:50], STREAMS["chat"][50:]], pause_s=0.01)) as agent:
        idle = [agent.connect() for _ in range(CONNECTIONS // 2)]
        bodies: list[bytes] = []
        threads = [threading.Thread(target=lambda: bodies.append(agent.ask().body)) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bodies == [STREAMS["chat"]] * 40
        for link in idle:
            link.close()
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.gateway.usage().requests == 40
        assert agent.gateway.usage().output_tokens == 40 * 25


def test_nonsense_on_the_socket_does_no_harm(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]])) as agent:
        for nonsense in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -4\r\n\r\n", b""):
            link = agent.connect()
            link.sock.sendall(nonsense)
            link.close()
        link = agent.connect()
        link.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n")
        link.close()
        assert agent.ask().status == 200
    assert capfd.readouterr() == ("", "")


def test_requests_in_flight_at_the_end_are_recorded(tmp_path: Path):
    with (
        provider(Answer([b"data: {}\n\n"] * 1000, pause_s=0.02)) as upstream,
        gateway_agent(tmp_path, access("chat", upstream.url)) as agent,
    ):
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        assert link.getresponse().read(10)
    link.close()
    assert agent.ended()["how"] == "left"
    assert agent.gateway.in_flight == 0


SERVES = """
import sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from provider import access, serve
with serve(Path(sys.argv[1]), Path(sys.argv[2]), access("chat", sys.argv[3])) as gateway:
    print(gateway.key, flush=True)
    time.sleep(60)
"""


def test_a_killed_arena_leaves_its_ledger(tmp_path: Path):
    slow = Answer([STREAMS["chat"][:40], STREAMS["chat"][40:]], pause_s=10)
    with provider(Answer([STREAMS["chat"]]), slow) as upstream:
        command = [sys.executable, "-c", SERVES, str(tmp_path / "model"), str(tmp_path / "ledger.jsonl"), upstream.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
            assert process.stdout
            key = process.stdout.readline().strip()
            program = f"""
import http.client, socket, sys
for _ in range(2):
    link = http.client.HTTPConnection("127.0.0.1"); link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect({str(tmp_path / "model")!r})
    headers = {{"Authorization": "Bearer {key}", "Content-Type": "application/json"}}
    link.request("POST", "/v1/chat/completions", b'{{"model": "m-1"}}', headers)
    link.getresponse().read()
"""
            with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as asking:
                wait(lambda: (tmp_path / "ledger.jsonl").read_text().count('"began"') == 2)
                os.kill(process.pid, signal.SIGKILL)
                asking.wait(20)
    usage = read(tmp_path / "ledger.jsonl")
    assert (usage.requests, usage.unmetered, usage.input_tokens, usage.cost_usd) == (2, 1, 100, 0.0125)


def leave(agent, *, read=True, body=None):
    """Send a request, read the beginning of the answer, and leave."""
    link = agent.connect()
    link.request("POST", TARGETS[agent.access.api], body or agent.body(), agent.headers())
    if read:
        assert link.getresponse().read1(10)
    else:
        time.sleep(0.5)
    link.sock.shutdown(socket.SHUT_RDWR)
    link.close()


@pytest.mark.parametrize("api", APIS)
def test_leaving_before_the_last_event_is_not_free(tmp_path: Path, api: Api):
    half = len(STREAMS[api]) // 2
    slow = Answer([STREAMS[api][:half], STREAMS[api][half:]], pause_s=0.2)
    include = {"stream_options": {"include_usage": True}} if api == "chat" else {}
    with run(tmp_path, api, slow, caps=Caps(tokens=50)) as agent:
        body = None if api == "gemini" else agent.body(**include)
        leave(agent, body=body)
        wait(lambda: agent.gateway.in_flight == 0)
        usage = agent.gateway.usage()
        assert tuple(getattr(usage, f"{name}_tokens") for name in BUCKETS) == TOKENS[api]
        how = "whole" if api == "chat" else "left"  # the first half has its finish reason
        assert (agent.ended()["how"], usage.unmetered) == (how, 0)
        assert agent.ask(body).status == 400
        assert (stop := agent.gateway.stop) is not None and stop.status == "budget_exhausted"


@pytest.mark.parametrize(("finish", "how"), [("refusal", "refused"), ("end_turn", "whole"), (None, "left")])
def test_leaving_after_the_finish_reason(tmp_path: Path, finish: str | None, how: str):
    """goose leaves a refusal's stream before its last event, and calls its session complete."""
    begin = events({"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 1, "output_tokens": 1}}})
    delta = events({"type": "message_delta", "delta": {"stop_reason": finish}, "usage": {"output_tokens": 2}})
    hold = threading.Event()
    slow = Answer([begin + delta, events({"type": "message_stop"})], hold=hold)
    with run(tmp_path, "anthropic", slow) as agent:
        leave(agent)
        time.sleep(0.2)  # the gateway finds that the program has left
        hold.set()
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.ended()["how"], agent.gateway.refused) == (how, how == "refused")
        assert agent.gateway.usage().output_tokens == 2


def test_an_answer_that_never_ends_is_charged_by_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "REST_S", 0.1)
    endless = Answer([events({"model": "m-1", "choices": [{"delta": {"content": "x" * 3000}}]})] * 400, pause_s=0.02)
    with run(tmp_path, "chat", endless, broker=True, caps=Caps(tokens=1000)) as agent:
        leave(agent)
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.ended()["charged_tokens"] >= 1000
        assert agent.gateway.usage().unmetered == 1
        assert b"estimated for answers without numbers" in agent.ask().body
        assert len(agent.upstream.received) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "how"), [(True, "stalled"), (False, "left")])
def test_only_a_silent_stream_is_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, how: str):
    monkeypatch.setattr(exchange, "STALLED_S", 0.2)
    with run(tmp_path, "chat", Answer([STREAMS["chat"]], pause_s=3)) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(stream=stream), agent.headers())
        time.sleep(0.6)
        link.sock.close()
        link.close()
        wait(lambda: agent.gateway.in_flight == 0)
        assert agent.ended()["how"] == how
        assert (len(agent.upstream.own_received), agent.gateway.last_failure) == (int(stream), "")  # arena's own is answered


@pytest.mark.slow
def test_a_program_that_does_not_read_is_no_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "STALLED_S", 0.2)
    monkeypatch.setattr(exchange, "REST_S", 0.1)
    with run(tmp_path, "chat", Answer([b"data: {}\n\n" * 200_000] * 20)) as agent:
        leave(agent, read=False)
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.ended()["how"], agent.gateway.last_failure) == ("left", "")


@pytest.mark.parametrize("cut", [False, True])
def test_ending_the_sandbox_causes_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool):
    monkeypatch.setattr(exchange, "STALLED_S", 0.1)
    with run(tmp_path, "chat", Answer([STREAMS["chat"][:40]] * 2, pause_s=0.5, cut=cut), patience_s=0.0) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        time.sleep(0.3)
        agent.gateway.leaving()
        if not cut:
            link.sock.close()
        wait(lambda: agent.gateway.in_flight == 0)
        link.close()
        usage = agent.gateway.usage()
        assert (agent.ended()["how"], usage.failed, usage.backoff_s) == ("left", 0, 0.0)
        assert (agent.gateway.last_failure, agent.gateway.stop, agent.gateway.refused) == ("", None, False)


@pytest.mark.parametrize("ended", [False, True])
def test_a_program_may_end_by_the_head_of_a_failure(tmp_path: Path, ended: bool):
    """The text that names the account's fault comes later, and the run does not count all the same."""
    text = json.dumps({"error": {"code": "insufficient_quota", "message": "no credit"}}).encode()
    with run(tmp_path, "chat", Answer([text], 402, {"Content-Type": "application/json"}, pause_s=0.3)) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        assert link.getresponse().status == 402
        link.sock.close()
        link.close()
        if ended:
            agent.gateway.leaving()
        agent.gateway.settle()
        assert (agent.ended()["how"], agent.gateway.last_failure) == ("account", "status 402: no credit")


INSIDE = events({"error": {"code": 502, "message": "busy", "metadata": {"error_type": "provider_overloaded"}}})
"""An error inside an answer of status 200."""
BY_STATUS = Answer([b'{"error": "busy"}'], 503, {"Content-Type": "application/json"}, pause_s=0.5)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("late", [BY_STATUS, Answer([INSIDE, b": more"], pause_s=0.3)], ids=["status", "inside"])
def test_a_program_may_ask_again_before_a_failure_ends(tmp_path: Path, left: bool, late: Answer):
    """The provider's last answer is the good one, though the rest of the failure comes later."""
    with run(tmp_path, "chat", late, Answer([STREAMS["chat"]])) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        answer = link.getresponse()
        assert answer.status == late.status
        if late.status == 200:
            assert answer.read1(10)
        if left:
            link.sock.close()
            link.close()
        agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        link.close()
        assert [line["how"] for line in agent.lines() if line["event"] == "ended"] == ["error", "whole"]
        assert not agent.gateway.broken_off


def test_no_request_waits_for_a_failure_without_end(tmp_path: Path):
    hold = threading.Event()
    endless = Answer([b'{"error": ', b'"busy"}'], 503, {"Content-Type": "application/json"}, hold=hold)
    with run(tmp_path, "chat", endless, Answer([STREAMS["chat"]])) as agent:
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        assert link.getresponse().status == 503
        began_s = time.monotonic()
        assert agent.ask().status == 200
        assert exchange.FAILURE_S / 3 < time.monotonic() - began_s < exchange.FAILURE_S + 5
        began_s = time.monotonic()
        assert agent.ask().status == 200
        assert time.monotonic() - began_s < exchange.FAILURE_S * 0.9, "the same failure holds nothing up again"
        hold.set()
        wait(lambda: agent.gateway.in_flight == 0)
        assert [line["how"] for line in agent.lines() if line["event"] == "ended"] == ["whole", "whole", "error"]
        assert not agent.gateway.broken_off, "the failure was seen before the good answers"
        link.close()


@pytest.mark.parametrize("ended", [False, True])
def test_a_program_may_end_by_an_error_inside_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool):
    """Qwen Code does, before the stream ends. The stream may never end: the error decides, however long it was silent before."""
    monkeypatch.setattr(exchange, "STALLED_S", 0.0)
    hold = threading.Event()
    with run(tmp_path, "chat", Answer([INSIDE, b": more"], hold=hold)) as agent:
        agent.upstream.own = json_answer(503, {})
        leave(agent)
        if ended:
            agent.gateway.leaving()
        agent.gateway.settle()
        assert (agent.ended()["how"], agent.gateway.last_failure) == ("error", "an error inside an answer: busy")
        hold.set()


def test_after_leaving_the_provider_has_no_faults(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(503, {"error": "busy"}), json_answer(401, {})) as agent:
        agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        last_failure = agent.gateway.last_failure
        agent.gateway.leaving()
        granted_s = agent.gateway.backoff_s
        agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.gateway.stop, agent.gateway.last_failure) == (None, last_failure)
        time.sleep(0.1)
        assert agent.gateway.usage().backoff_s == granted_s
    assert agent.gateway.usage().backoff_s == granted_s


def test_the_last_failure_before_a_moment_is_found(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(503, {"error": "busy"}), Answer([STREAMS["chat"]]), json_answer(500, {})) as agent:
        moments = [time.monotonic()]
        for _ in range(3):
            agent.ask()
            wait(lambda: agent.gateway.in_flight == 0)
            moments.append(time.monotonic())
        assert [agent.gateway.last_failure_before(at) for at in moments] == [
            "",
            "status 503: busy",
            "",
            agent.gateway.last_failure,
        ]


def test_a_lasting_failure_counts_as_back_off(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(503, {"error": "busy"})) as agent:
        agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        time.sleep(0.2)
        assert agent.gateway.usage().backoff_s >= 0.2
    assert read(agent.ledger).backoff_s == agent.gateway.usage().backoff_s >= 0.2


def test_recorded_text_is_plain(tmp_path: Path):
    words = "\x1b]0;owned\x07\x1b[2Jno\ud800" + "x" * 5000
    strange = {"choices": [], "model": "m-1", "provider": "\x1b[2JP", "usage": {"a\ud800": ["\ud800"]}}
    with run(tmp_path, "chat", Answer([events(strange)]), json_answer(403, {"error": {"message": words}})) as agent:
        agent.ask(agent.body(reasoning={"effort": "\ud800"}))
        agent.ask(b'{"model": "\\u001b[2J\\ud800"}', target="/v1/chat/completions")
        agent.ask()
        wait(lambda: agent.gateway.stop is not None)
        usage, stop = agent.gateway.usage(), agent.gateway.stop
        assert (usage.efforts, usage.providers) == (("other",), ("[2JP",))
        assert stop is not None and stop.message.startswith("The provider: status 403: ]0;owned[2Jnoxx")
        assert len(stop.message) <= 1024
        assert (stop.message + agent.gateway.last_failure).isprintable()
        to_yaml(usage).encode()


def test_ambiguous_headers_and_queries_are_refused(tmp_path: Path):
    with run(tmp_path, "chat", Answer([STREAMS["chat"]])) as agent:
        body, key = agent.body(), agent.gateway.key
        for more in (
            "Content-Type: text/plain",
            "Content-Encoding: br\r\nContent-Encoding: identity",
            "Authorization: Bearer x",
            "X-Api-Key: a\r\nX-Api-Key: b",
        ):
            link = agent.connect()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}\r\n"
            head += f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
            link.sock.sendall(head.encode() + body)
            assert link.sock.recv(100).split()[1] == b"400"
            link.close()
        assert agent.ask(target="/v1/chat/completions?beta=true").status == 400
        assert agent.upstream.received == []


def test_a_full_ledger_exhausts_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jsonl, "BYTES", 1000)
    with provider(Answer([STREAMS["chat"]])) as upstream:
        given = access("chat", upstream.url)
        with serve(tmp_path / "model", tmp_path / "ledger.jsonl", given) as gateway:
            agent = Agent(gateway, given, tmp_path / "model", tmp_path / "ledger.jsonl")
            for _ in range(5):
                agent.ask()
            assert gateway.stop == Stop("budget_exhausted", "the ledger is full")


def test_a_crash_of_the_gateway_is_not_a_provider_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(server, "accept", broken)
    with serve(tmp_path / "model", tmp_path / "ledger.jsonl", access("chat", "http://127.0.0.1:1")) as gateway:
        wait(lambda: gateway.stop is not None)
        assert gateway.stop == Stop("crashed", "the gateway itself failed, a bug of arena: ZeroDivisionError('oh')")
        assert gateway.troubles == [gateway.stop.message]
    assert read(tmp_path / "ledger.jsonl") == gateway.usage()


@pytest.mark.parametrize(
    "answer",
    [
        Answer([events({"model": KEY, "choices": []})]),
        Answer([events({"model": "m-1", "choices": [], "usage": {"note": KEY}})]),
        Answer([events({"model": "m-1", "choices": []}).replace(b"m-1", "".join(f"\\u{ord(c):04x}" for c in KEY).encode())]),
        json_answer(500, {"error": {"message": "x" * 1000 + KEY}}),
        Answer([b"{}"], 200, {f"X-{KEY}": "1"}),
    ],
    ids=["model", "usage", "escaped", "beyond the kept part", "name of a header"],
)
def test_the_key_of_an_answer_reaches_no_record(tmp_path: Path, answer: Answer):
    with run(tmp_path, "chat", answer) as agent:
        reply = agent.ask()
        wait(lambda: agent.gateway.in_flight == 0)
        inside = str(reply) + str(agent.gateway.usage()) + str(agent.gateway.stop) + agent.gateway.last_failure
    assert KEY[:9] not in inside + agent.ledger.read_text()


def test_the_key_in_an_answer_that_was_left_is_found(tmp_path: Path):
    pieces = [STREAMS["chat"][:40], b'\n\ndata: {"model": "' + KEY.encode() + b'"}\n\n']
    with run(tmp_path, "chat", Answer(pieces, pause_s=0.3)) as agent:
        leave(agent)
        wait(lambda: agent.gateway.in_flight == 0)
        assert (agent.ended()["how"], agent.ended()["error"]) == ("stopped", "the provider's answer holds the real key")
    assert KEY not in agent.ledger.read_text()


def test_leaving_before_the_answer_begins_is_not_free(tmp_path: Path):
    """The provider generates all the same: the gateway waits for the answer's beginning and its numbers."""
    with run(tmp_path, "chat", Answer([STREAMS["chat"]], late_s=1.0), caps=Caps(tokens=50)) as agent:
        leave(agent, read=False, body=agent.body(stream_options={"include_usage": True}))
        wait(lambda: agent.gateway.in_flight == 0)
        usage = agent.gateway.usage()
        assert tuple(getattr(usage, f"{name}_tokens") for name in BUCKETS) == TOKENS["chat"]
        assert (agent.ended()["how"], usage.unmetered, agent.upstream.broken) == ("left", 0, 0)
        assert agent.ask(agent.body(stream_options={"include_usage": True})).status == 400


def test_leaving_for_good_charges_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "REST_S", 0.1)
    caps = Caps(tokens=100_000)
    with run(tmp_path, "chat", Answer([STREAMS["chat"]], late_s=5.0), caps=caps) as agent:
        body = agent.body(stream_options={"include_usage": True}, max_tokens=50_000)
        for _ in range(2):
            leave(agent, read=False, body=body)
            wait(lambda: agent.gateway.in_flight == 0)
        assert agent.ended()["charged_tokens"] >= 50_000
        assert agent.ask(body).status == 400
        assert len(agent.upstream.received) == 2
