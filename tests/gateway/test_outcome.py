"""What decides whether a run counts: no agent of a healthy provider can have its own run discarded."""

import itertools
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provider import KEY, STREAMS, Answer, events, json_answer, run

from arena.agents.status import Observed, decide
from arena.agents.supervisor import Cause
from arena.files.jsonl import JsonLines
from arena.gateway.config import ModelAccess
from arena.gateway.model import server
from arena.gateway.model.apis import Endpoint
from arena.gateway.model.ledger import Began, Ended, How, Ledger
from arena.gateway.model.outcome import ENDINGS
from arena.gateway.model.policy import ModelRequest
from arena.gateway.model.state import RunState
from arena.results.leaderboard import NOT_COUNTED
from arena.schema import AgentStatus, Api, Route

GOOD = Answer([STREAMS["chat"]])
SEQUENCES = 1500
"""Of the property test over states."""
GATEWAY_SEQUENCES = 60
"""Of the one through the whole gateway."""


def settled(gateway: server.Gateway) -> None:
    """What a session does once its sandbox is empty."""
    give_up = time.monotonic() + 20
    while gateway.in_flight and time.monotonic() < give_up:
        time.sleep(0.005)
    gateway.leaving()
    gateway.settle()


def counts(gateway: RunState, *, code: int | None = 0, cause: Cause = "itself", done: bool | None = None) -> bool:
    """Whether a session counts that ends now in this way."""
    stop = (gateway.stop.status, gateway.stop.message) if gateway.stop else None
    observed = Observed(code, cause, done, stop=stop, requests=1, failed=gateway.last_failure, refused=gateway.refused)
    return decide(observed)[0] not in NOT_COUNTED


VOIDING: dict[str, tuple[Api, Answer]] = {
    "a message that names Google's reason": ("chat", json_answer(400, {"error": {"message": "unknown field API_KEY_INVALID"}})),
    "the same from Google": ("gemini", json_answer(400, {"error": {"message": "unknown field API_KEY_INVALID"}})),
    "Google's reason, echoed": ("gemini", json_answer(400, {"error": {"details": [{"reason": "API_KEY_INVALID"}]}})),
    "401 for a header": ("anthropic", json_answer(401, {"error": {"message": "CORS requests must set a header"}})),
    "402 for max_tokens": ("chat", json_answer(402, {"error": {"message": "can only afford 10 tokens"}})),
    "403": ("chat", json_answer(403, {"error": "no"})),
    "404": ("chat", json_answer(404, {"error": "no"})),
    "429": ("chat", json_answer(429, {"error": "slow down"})),
    "500": ("chat", json_answer(500, {"error": "a field that breaks the provider"})),
    "a long echo": ("chat", Answer([b'data: {"model": "m-1"', b" " * (17 << 20), b"}\n\n"])),
    "a deep echo": ("chat", Answer([b'data: {"model": "m-1", "echo": ' + b"[" * 5000 + b"]" * 5000 + b"}\n\n"])),
    "a large number": ("chat", Answer([b'data: {"model": "m-1", "echo": ' + b"1" * 5000 + b"}\n\n"])),
    "another model": ("chat", Answer([events({"model": "m-2", "choices": []})])),
    "a broken connection": ("chat", Answer([STREAMS["chat"][:50]], cut=True)),
    "the key, echoed": ("chat", Answer([events({"x": KEY})])),
}


@pytest.mark.parametrize("way", VOIDING)
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after a good answer"])
def test_no_request_discards_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, first: bool):
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    api, answer = VOIDING[way]
    good = Answer([STREAMS[api]])
    with run(tmp_path, api, *([] if first else [good]), answer) as agent:
        agent.upstream.own = good
        for _ in range(9):
            agent.ask()
        settled(agent.gateway)
        assert counts(agent.gateway)
        assert counts(agent.gateway, code=1)
        assert counts(agent.gateway, code=0, done=True)
        assert len(agent.upstream.own_received) >= (way not in HARMLESS and not (way in ("403", "404") and not first))


HARMLESS = ("a message that names Google's reason", "the same from Google", "a long echo", "a deep echo", "a large number")
"""Nothing in these looks like a failure of the provider."""


@pytest.mark.parametrize("way", ["401 for a header", "402 for max_tokens", "429", "500", "another model", "a broken connection"])
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after a good answer"])
def test_a_failing_provider_discards_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, first: bool):
    """The twin: arena's own request fails as well."""
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    api, answer = VOIDING[way]
    with run(tmp_path, api, *([] if first else [Answer([STREAMS[api]])]), answer) as agent:
        for _ in range(2):
            agent.ask()
        settled(agent.gateway)
        assert not counts(agent.gateway, code=1)
        assert len(agent.upstream.own_received) > 0
        assert "checked" in {line["event"] for line in agent.lines()}


def test_own_requests_are_neither_usage_nor_the_agents(tmp_path: Path):
    with run(tmp_path, "chat", json_answer(500, {"error": "no"}), GOOD) as agent:
        agent.upstream.own = GOOD
        agent.ask()
        settled(agent.gateway)
        usage = agent.gateway.usage()
        assert (usage.requests, usage.input_tokens, usage.cost_usd) == (1, 0, None)
        (own,) = agent.upstream.own_received
        assert own.headers["authorization"] == f"Bearer {KEY}"
        assert json.loads(own.body)["model"] == "m-1"


def test_a_limit_that_the_agent_causes_confirms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """429 to arena's own request, right after the agent's: only after a quiet time it is the provider's failure."""
    monkeypatch.setattr(server, "QUIET_S", 3.0)
    with run(tmp_path, "chat", GOOD, json_answer(429, {"error": "slow down"})) as agent:
        agent.ask()
        agent.ask()
        while not agent.upstream.own_received or agent.gateway.in_flight:
            time.sleep(0.005)
        assert counts(agent.gateway, code=1)
        agent.upstream.own = GOOD
        settled(agent.gateway)
        assert counts(agent.gateway, code=1)
        checks = [line for line in agent.lines() if line["event"] == "checked"]
        assert (checks[0]["conclusive"], checks[-1]["failed"]) == (False, "")


