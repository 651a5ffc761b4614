"""What decides whether a run counts: no agent of a healthy provider can have its own run discarded."""

import asyncio
import contextlib
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
from provider import KEY, STREAMS, TARGETS, Answer, events, json_answer, run

from arena.agents.status import Observed, decide
from arena.agents.supervisor import Cause
from arena.files.documents import read_yaml
from arena.files.jsonl import JsonLines
from arena.gateway.config import ModelAccess
from arena.gateway.model import account, server
from arena.gateway.model.apis import Endpoint
from arena.gateway.model.exchange import Exchange
from arena.gateway.model.ledger import Began, Ended, How, Ledger
from arena.gateway.model.outcome import ENDINGS
from arena.gateway.model.policy import ModelRequest
from arena.gateway.model.state import FEW_REQUESTS, RunState
from arena.results.board import NOT_COUNTED
from arena.schema import AccountFault, AccountFaults, AgentStatus, Api, Route

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


NO_PROVIDER = json_answer(404, {"error": {"message": "No allowed providers are available for the selected model.", "code": 404}})
PIN = {"order": ["deepinfra"], "allow_fallbacks": False}


def test_a_brokers_404_on_a_pin_discards_the_run(tmp_path: Path):
    with run(tmp_path, "chat", GOOD, NO_PROVIDER, provider=("deepinfra",), broker=True) as agent:
        for _ in range(2):
            agent.ask(agent.body(provider=PIN))
        settled(agent.gateway)
        assert not counts(agent.gateway, code=1)
        assert "No allowed providers" in str(agent.gateway.stop)


def test_a_404_that_an_agent_provokes_on_a_pin_gains_nothing(tmp_path: Path):
    """The attack: a picture for a model without vision. No run ends by it, and no time is added to the budget."""
    with run(tmp_path, "chat", GOOD, NO_PROVIDER, provider=("deepinfra",), broker=True) as agent:
        agent.upstream.own = GOOD
        for _ in range(4):
            agent.ask(agent.body(provider=PIN))
        settled(agent.gateway)
        assert counts(agent.gateway, code=1)
        assert (agent.gateway.stop, agent.gateway.backoff_s, agent.ended()["how"]) == (None, 0.0, "rejected")
        assert len(agent.upstream.own_received) > 0


@pytest.mark.parametrize(("finish", "limit"), [("length", "output"), ("stop", None)])
def test_a_limit_that_cut_the_answer_decides_nothing(tmp_path: Path, finish: str, limit: str | None):
    """The attack: an agent asks for one token, or fills the context. Its run counts all the same."""
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": finish}
    with run(tmp_path, "chat", Answer([events({"model": "m-1", "choices": [choice]})])) as agent:
        agent.ask(agent.body(max_tokens=1))
        settled(agent.gateway)
        assert agent.gateway.limit_reached == agent.ended()["limit"] == limit
        assert (agent.gateway.stop, agent.upstream.own_received) == (None, [])
        assert counts(agent.gateway, code=1)


@pytest.mark.parametrize(("name", "passes"), [("m-1-codex", True), ("m-1-mini", False)])
def test_a_listed_name_of_the_same_model_passes(tmp_path: Path, name: str, passes: bool):
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    answer = Answer([events({"model": name, "choices": [choice]})])
    with run(tmp_path, "chat", answer, answers_as=("m-1-codex",)) as agent:
        agent.ask()
        settled(agent.gateway)
        assert counts(agent.gateway) == passes
        assert agent.gateway.usage().models == (name,)


HARMLESS = ("a message that names Google's reason", "the same from Google", "a long echo", "a deep echo", "a large number")
"""Nothing in these looks like a failure of the provider."""


@pytest.mark.parametrize("way", ["401 for a header", "402 for max_tokens", "500", "another model", "a broken connection"])
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


def error_body(fault: AccountFault, api: Api) -> Any:
    """An error of that interface that names the fault."""
    message = f"{fault.phrase}. More words."
    if api == "gemini":
        reason = [{"@type": "ErrorInfo", "reason": fault.code}]
        return {"error": {"code": fault.status, "message": message, "status": fault.code, "details": reason}}
    if api == "anthropic":
        details = {"error_code": fault.code}
        return {"type": "error", "error": {"type": fault.code, "message": message, "details": details}}
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": fault.code}}


def fault_api(fault: AccountFault) -> Api:
    return fault.apis[0] if fault.apis else "chat"


