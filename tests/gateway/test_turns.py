"""The gateway holds a run to its number of turns, whatever the program in the sandbox asks."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
from provider import STREAMS, Answer, json_answer, run

from arena.gateway.config import Stop
from arena.schema import Api

APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
ENOUGH = "the run's turns are used up: its model may give 2 answers (--turns)"


def settled(agent: Any) -> None:
    until = time.monotonic() + 10
    while agent.gateway.in_flight and time.monotonic() < until:
        time.sleep(0.01)
    assert not agent.gateway.in_flight


@pytest.mark.parametrize("api", APIS)
def test_the_request_after_the_last_turn_ends_the_run(tmp_path: Path, api: Api) -> None:
    with run(tmp_path, api, Answer([STREAMS[api]]), turns=2) as agent:
        assert [agent.ask().status for _ in range(2)] == [200, 200]
        assert agent.gateway.stop is None, "an honest program asks no more, and ends by itself"
        reply = agent.ask()
        assert reply.status == 400
        assert ENOUGH in reply.body.decode()
        assert agent.gateway.stop == Stop("budget_exhausted", ENOUGH)
        assert len(agent.upstream.received) == 2


def test_failures_of_the_provider_are_no_turns(tmp_path: Path) -> None:
    failed = (json_answer(503, {"error": {"message": "busy"}}), Answer([STREAMS["chat"][:60]], cut=True))
    with run(tmp_path, "chat", *failed, Answer([STREAMS["chat"]]), turns=1) as agent:
        assert agent.ask().status == 503
        assert not agent.ask().whole
        assert agent.ask().whole
        assert agent.gateway.stop is None
        assert agent.ask().status == 400
        assert len(agent.upstream.received) == 3


def test_an_answer_that_the_program_leaves_is_a_turn(tmp_path: Path) -> None:
    """Else it reads all but the end of each answer, and asks again."""
    parts = [STREAMS["chat"][:200], *(STREAMS["chat"][at : at + 40] for at in range(200, len(STREAMS["chat"]), 40))]
    left = threading.Event()
    with run(tmp_path, "chat", Answer(parts, pause_s=0.05, hold=left), turns=1) as agent:
        with contextlib.closing(agent.connect()) as connection:
            connection.request("POST", "/v1/chat/completions", agent.body(), agent.headers())
            assert b"Gr" in connection.getresponse().read1(150)
        left.set()
        settled(agent)
        assert agent.ended()["how"] == "left"
        reply = agent.ask()
        assert (reply.status, "turns are used up" in reply.body.decode()) == (400, True)
        assert len(agent.upstream.received) == 1


def test_requests_at_once_are_no_further_turns(tmp_path: Path) -> None:
    refused, stream = threading.Event(), STREAMS["chat"]
    with run(tmp_path, "chat", Answer([stream[:60], stream[60:]], hold=refused), turns=1) as agent:
        with ThreadPoolExecutor(4) as threads:
            try:
                ended = as_completed([threads.submit(agent.ask) for _ in range(4)], timeout=20)
                found = [next(ended).result().status for _ in range(3)]
            finally:
                refused.set()
            found += [one.result().status for one in ended]
        assert found == [503, 503, 503, 200], "a program tries 503 again, and the run has not ended"
        assert agent.gateway.stop is None
        assert len(agent.upstream.received) == 1


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("chat", {"n": 2}),
        ("chat", {"n": 2.0}),
        ("chat", {"N": "8"}),
        ("gemini", {"generationConfig": {"candidateCount": 4}}),
        ("gemini", {"generation_config": {"candidate_count": 4}}),
    ],
)
def test_a_request_for_several_answers_is_refused(tmp_path: Path, api: Api, fields: dict[str, Any]) -> None:
    with run(tmp_path, api, Answer([STREAMS[api]]), turns=5) as agent:
        whole = json.loads(agent.body())
        reply = agent.ask(json.dumps(whole | fields).encode())
        assert (reply.status, "a request may ask for one answer" in reply.body.decode()) == (403, True)
        assert agent.upstream.received == []
    (tmp_path / "ledger.jsonl").unlink()
    with run(tmp_path, api, Answer([STREAMS[api]]), turns=5) as agent:
        one = {"n": 1} if api == "chat" else {"generationConfig": {"candidateCount": 1}}
        assert agent.ask(json.dumps(whole | one).encode()).status == 200


def test_without_a_number_of_turns_all_of_it_goes(tmp_path: Path) -> None:
    with run(tmp_path, "chat", Answer([STREAMS["chat"]], late_s=0.2)) as agent:
        with ThreadPoolExecutor(4) as threads:
            found = [reply.status for reply in threads.map(lambda _: agent.ask(), range(4))]
        assert found == [200] * 4
        assert agent.ask(json.dumps(json.loads(agent.body()) | {"n": 2}).encode()).status == 200