def test_own_requests_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "CHECKS", 3)
    with run(tmp_path, "chat", json_answer(500, {})) as agent:
        for _ in range(12):
            agent.ask()
        settled(agent.gateway)
        assert len(agent.upstream.own_received) <= 3
        assert counts(agent.gateway, code=1)


def test_every_ending_is_in_the_documents():
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    assert [ending.what for ending in ENDINGS if ending.row() not in page] == []
    assert {ending.status for ending in ENDINGS} == set(get_args(AgentStatus))
    for ending in ENDINGS:
        assert ending.counts == (ending.status not in NOT_COUNTED)
        assert ending.counts or ("agent" not in ending.by and ending.needs_own_failure)


# The property over states: what a provider answers is whatever a request makes it answer.

HOWS: tuple[How, ...] = get_args(How)
requests = st.fixed_dictionaries(
    {
        "how": st.sampled_from(HOWS),
        "status": st.sampled_from([None, 200, 200, 400, 401, 402, 403, 404, 429, 500, 529]),
        "stays": st.booleans(),  # in flight until the end of the sequence
        "own": st.booleans(),  # arena's own request follows it at once
        "kind": st.sampled_from(["model", "model", "count"]),
    }
)
ends = st.sampled_from(
    [("itself", 0, True), ("itself", 0, None), ("itself", 1, False), ("gateway", None, None), ("budget", 143, None)]
)
ACCESS = ModelAccess("chat", Route(title="The provider", apis=("chat",), base_url="https://p.test", key=None), None, "m-1")


def played(folder: Path, sequence: list[dict[str, Any]], own: Any, *, patience_s: float) -> RunState:
    """The state of a run after that sequence of requests."""
    access = replace(ACCESS, patience_s=patience_s)
    with (folder / f"{next(NAMES)}.jsonl").open("xb", buffering=0) as file:
        state = RunState(access, Ledger(JsonLines(file), patience_s))
        left: list[tuple[Began, Ended]] = []

        def end(began: Began, line: Ended) -> None:
            state.end(began, replace(line, s=state.now_s()))

        for request in sequence:
            if state.stop is not None:
                break
            began = state.begin(Endpoint(request["kind"], "x"), ModelRequest(None, True, 1))
            line = Ended(began.n, 0.0, request["how"], status=request["status"], error="what the agent wrote")
            if request["stays"]:
                left.append((began, line))
            else:
                end(began, line)
            state.check_patience()
            if request["own"] and state.doubts.is_set():
                state.checked(state.now_s() + state._start_s, own(), conclusive=len(left) == 0)
        for began, line in left:
            end(began, line)
        state.leaving()
        while state.unsettled:
            state.checked(state.now_s() + state._start_s, own())
        state.close()
        return state


NAMES = itertools.count()


def test_no_sequence_of_an_agent_discards_its_run(tmp_path: Path):
    tried: Counter[str] = Counter()

    @settings(max_examples=SEQUENCES, deadline=None)
    @given(st.lists(requests, max_size=14), ends, st.sampled_from([0.0, 300.0]))
    def play(sequence, end, patience_s):
        cause, code, done = end
        state = played(tmp_path, sequence, lambda: "", patience_s=patience_s)
        tried["sequences"] += 1
        tried["stopped by the gateway"] += state.stop is not None
        assert counts(state, code=code, cause=cause, done=done), state.stop

    play()
    print(f"\nover states: {dict(tried)}, none discarded")
    assert tried["sequences"] >= SEQUENCES and tried["stopped by the gateway"] > 50


def test_a_failing_provider_is_still_found(tmp_path: Path):
    """The twin: every run whose last request fails, and arena's own with it."""

    @settings(max_examples=200, deadline=None)
    @given(st.lists(requests, max_size=8), st.sampled_from(["incomplete", "cut", "error"]))
    def play(sequence, how):
        last = {"how": how, "status": 500, "stays": False, "own": True, "kind": "model"}
        steady = [{**request, "stays": False} for request in sequence]
        state = played(tmp_path, [*steady, last], lambda: "status 500", patience_s=300.0)
        assert not counts(state, code=1)

    play()


answers = st.sampled_from(
    [
        GOOD,
        *(answer for api, answer in VOIDING.values() if api == "chat" and len(answer.pieces) < 3),
        json_answer(400, {"error": "no"}),
        json_answer(503, {"error": {"code": "API_KEY_INVALID"}}),
        Answer([b"<html>"]),
        Answer([events({"model": "m-1", "error": {"message": "x"}})]),
        Answer([], 302, {"Location": "http://127.0.0.1:1/"}),
    ]
)


def test_no_answers_through_the_gateway_discard_a_run(tmp_path_factory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    own: list[int] = []

    @settings(max_examples=GATEWAY_SEQUENCES, deadline=None)
    @given(st.lists(answers, min_size=1, max_size=6), st.sampled_from([0, 1]))
    def play(sequence, code):
        with run(tmp_path_factory.mktemp("g"), "chat", *sequence) as agent:
            agent.upstream.own = GOOD
            for _ in sequence:
                agent.ask()
            settled(agent.gateway)
            own.append(len(agent.upstream.own_received))
            assert counts(agent.gateway, code=code), agent.gateway.stop

    play()
    print(f"\nthrough the gateway: {len(own)} sequences, {sum(own)} requests of arena's own, none discarded")
    assert len(own) >= GATEWAY_SEQUENCES