FAULTS = {
    f"{fault.status} {fault.phrase or fault.code or ''}".strip(): fault for fault in read_yaml(account.FILE, AccountFaults).faults
}
ACCOUNT = {name: (fault_api(f), json_answer(f.status, error_body(f, fault_api(f)))) for name, f in FAULTS.items()}
ACCOUNT["inside a stream"] = (
    "responses",
    Answer([events({"type": "response.failed", "response": {"status": "failed", "error": {"code": "insufficient_quota"}}})]),
)
ACCOUNT["Google's 402"] = ("gemini", json_answer(402, {"error": {"code": 402, "message": "no", "status": "RESOURCE_EXHAUSTED"}}))
ACCOUNT["inside a broker's stream"] = ("chat", Answer([events({"model": "m-1", "error": {"code": 402, "message": "no credit"}})]))


@pytest.mark.parametrize("way", ACCOUNT)
def test_account_fault_discards_the_run(tmp_path: Path, way: str):
    """A half-done kernel of an account that ran dry says nothing about the agent."""
    api, answer = ACCOUNT[way]
    with run(tmp_path, api, Answer([STREAMS[api]]), answer) as agent:
        agent.ask()
        agent.ask()
        settled(agent.gateway)
        assert not counts(agent.gateway, code=1)
        assert len(agent.upstream.own_received) == 1
        assert agent.gateway.account_fault
        if way in FAULTS:
            assert agent.gateway.account_fault == FAULTS[way].remedy
        assert agent.ended()["how"] == "account"


def test_an_answer_still_to_be_recorded_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An agent can read its last answer and end before the gateway has recorded that answer's end."""
    api, answer = ACCOUNT["Google's 402"]

    async def recorded_late(self: Exchange, *args: Any) -> Any:
        try:
            return await whole(self, *args)
        finally:
            await asyncio.sleep(0.5)

    whole = Exchange.run
    monkeypatch.setattr(Exchange, "run", recorded_late)
    with run(tmp_path, api, Answer([STREAMS[api]]), answer) as agent:
        agent.ask()
        agent.ask()
        agent.gateway.settle()
        assert not counts(agent.gateway, code=1)
        assert agent.gateway.account_fault


@pytest.mark.parametrize("way", ACCOUNT)
def test_account_fault_that_an_agent_provokes_gains_nothing(tmp_path: Path, way: str):
    """The attack: the provider echoes the words in its answer to the agent, and answers arena's own request."""
    api, answer = ACCOUNT[way]
    good = Answer([STREAMS[api]])
    with run(tmp_path, api, good, answer) as agent:
        agent.upstream.own = good
        for _ in range(3):
            agent.ask()
        settled(agent.gateway)
        assert (agent.gateway.stop, agent.gateway.account_fault, agent.gateway.backoff_s) == (None, "", 0.0)
        assert counts(agent.gateway, code=1)
        assert len(agent.upstream.own_received) > 0


@pytest.mark.parametrize(
    "error",
    [
        {"type": "invalid_request_error", "message": "tools.0: Your credit balance is too low"},
        {"type": "not_found_error", "message": "Your credit balance is too low"},
        {"type": "invalid_request_error", "message": "Your credit balance: unknown field"},
        {"type": "invalid_request_error", "message": "unknown value insufficient_quota"},
    ],
)
def test_request_quoted_by_a_provider_is_no_account_fault(tmp_path: Path, error: dict[str, str]):
    """Not even a doubt, and an answer to arena's own request that blames the request shows that the account works."""
    with run(tmp_path, "anthropic", json_answer(400, {"type": "error", "error": error})) as agent:
        agent.ask()
        settled(agent.gateway)
        assert agent.ended()["how"] == "rejected"
        assert agent.upstream.own_received == []
    assert account.account_fault("anthropic", 400, (error["type"],), error["message"]) is None


PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}],
}
LIMITS: dict[str, tuple[Api, Answer]] = {
    "an hour": ("anthropic", Answer([b'{"type": "error", "error": {"type": "rate_limit_error"}}'], 429, {"Retry-After": "3600"})),
    "a day": ("gemini", json_answer(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [PER_DAY]}})),
    "in a stream": (
        "responses",
        Answer([events({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}})]),
    ),
    "a broker's, in a stream": ("chat", Answer([events({"model": "m-1", "error": {"code": 429, "message": "later"}})])),
    "a broker's budget for requests in flight": (
        "chat",
        json_answer(402, {"error": {"code": 402, "metadata": {"limit_source": "openrouter_in_flight_budget"}}}),
    ),
}


@pytest.mark.parametrize("way", LIMITS)
def test_limit_that_the_agent_used_up_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str):
    """The attack: tokens without end, until the key may ask nothing for an hour. Then arena's own request fails too."""
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    api, answer = LIMITS[way]
    with run(tmp_path, api, Answer([STREAMS[api]]), answer) as agent:
        for _ in range(3):
            agent.ask()
        began_s = time.monotonic()
        settled(agent.gateway)
        assert counts(agent.gateway, code=1)
        assert counts(agent.gateway, code=0, done=True)
        assert time.monotonic() - began_s < 2  # asking again would show nothing more
        assert {line["conclusive"] for line in agent.lines() if line["event"] == "checked"} == {False}


