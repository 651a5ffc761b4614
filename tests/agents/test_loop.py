"""The harness `loop` in the real sandbox, through the real gateway, against the stub of a provider; and its parts alone."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from command import Arena, needs_sandbox
from provider import STREAMS, Answer, events, provider
from provider import run as gateway_run
from stub import Stub, started

from arena import catalog, paths
from arena.agents.select import launch_api, select_model
from arena.agents.trajectory import FIELDS, reader
from arena.errors import UsageError
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.model import answers as gateway_answers
from arena.gateway.model.policy import check_body, check_head
from arena.results import annotations
from arena.schema import Route, Sweep
from arena.sweep import grid

SHIPPED = Path(__file__).resolve().parents[2] / "problems" / "paged_attention" / "solutions"
ROUTES = {"chat": "/v1", "anthropic": "/v1", "responses": "/v1", "gemini": "/v1beta", "broker": "/api/v1"}
BENCHMARK = """import sys, time
print("times on one core")
taken = 40.0 if "# fast" in open(sys.argv[2]).read() else 90.0
print(f"B=4 D=64: {taken} us per call (1.0..2.0), 3.0 GB/s, 0.1 TFLOP/s")
"""
CHECK = """import sys
text = open(sys.argv[1]).read()
print("PASS" if "# right" in text else "FAIL")
sys.exit("# right" not in text)
"""


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(paths.harnesses()))
    try:
        spec = importlib.util.spec_from_file_location(name, paths.harnesses() / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(paths.harnesses()))


apis, loop = load("loop_apis"), load("loop")
read = reader(paths.harnesses() / "loop_events.py", None)


def routed(arena: Arena, stub: Stub) -> dict[str, str]:
    """A route to the stub for each interface; variables for the command."""
    routes = {
        name: {
            "title": name,
            "apis": ["chat" if name == "broker" else name],
            "base_url": stub.url + base,
            "key": None,
            "broker": name == "broker",
        }
        for name, base in ROUTES.items()
    }
    file = arena.tree.parent / "routes.yaml"
    file.write_text(yaml.safe_dump({"schema_version": 2, "routes": routes}))
    return {"ARENA_ROUTES": str(file)}


def answers(folder: Path, *texts: str) -> list[str]:
    """The stub's words for these answers."""
    words = []
    for number, text in enumerate(texts):
        file = folder / f"answer-{number}.md"
        file.write_text(text)
        words += ["--answer", str(file)]
    return words


def fenced(source: str) -> str:
    return f"Here it is.\n```python\n{source}\n```\nIt is fast."


def quick_kit(arena: Arena) -> None:
    """A check and a benchmark that only read the file, so that five turns take no minute."""
    (arena.tree / "problems/kit/check.py").write_text(CHECK)
    (arena.tree / "problems/kit/benchmark.py").write_text(BENCHMARK)


def steps_of(arena: Arena, kind: str) -> list[dict[str, Any]]:
    lines = (arena.runs[-1] / "trajectory.jsonl").read_text().splitlines()
    return [step for step in map(json.loads, lines) if step["kind"] == kind]


