"""Going on after a break of the provider: what the gateway says to a command that has ended, and a session that goes on."""

import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from command import needs_sandbox
from provider import STREAMS, TARGETS, Agent, Answer, access, events, json_answer, provider
from provider import run as gateway
from sessions import python, spec_of
from test_session import run

from arena.agents import session
from arena.agents.launch import AGAIN
from arena.agents.supervisor import _done_s
from arena.gateway.config import RESUME_PATH, RESUMES
from arena.gateway.model import server
from arena.results.run_folder import RunFolder
from arena.schema import Model

assert run  # the fixture
GOOD = Answer([STREAMS["chat"]])
BROKEN = Answer([STREAMS["chat"][:40]], cut=True)
FAILING = json_answer(503, {"error": {"message": "no"}})


def may_go_on(agent: Agent) -> bool:
    return agent.ask(b"", target=RESUME_PATH).status == 200


@pytest.mark.parametrize("answer", [BROKEN, FAILING], ids=["broken off", "failed"])
def test_a_command_goes_on_once_the_provider_answers_again(answer: Answer, tmp_path: Path) -> None:
    with gateway(tmp_path, "chat", answer, GOOD) as agent:
        agent.upstream.own = GOOD
        agent.ask()
        assert may_go_on(agent)
        assert agent.gateway.resumed == 1
        agent.ask()
        assert not may_go_on(agent), "its last request was answered"


def test_a_command_that_ends_by_the_error_goes_on(tmp_path: Path) -> None:
    """It may ask before the gateway has recorded that error, whose stream has not ended."""
    error = events({"error": {"code": 502, "message": "busy", "metadata": {"error_type": "provider_overloaded"}}})
    hold = Event()
    with gateway(tmp_path, "chat", Answer([error, b": more"], hold=hold), GOOD) as agent:
        agent.upstream.own = GOOD
        link = agent.connect()
        link.request("POST", TARGETS["chat"], agent.body(), agent.headers())
        assert link.getresponse().read1() == error
        link.sock.close()
        link.close()
        assert may_go_on(agent)
        assert agent.ended()["how"] == "error"
        hold.set()


def test_it_waits_until_the_provider_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHECK_PAUSE_S", 0.1)
    with gateway(tmp_path, "chat", FAILING) as agent:
        agent.ask()
        began_s = time.monotonic()
        Timer(0.5, lambda: setattr(agent.upstream, "own", GOOD)).start()
        assert may_go_on(agent)
        assert time.monotonic() - began_s > 0.4


def test_nothing_is_gained_by_asking(tmp_path: Path) -> None:
    """The attack: an agent asks itself, before any break, after a good answer, for a bad request, and without end."""
    with gateway(tmp_path, "chat", GOOD, json_answer(400, {"error": {"message": "bad"}}), FAILING) as agent:
        agent.upstream.own = GOOD
        assert not may_go_on(agent)
        for _ in range(2):
            agent.ask()
            assert not may_go_on(agent)
        agent.ask()
        assert [may_go_on(agent) for _ in range(RESUMES + 2)] == [True] * RESUMES + [False] * 2
        assert agent.ask(b"", target=RESUME_PATH + "?x=1").status != 200


def test_an_empty_account_is_not_waited_for(tmp_path: Path) -> None:
    empty = json_answer(402, {"error": {"message": "Insufficient credits.", "code": 402}})
    with gateway(tmp_path, "chat", GOOD, empty) as agent:
        for _ in range(2):
            agent.ask()
        assert not may_go_on(agent)
        assert agent.gateway.resumed == 0


@pytest.mark.parametrize(
    ("traffic", "done"),
    [
        (None, True),
        ({"resuming": False, "resumed_s": 0.0}, True),
        ({"resuming": True, "resumed_s": 0.0}, False),
        ({"resuming": False, "resumed_s": 6.0}, False),
        ({"resuming": False, "resumed_s": 4.0}, True),
    ],
)
def test_a_report_of_the_end_is_void_when_the_command_goes_on(traffic: dict[str, Any] | None, done: bool) -> None:
    transcript: Any = SimpleNamespace(trajectory=SimpleNamespace(ended_s=5.0))
    found: Any = SimpleNamespace(**traffic) if traffic else None
    assert (_done_s(transcript, found) is not None) == done


ASK = """
import http.client, json, os
model = http.client.HTTPConnection("127.0.0.1", 3127)
model.request("POST", TARGET, json.dumps({"model": "m-1", "stream": True}),
              {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"})
try: model.getresponse().read()
except http.client.HTTPException: raise SystemExit(1)
print(json.dumps({"type": "end"}))
""".replace("TARGET", repr(TARGETS["chat"]))


@needs_sandbox
@pytest.mark.parametrize(("resumes", "status", "requests"), [(True, "complete", 2), (False, "crashed", 1)])
def test_a_session_goes_on_in_the_same_sandbox(resumes: bool, status: str, requests: int, run: RunFolder) -> None:
    """Its command ends at the first break. What it left in its home is still there, and the prompt is not given again."""
    first = "import sys; prompt = sys.stdin.read(); open('/home/agent/left', 'w').write('x')\n" + ASK
    second = "import sys; assert sys.stdin.read() == ''; open('solution.py', 'w').write(open('/home/agent/left').read())\n" + ASK
    given = {"resume": ["python", "-c", second]} if resumes else {}
    selected = python(first, prompt="stdin", api="chat", env={"KEY": "{key}"}, **given)
    selected = selected._replace(model=Model(id="m-1", route="local", effort="high"))
    with provider(BROKEN, GOOD) as upstream:
        upstream.own = GOOD
        spec = replace(spec_of(selected), access=access("chat", upstream.url))
        played = session.play(spec, run, "Write a kernel.\n")
        assert (played.session.agent_status, played.session.resumed) == (status, int(resumes)), played.session.message
        assert len(upstream.received) == requests
        assert (run.work / "solution.py").exists() == resumes


@pytest.mark.slow
@needs_sandbox
def test_the_budget_ends_a_command_that_could_go_on(run: RunFolder) -> None:
    selected = python("import time; time.sleep(60)", api="chat", resume=["touch", "solution.py"], env={"KEY": "{key}"})
    selected = selected._replace(model=Model(id="m-1", route="local", effort="high"))
    with provider(GOOD) as upstream:
        spec = replace(spec_of(selected, budget_s=1.5), access=access("chat", upstream.url))
        assert spec.launch.command[:2] == ("sh", AGAIN)
        played = session.play(spec, run, "Write a kernel.\n")
    assert (played.session.agent_status, played.session.exit_code) == ("deadline", 143)
    assert not (run.work / "solution.py").exists()