@pytest.mark.parametrize("way", LIMITS)
def test_limit_before_any_answer_discards_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str):
    """The twin: no model has worked yet, and few requests went out, so others have used up the limit."""
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    api, answer = LIMITS[way]
    with run(tmp_path, api, answer) as agent:
        agent.ask()
        settled(agent.gateway)
        assert not counts(agent.gateway, code=1)
        assert agent.gateway.account_fault == ""


def test_limit_after_many_failed_requests_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attack without a model: providers count requests that they refuse."""
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    with run(tmp_path, "chat", json_answer(400, {"error": "no"}), json_answer(429, {"error": "slow down"})) as agent:
        agent.upstream.answers[1:1] = [json_answer(400, {"error": "no"})] * FEW_REQUESTS
        for _ in range(FEW_REQUESTS + 2):
            agent.ask()
        settled(agent.gateway)
        assert counts(agent.gateway, code=1)


def test_limit_for_longer_than_the_patience_says_why_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    with run(tmp_path, "chat", GOOD, json_answer(429, {"error": {"message": "slow down"}}), patience_s=0.5) as agent:
        give_up = time.monotonic() + 20
        while agent.gateway.stop is None and time.monotonic() < give_up:
            agent.ask()
            time.sleep(0.1)
        settled(agent.gateway)
        assert agent.gateway.stop is not None and agent.gateway.stop.status == "crashed"
        assert "the agent's own traffic may be the cause" in agent.gateway.stop.message


def test_own_request_beside_one_of_the_agent_confirms_nothing(tmp_path: Path):
    """The attack: one enormous request keeps a slow server busy, so that arena's own fails while it lasts."""
    with run(tmp_path, "chat", GOOD, Answer([STREAMS["chat"]], late_s=30), json_answer(500, {"error": "no"})) as agent:
        agent.upstream.own = json_answer(503, {"error": "busy"})
        agent.ask()
        with contextlib.closing(agent.connect()) as enormous:
            enormous.request("POST", TARGETS["chat"], agent.body(), agent.headers())
            while len(agent.upstream.received) < 2:
                time.sleep(0.005)
            agent.ask()
            while not agent.upstream.own_received:
                time.sleep(0.005)
        agent.upstream.own = GOOD
        agent.gateway.leaving()
        settled(agent.gateway)
        assert counts(agent.gateway, code=1)


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


def test_what_the_requests_do_is_said_in_words(tmp_path: Path):
    with (tmp_path / "ledger.jsonl").open("xb", buffering=0) as file:
        state = RunState(ACCESS, Ledger(JsonLines(file), 300.0))

        def ask(how: Any, status: int) -> None:
            began = state.begin(Endpoint("model", "x"), ModelRequest(None, True, 1))
            state.end(began, Ended(began.n, state.now_s(), how, status=status, error="slow down"))

        assert (state.asking_words(0), state.asking_words(1)) == ("", "waiting for an answer")
        ask("error", 429)
        assert (state.asking_words(0), state.asking_words(1)) == ("pausing after status 429", "retrying after status 429")
        state.arriving[2] = state.now_s()
        assert state.asking_words(1) == "receiving an answer"
        state.arriving.clear()
        ask("whole", 200)
        assert (state.asking_words(0), state.asking_words(1)) == ("", "waiting for an answer")


@pytest.mark.slow
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
        *(answer for api, answer in [*ACCOUNT.values(), *LIMITS.values()] if api == "chat"),
        *(answer for api, answer in VOIDING.values() if api == "chat" and len(answer.pieces) < 3),
        json_answer(400, {"error": "no"}),
        json_answer(503, {"error": {"code": "API_KEY_INVALID"}}),
        Answer([b"<html>"]),
        Answer([events({"model": "m-1", "error": {"message": "x"}})]),
        Answer([], 302, {"Location": "http://127.0.0.1:1/"}),
    ]
)


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_answers_discard_a_run_whose_limit_is_used_up(tmp_path_factory, monkeypatch: pytest.MonkeyPatch):
    """The same where the agent's traffic has used up the key's limit: arena's own request fails as well."""
    monkeypatch.setattr(server, "QUIET_S", 0.0)
    limits = [answer for api, answer in LIMITS.values() if api == "chat"]

    @settings(max_examples=GATEWAY_SEQUENCES, deadline=None)
    @given(st.lists(answers, min_size=1, max_size=6), st.sampled_from(limits), st.sampled_from([0, 1]))
    def play(sequence, limit, code):
        with run(tmp_path_factory.mktemp("g"), "chat", GOOD, *sequence) as agent:
            agent.upstream.own = limit
            for _ in [GOOD, *sequence]:
                agent.ask()
            settled(agent.gateway)
            assert counts(agent.gateway, code=code), agent.gateway.stop

    play()