def played(arena: Arena, env: dict[str, str], *words: str) -> Any:
    """Play a session without its score; how it ended."""
    program = (
        "import json, sys\n"
        "from arena.plan import plan\n"
        "from arena.run_cell import play_cell\n"
        "options = json.loads(sys.argv[1])\n"
        "print(play_cell(plan('paged_attention', hardware='cpu', **options)))\n"
    )
    options = dict(zip(words[::2], words[1::2], strict=True)) | {"budget": "2m"}
    typed = {
        name: int(value) if name == "turns" else value == "yes" if name == "profile" else value for name, value in options.items()
    }
    done = arena.python(program, json.dumps(typed), limit_s=120, **env)
    assert done.code == 0, done.err
    return json.loads((arena.runs[-1] / "session.json").read_text())["session"]


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("route", ["anthropic", "broker"])
def test_a_single_shot(route: str, arena: Arena, tmp_path: Path) -> None:
    source = (SHIPPED / "naive.py").read_text()
    with started(tmp_path / "log", *answers(tmp_path, fenced(source)), "--thinking") as stub:
        pinned = {"model": f"loop/{route}/m-1", "effort": "high", "turns": "1"}
        env = routed(arena, stub)
        if route == "broker":
            env |= owned(arena, tmp_path)
            pinned["model"] = "pinned"
        session = played(arena, env, *(word for pair in pinned.items() for word in pair))
        [request] = stub.requests()
    assert (session["agent_status"], session["usage"]["requests"]) == ("complete", 1), session["message"]
    used = session["usage"]
    assert sum(used[f"{kind}_tokens"] for kind in ("input", "cache_read", "output", "reasoning")) == 15
    assert used["efforts"] == ["high"]
    assert (arena.runs[-1] / "solution.py").read_text().strip() == source.strip()
    assert [step["text"] for step in steps_of(arena, "thinking")], "the model's thinking is a step"
    assert "```python" in steps_of(arena, "text")[0]["text"]
    assert steps_of(arena, "call") == []
    words = json.dumps(request["body"])
    assert (
        "def reference" in words
        and "whole file" in words
        and "$" not in words.split("How you answer")[1].split("reference.py`")[0]
    )
    cell = json.loads((arena.runs[-1] / "manifest.json").read_text())["cell"]
    assert (cell["harness"], cell["turns"], cell["profile"]) == ("loop", 1, False)


