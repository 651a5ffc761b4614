"""A loop without progress ends a session in a status that counts, and work does not; what else a session says of its model."""

import os
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from command import needs_sandbox
from provider import STREAMS, Answer, access, events, provider
from sessions import python, spec_of
from test_session import run

from arena.agents import session
from arena.agents.progress_watch import ANSWERS, DEEPEST, EVERY, LISTED, ProgressWatch
from arena.results.board import NOT_COUNTED
from arena.results.run_folder import RunFolder
from arena.schema import Session

assert run  # the fixture


def looping(watch: ProgressWatch, answers: range) -> list[bool]:
    return [watch.looping(number) for number in answers]


def test_answers_without_a_change_are_a_loop(tmp_path: Path) -> None:
    watch = ProgressWatch(tmp_path)
    assert not any(looping(watch, range(ANSWERS)))
    assert watch.looping(ANSWERS)


CHANGES = {
    "a new file": lambda folder: (folder / "new").touch(),
    "an edit in a folder below": lambda folder: (folder / "a" / "b" / "kernel.cu").write_text("other"),
    "the same size at another time": lambda folder: os.utime(folder / "solution.py", (1, 1)),
    "a removed file": lambda folder: (folder / "solution.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_begins_the_count_again(change: str, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "kernel.cu").write_text("x")
    (tmp_path / "solution.py").write_text("y = 1")
    watch = ProgressWatch(tmp_path)
    assert not any(looping(watch, range(ANSWERS - EVERY)))
    CHANGES[change](tmp_path)
    assert not any(looping(watch, range(ANSWERS - EVERY, 2 * ANSWERS - EVERY)))
    assert watch.looping(2 * ANSWERS)


@pytest.mark.slow
def test_a_workspace_too_large_to_compare_is_no_loop(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    for number in range(LISTED):
        (tmp_path / "large" / str(number)).touch()
    assert not any(looping(ProgressWatch(tmp_path), range(2 * ANSWERS)))


def test_a_workspace_too_deep_to_compare_is_no_loop(tmp_path: Path) -> None:
    tmp_path.joinpath(*["d"] * (DEEPEST + 1)).mkdir(parents=True)
    assert not any(looping(ProgressWatch(tmp_path), range(2 * ANSWERS)))


def test_a_watched_link_leads_nowhere(tmp_path: Path) -> None:
    """The attack: a link to a folder that never ends, or to one of the host."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "round").symlink_to(tmp_path / "work")
    watch = ProgressWatch(tmp_path / "work")
    assert looping(watch, range(ANSWERS + 1))[-1]


ASK = """
import http.client, json, os, pathlib
headers = {"Authorization": "Bearer " + os.environ["ARENA_KEY"], "Content-Type": "application/json"}
for number in range(REQUESTS):
    DO
    link = http.client.HTTPConnection("127.0.0.1", 3127)
    link.request("POST", "/v1/chat/completions", json.dumps({"model": "m-1", "stream": True}), headers)
    link.getresponse().read()
print(json.dumps({"type": "end"}), flush=True)
"""


def asked(run: RunFolder, tmp_path: Path, requests: int, do: str, *answers: Answer) -> Session:
    program = textwrap.dedent(ASK).replace("REQUESTS", str(requests)).replace("DO", do)
    selected = python(program, env={"ARENA_KEY": "{key}"}, api="chat")
    with provider(*answers) as upstream:
        upstream.own = Answer([STREAMS["chat"]])
        spec = replace(spec_of(selected, 60), access=access("chat", upstream.url, patience_s=300.0))
        return session.play(spec, run, "Loop.").session


@needs_sandbox
def test_a_loop_ends_the_session_and_the_run_counts(run: RunFolder, tmp_path: Path) -> None:
    played = asked(run, tmp_path, 20 * ANSWERS, "pass", Answer([STREAMS["chat"]]))
    assert played.agent_status == "crashed", played.message
    assert f"{ANSWERS} answers in a row changed nothing" in played.message
    assert played.agent_status not in NOT_COUNTED
    assert played.usage is not None
    assert played.usage.requests < 10 * ANSWERS


@needs_sandbox
def test_the_session_names_the_limit_that_cut_the_answer(run: RunFolder, tmp_path: Path) -> None:
    cut = events({"model": "m-1", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "length"}]})
    played = asked(run, tmp_path, 1, "pass", Answer([cut]))
    assert (played.agent_status, played.limit_reached) == ("complete", "output")
    assert "the limit on one answer cut the model's last one" in played.message


@needs_sandbox
def test_an_agent_that_changes_something_is_no_loop(run: RunFolder, tmp_path: Path) -> None:
    do = "pathlib.Path('notes').write_text(str(number)) if number % 100 == 0 else None"
    played = asked(run, tmp_path, 2 * ANSWERS, do, Answer([STREAMS["chat"]]))
    assert played.agent_status == "complete", played.message


@needs_sandbox
def test_a_program_past_the_gateway_is_named(run: RunFolder, tmp_path: Path) -> None:
    program = """
        import urllib.request
        try: urllib.request.urlopen("https://api.example.com/v1/chat/completions", timeout=10)
        except OSError as error: raise SystemExit(f"Connection error: {error}")
    """
    with provider(Answer([STREAMS["chat"]])) as upstream:
        spec = replace(spec_of(python(program, api="chat"), 60), access=access("chat", upstream.url))
        played = session.play(spec, run, "Ask.").session
    assert played.agent_status == "crashed"
    assert "nothing of the agent reached the gateway: its program calls another address" in played.message
    assert "Connection error" in played.message


@needs_sandbox
def test_a_program_that_waits_past_the_gateway_is_ended(run: RunFolder, tmp_path: Path) -> None:
    with provider(Answer([STREAMS["chat"]])) as upstream:
        spec = replace(
            spec_of(python("import time; time.sleep(50)", api="chat"), 40, unasked_s=1.0), access=access("chat", upstream.url)
        )
        played = session.play(spec, run, "Ask.").session
    assert (played.agent_status, played.elapsed_s < 20) == ("no_activity", True), played.message