@pytest.mark.parametrize("route", ROUTES)
def test_every_interface_is_spoken(route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop sends passes the gateway's rules, and it reads what the provider streams."""
    api = "chat" if route == "broker" else route
    settings: dict[str, Any] = {
        "api": api,
        "broker": route == "broker",
        "model": "m-1",
        "effort": "high",
        "turns": 1,
        "profile": False,
    }
    settings["provider"] = ["Stub Provider"] if route == "broker" else []
    monkeypatch.setenv("ARENA_KEY", "x" * 20)
    messages = [("user", "one"), ("assistant", "two"), ("user", "three")]
    with started(tmp_path / "log", *answers(tmp_path, "The text."), "--thinking") as stub:
        settings["gateway"] = stub.url + ("/api" if route == "broker" else "")
        answer = loop.request(settings, messages)
        [sent] = stub.requests()
    assert (answer.text, answer.fault, bool(answer.reason)) == ("The text.", "", True)
    assert "one step after the other" in answer.thinking
    assert (answer.usage["input_tokens"], answer.usage["output_tokens"]) == (10, 5)
    known = {"title": "x", "apis": [api], "base_url": "http://x.test/v1", "key": None, "broker": route == "broker"}
    pins: tuple[str, ...] = ("Stub Provider",) if route == "broker" else ()
    kept = Route.model_validate(known)
    access = ModelAccess(kept.apis[0], kept, None, "m-1", pins, Caps(tokens=1000))
    endpoint = check_head(access, "x" * 20, "POST", sent["path"], sent["headers"])
    found = check_body(access, endpoint, {}, json.dumps(sent["body"]).encode())
    assert (str(found.effort).lower(), found.stream) == ("high", True)
    silent = json.dumps(apis.APIS[api].body(settings | {"effort": "none"}, messages))
    assert "effort" not in silent and "hinking" not in silent


def owned(arena: Arena, folder: Path) -> dict[str, str]:
    """A model of one's own on the broker's route, which names who may answer."""
    model = {"id": "m-1", "route": "broker", "provider": ["Stub Provider"], "effort": "high"}
    file = folder / "models.yaml"
    file.write_text(yaml.safe_dump({"schema_version": 1, "models": {"loop": {"pinned": model}}}))
    return {"ARENA_MODELS": str(file)}


@pytest.mark.slow
@needs_sandbox
def test_five_turns_keep_the_fastest_file_that_passed(arena: Arena, tmp_path: Path) -> None:
    quick_kit(arena)
    texts = ["# wrong", "# right and slow", "no block here", "# right and # fast", "# right, and slow again"]
    made = [text if "no block" in text else fenced(f"{text}\ndef solution(): ...") for text in texts]
    with started(tmp_path / "log", *answers(tmp_path, *made)) as stub:
        session = played(arena, routed(arena, stub), "model", "loop/chat/m-1", "effort", "none")
        requests = stub.requests()
    assert (session["agent_status"], session["usage"]["requests"]) == ("complete", 5), session["message"]
    assert len(requests) == 5
    assert "# fast" in (arena.runs[-1] / "solution.py").read_text()
    commands = [step["input"]["command"] for step in steps_of(arena, "call")]
    assert commands == [
        "python check.py candidate.py",
        *["python check.py candidate.py", "python benchmark.py --solution candidate.py"] * 3,
    ]
    bodies = [json.dumps(request["body"]) for request in requests]
    assert "reasoning_effort" not in bodies[0]
    assert [len(request["body"]["messages"]) for request in requests] == [1, 3, 5, 7, 9]
    assert "FAIL" in bodies[1] and "90.0 us per call" in bodies[2] and "no complete block" in bodies[3]
    assert "answer 4 of 5" in bodies[4]
    cell = json.loads((arena.runs[-1] / "manifest.json").read_text())["cell"]
    assert (cell["turns"], cell["effort"]) == (5, "none")


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("turns", [1, 2])
def test_a_loop_that_ignores_its_turns_is_stopped(turns: int, arena: Arena, tmp_path: Path) -> None:
    """Its program is edited to ask on and on. The gateway ends the run, and what lies there by then is the submission."""
    quick_kit(arena)
    program = arena.tree / "harnesses" / "loop.py"
    text = program.read_text()
    greedy = text.replace('settings["turns"] == 1', "False").replace('range(1, settings["turns"] + 1)', "range(1, 9)")
    assert greedy.count("range(1, 9)") == 1
    program.write_text(greedy)
    made = [fenced(f"# right {number}\ndef solution(): ...") for number in range(1, 9)]
    with started(tmp_path / "log", *answers(tmp_path, *made)) as stub:
        session = played(arena, routed(arena, stub), "model", "loop/chat/m-1", "effort", "none", "turns", str(turns))
        requests = stub.requests()
    assert session["agent_status"] == "budget_exhausted"
    assert "the run's turns are used up" in session["message"]
    assert (len(requests), session["usage"]["requests"]) == (turns, turns)
    assert "# right 1" in (arena.runs[-1] / "solution.py").read_text()  # equally fast, the first stays


@pytest.mark.slow
@needs_sandbox
def test_a_real_run_is_scored_and_recorded(arena: Arena, tmp_path: Path) -> None:
    arena.one_shape()
    text = fenced((SHIPPED / "naive.py").read_text())
    with started(tmp_path / "log", *answers(tmp_path, text)) as stub:
        words = ("run", "-p", "paged_attention", "--hardware", "cpu", "-m", "loop/chat/m-1", "--effort", "low")
        done = arena(*words, "--turns", "2", "--profile", "--budget", "5m", env=routed(arena, stub), limit_s=280)
    assert done.code == 0, done.err
    [found] = annotations.read_all(arena.home / "annotations")
    assert (found.cell.turns, found.cell.profile, found.score.verdict) == (2, True, "passed")
    assert "2-turns · profile" in (arena.home / "leaderboard" / "LEADERBOARD.md").read_text()
    results = [step["output"] for step in steps_of(arena, "result")]
    assert "PASS" in results[0] and "us per call" in results[1] and "Self CPU" in results[2]
    assert loop.seconds(results[1]) > 0


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize(("mode", "status"), [("401", "provider_error"), ("unknown_model", "provider_error")])
def test_refusals_of_the_provider_end_the_loop(mode: str, status: str, arena: Arena, tmp_path: Path) -> None:
    with started(tmp_path / "log", "--mode", mode) as stub:
        session = played(arena, routed(arena, stub), "model", "loop/chat/m-1", "effort", "none", "turns", "1")
    assert session["agent_status"] == status, session["message"]


def test_settings_need_a_harness_that_takes_them() -> None:
    with pytest.raises(UsageError, match="leave --turns and --profile out"):
        select_model("oracle", turns=2)
    with pytest.raises(UsageError, match="leave --turns and --profile out"):
        select_model("oracle", profile=True)
    chosen = select_model("claude-opus-5-5-bare", turns=7, profile=True)
    assert (chosen.turns, chosen.profile, launch_api(chosen)) == (7, True, "anthropic")
    assert select_model("claude-opus-5-5-bare").turns == catalog.harness("loop").turns
    assert launch_api(select_model("gpt-6.1-sol-bare")) == "responses", "the route's first interface that the harness speaks"


def test_two_settings_are_two_rows(tmp_path: Path) -> None:
    from records import trial

    from arena.results import leaderboard
    from arena.results.rows import row_name

    made = [
        trial(0.4, n, harness="loop", model="m", turns=turns, profile=profile)
        for n, (turns, profile) in enumerate([(1, False), (5, False), (5, True), (5, False)])
    ]
    [table] = leaderboard.build(made).tables
    assert sorted(row_name(row) for row in table.rows) == ["loop/m@1-turn", "loop/m@5-turns", "loop/m@5-turns@profile"]
    assert {row_name(row): row.counted for row in table.rows}["loop/m@5-turns"] == 2


def test_a_sweep_may_hold_one_model_with_two_settings() -> None:
    loops = [{"model": "loop/local/m", "effort": "none", "turns": turns} for turns in (1, 5)]
    sweep = Sweep.model_validate({"name": "s", "cells": [{"models": loops, "problems": ["paged_attention"]}], "hardware": "cpu"})
    planned = grid.cells(sweep, grid.hardware_of(sweep), 1)
    assert [(one.cell.turns, one.label) for one in planned] == [(1, "local/m@none@1-turn"), (5, "local/m@none@5-turns")]
    twice = sweep.model_copy(update={"cells": (*sweep.cells, *sweep.cells)})
    with pytest.raises(UsageError, match="is there twice"):
        grid.cells(twice, grid.hardware_of(sweep), 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        (
            "```py\nx = 1\n```\n```python\ndef solution(): ...\n```\n```\nlonger = 'than both together, and no file'\n```",
            "def solution(): ...\n",
        ),
        ("```\r\nx\r\n```", "x\r\n"),
        ("```cuda\n__global__ void f() {}\n```", None),
        ("```python\nx = 1", None),
        ("", None),
        ("no block", None),
        ("```python\n" * 50_000, ""),
        ("\x00\x1b[2J```python\n\u202e = 1\n```", None),
    ],
)
def test_files_are_found_in_answers(text: str, found: str | None) -> None:
    kept = loop.file_in(text)
    assert kept == found if found != "" else kept is not None


CONTEXT = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
POLICY = {"code": "cyber_policy", "message": "Flagged for possible cybersecurity risk."}
FAULT = {"code": 502, "message": "Provider returned error", "metadata": {"error_type": "provider_overloaded"}}
FLAGGED = {"code": 403, "message": "It was flagged", "metadata": {"reasons": ["x"], "flagged_input": "Read PROMPT.md"}}
OVERLOADED = {"code": "server_is_overloaded", "message": 'too busy for "cyber_policy"'}
FILTERED = {"type": "api_error", "message": "Output blocked by content filtering policy"}


def failed(error: dict[str, Any]) -> bytes:
    return events({"type": "response.failed", "response": {"object": "response", "status": "failed", "error": error}}, name=True)


@pytest.mark.parametrize(
    ("api", "stream", "is_turn"),
    [
        ("gemini", events({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "m-1"}), True),
        ("responses", failed(POLICY), True),
        ("responses", failed(CONTEXT), True),
        ("responses", events({"type": "error"} | CONTEXT, name=True), True),
        ("responses", failed(OVERLOADED), False),
        ("chat", events({"choices": [{"delta": {"content": "The tex"}}]}, {"error": CONTEXT}), True),
        ("chat", events({"error": FLAGGED}), True),
        ("chat", events({"error": FAULT}), False),
        ("anthropic", events({"type": "error", "error": FILTERED}, name=True), True),
        ("anthropic", events({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, name=True), False),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_the_loop_and_the_gateway_count_the_same_turns(
    api: Any, stream: bytes, is_turn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "WAITS_S", (0, 0))
    monkeypatch.setenv("ARENA_KEY", "x" * 20)
    settings = {"api": api, "broker": False, "provider": [], "model": "m-1", "effort": "none", "turns": 1, "profile": False}
    with provider(Answer([stream]), Answer([STREAMS[api]])) as upstream:
        loop.ask(settings | {"gateway": upstream.url}, [("user", "one")])
        assert len(upstream.received) == (1 if is_turn else 2)
    with gateway_run(tmp_path, api, Answer([stream]), Answer([STREAMS[api]]), turns=1) as agent:
        agent.ask()
        assert agent.ask().status == (400 if is_turn else 200)


def test_the_loop_knows_the_errors_that_the_gateway_knows() -> None:
    assert set(apis.FINAL) == {*gateway_answers.OWN_FAULTS, *gateway_answers.POLICY_FLAGS}
    assert apis.FLAGGED == gateway_answers.FLAGGED


def test_events_of_any_form_break_no_reader_of_an_answer() -> None:
    odd: list[Any] = [
        None,
        1,
        "x",
        [],
        {},
        [1],
        {"error": "x"},
        {"choices": [1, {"delta": 3}]},
        {"usage": {"prompt_tokens": "many"}},
    ]
    for api in apis.APIS.values():
        for value in odd:
            event = value if isinstance(value, dict) else {"choices": value, "candidates": value, "delta": value, "usage": value}
            answer = apis.Answer()
            api.read(event, answer)
            assert isinstance(answer.text, str) and all(isinstance(count, int) for count in answer.usage.values())


def test_usage_is_disjoint_and_never_negative() -> None:
    assert apis.total(100, 40, 30, 10, 20) == {
        "input_tokens": 40,
        "cache_read_tokens": 40,
        "cache_write_tokens": 20,
        "output_tokens": 20,
        "reasoning_tokens": 10,
    }
    assert min(apis.total(1, 40, 3, 10, 20).values()) >= 0
    assert apis.total("x", None, -5, [], {}) == dict.fromkeys(FIELDS["usage"], 0)


def test_a_flood_of_output_is_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import os\nfor _ in range(64): os.write(1, b'\\xff\\x00' * 65536)\nprint('the end')"
    code, output = loop.run("check-1", [sys.executable, "-c", program])
    assert code == 0 and output.rstrip().endswith("the end") and len(output) < 2 * loop.KEPT_CHARACTERS
    assert all(len(line) < 4 << 20 for line in capsys.readouterr().out.splitlines())
    assert len(loop.shortened(output)) < loop.REPORT_CHARACTERS + 100


def test_times_are_read_from_scored_shapes_alone() -> None:
    lines = [
        "times on one GPU (x)",
        "B=4 D=64: 20.0 us per call (19.0..21.0), 30.0 us alone, 3.0 GB/s, 0.1 TFLOP/s",
        "B=8: 40.0 us per call (1.0..2.0), 3.0 GB/s, 0.1 TFLOP/s",
        "B=1: 5.0 us per call (1.0..2.0), 6.0 us alone",
    ]
    assert loop.seconds("\n".join(lines)) == pytest.approx(29.55e-6 * 40e-6)  # a time alone less 1.5 %
    assert loop.seconds("B=4: 900.0 us per call (1.0..2.0), 1000.0 us alone, 3.0 GB/s, 0.1 TFLOP/s") == pytest.approx(990e-6)
    assert loop.seconds("") == 1.0
    assert loop.seconds(": 1 us per call " * 100_000 + "\n" + lines[2]) == pytest.approx(40e-6)


def test_programs_that_never_end_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "COMMAND_S", 0.5)
    code, output = loop.run("check-1", [sys.executable, "-c", "import time; print('x', flush=True); time.sleep(60)"])
    assert code is None and "not done after" in output


def test_events_become_steps() -> None:
    usage = apis.total(5, 0, 3)
    found = [
        *read({"type": "answer", "turn": 1, "text": "t", "thinking": "h", "usage": usage}),
        *read({"type": "run", "id": "check-1", "command": "python check.py"}),
        *read({"type": "ran", "id": "check-1", "output": "PASS", "ok": True}),
        *read({"type": "error", "text": "x", "status": 500}),
        *read({"type": "end", "ok": True, "text": ""}),
    ]
    assert [step["kind"] for step in found] == ["thinking", "text", "usage", "call", "result", "error", "end"]
    for step in found:
        assert FIELDS[step["kind"]] == step.keys() - {"kind"}
    for odd in (
        {},
        {"type": "answer", "text": 1},
        {"type": "answer", "text": "", "thinking": "", "usage": {"input_tokens": "x"}},
        {"type": "ran"},
    ):
        assert read(odd) == []
