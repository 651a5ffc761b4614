"""The stub itself: its script, its wire formats, and its failures."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stub import NAIVE, Stub, started

WRITER = {"type": "object", "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}}
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = {"write": WRITER, "bash": SHELL}
KEY = "the key"


def anthropic(turns: int, stream: bool, tools: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    results: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "tool_result"}] * (turn + 1)} for turn in range(turns)]
    declared = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
    return "/v1/messages", {"model": "m", "stream": stream, "messages": results, "tools": declared}


def chat(turns: int, stream: bool, tools: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    answered = [{"role": role} for turn in range(turns) for role in ("assistant", *["tool"] * (turn + 1))]
    declared = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in tools.items()]
    request = {"model": "m", "stream": stream, "messages": answered, "tools": declared}
    return "/api/v1/chat/completions", request | ({"stream_options": {"include_usage": True}} if stream else {})


def responses(turns: int, stream: bool, tools: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kinds = [kind for turn in range(turns) for kind in ("function_call", *["function_call_output"] * (turn + 1))]
    declared = [{"type": "function", "name": name, "parameters": schema} for name, schema in tools.items()]
    return "/v1/responses", {"model": "m", "stream": stream, "input": [{"type": kind} for kind in kinds], "tools": declared}


def gemini(turns: int, stream: bool, tools: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    results: list[dict[str, Any]] = [{"parts": [{"functionResponse": {}}] * (turn + 1)} for turn in range(turns)]
    declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in tools.items()]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/m:{verb}", {"contents": results, "tools": [{"functionDeclarations": declared}]}


APIS = (anthropic, chat, responses, gemini)
api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.__name__)


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Stub]:
    with started(folder / "log.jsonl", "--key", KEY, *words) as stub:
        yield stub


def ask(stub: Stub, path: str, body: dict[str, Any], key: str = KEY) -> str:
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(stub.url + path, json.dumps(body).encode(), head), timeout=20) as answer:
        return answer.read().decode()


def refused(stub: Stub, path: str, body: dict[str, Any], key: str = KEY) -> tuple[int, dict[str, Any], str | None]:
    with pytest.raises(urllib.error.HTTPError) as error:
        ask(stub, path, body, key)
    with error.value as answer:
        return answer.code, json.loads(answer.read()), answer.headers["Retry-After"]


@api
def test_script_has_three_turns(api, tmp_path):
    with running(tmp_path, "--extra", "echo beside", "--thinking") as stub:
        answers = [[ask(stub, *api(turn, stream, TOOLS)) for stream in (False, True)] for turn in range(3)]
    for whole, stream in answers:
        assert "First the file" in whole
        assert stream.startswith(("event: ", "data: "))
    (first, _), (second, _), (last, _) = answers
    assert json.dumps(NAIVE.read_text())[1:60] in first.replace("\\\\n", "\\n")
    assert "python check.py" in second and "echo beside" in second
    assert "Done: solution.py is written" in last
    reported = [line["usage"] for line in stub.lines("answer")]
    assert reported[0::2] == reported[1::2] and len(reported) == 6
    assert stub.usage()["cache_read"] == 2 * (200 + 900 + 1100)


@api
def test_request_without_tools_gets_a_title(api, tmp_path):
    with running(tmp_path) as stub:
        assert "a title" in ask(stub, *api(0, False, {}))
        assert stub.usage() == {"input": 10, "cache_read": 0, "cache_write": 0, "output": 5, "reasoning": 0}


@pytest.mark.parametrize("words", [{"stream_options": {"include_usage": True}}, {"usage": {"include": True}}])
def test_chat_stream_reports_usage_only_on_request(words, tmp_path):
    path, body = chat(0, True, TOOLS)
    with running(tmp_path) as stub:
        bare = {name: value for name, value in body.items() if name != "stream_options"}
        assert '"usage"' not in ask(stub, path, bare)
        assert stub.usage()["input"] == 0
        assert '"usage"' in ask(stub, path, bare | words)
        assert stub.usage()["input"] == 800


@api
def test_wrong_key_is_refused(api, tmp_path):
    with running(tmp_path) as stub:
        path, body = api(0, True, TOOLS)
        assert refused(stub, path, body, "another")[0] == 401
        assert [line["status"] for line in stub.lines("answer")] == [401]


@pytest.mark.parametrize(
    ("mode", "status", "after"), [("401", 401, None), ("429", 429, "1"), ("500", 500, None), ("529", 529, None)]
)
def test_failure_modes_answer_with_their_status(mode, status, after, tmp_path):
    with running(tmp_path, "--mode", mode) as stub:
        for one in APIS:
            code, body, retry = refused(stub, *one(0, True, TOOLS))
            assert (code, retry) == (status, after)
            assert "the stub" in body["error"]["message"]


@pytest.mark.slow
def test_account_runs_dry_in_the_second_turn(tmp_path):
    for one, status in zip((anthropic, responses, chat, gemini), (400, 429, 402, 402), strict=True):
        with running(tmp_path, "--mode", "no_credit") as stub:
            ask(stub, *one(0, True, TOOLS))
            assert refused(stub, *one(1, True, TOOLS))[0] == status
            assert refused(stub, *one(0, True, TOOLS))[0] == status  # from then on every request


@api
def test_cut_and_early_break_answers_from_the_second_turn_on(api, tmp_path):
    with running(tmp_path, "--mode", "cut") as stub:
        ask(stub, *api(0, True, TOOLS))
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            ask(stub, *api(1, True, TOOLS))
    with running(tmp_path, "--mode", "early") as stub:
        text = ask(stub, *api(1, True, TOOLS))
    assert "Working on it." in text
    for mark in ("end_turn", '"stop"', "response.completed", "STOP", "[DONE]"):
        assert mark not in text


@api
def test_loop_mode_has_no_end(api, tmp_path):
    with running(tmp_path, "--mode", "loop") as stub:
        assert all(f"echo {turn}" in ask(stub, *api(turn, True, TOOLS)) for turn in (2, 3, 9))


@api
def test_other_modes_name_another_model_or_provider(api, tmp_path):
    with running(tmp_path, "--mode", "other_model") as stub:
        assert '"m-other"' in ask(stub, *api(0, True, TOOLS))
    with running(tmp_path, "--mode", "other_provider", "--provider", "Mine") as stub:
        assert ("Another Provider" in ask(stub, *api(0, True, TOOLS))) == (api is chat)


def test_codex_tools_are_called_in_all_three_forms(tmp_path):
    path, body = responses(0, False, {"exec_command": {"properties": {"cmd": {"type": "string"}}}})
    free = body | {"tools": [*body["tools"], {"type": "custom", "name": "apply_patch"}]}
    item = {"type": "additional_tools", "tools": [{"tools": [{"type": "custom", "name": "exec"}]}]}
    with running(tmp_path) as stub:
        by_shell, by_patch, by_code = (
            json.loads(ask(stub, path, one))["output"][-1] for one in (body, free, body | {"tools": [], "input": [item]})
        )
    assert json.loads(by_shell["arguments"])["cmd"].startswith("cat > solution.py <<")
    assert by_patch["input"].startswith("*** Begin Patch\n*** Add File: solution.py\n+# verdict: passed\n")
    assert by_code["input"].startswith('text(await tools.apply_patch("*** Begin Patch\\n')


LATER = {
    "policy": ('"Output blocked', '"cyber_policy"', '"flagged_input"', '"PROHIBITED_CONTENT"'),
    "context": ('"prompt is too long', '"context_length_exceeded"', "\"This endpoint's maximum", '"The input token count'),
    "filter": ('"stop_reason": "refusal"', '"reason": "content_filter"', '"content_filter"', '"SAFETY"'),
    "output": ('"max_tokens"', '"reason": "max_output_tokens"', '"length"', '"MAX_TOKENS"'),
    "overload": ('"overloaded_error"', '"server_is_overloaded"', '"provider_overloaded"', '"UNAVAILABLE"'),
}
"""What the second turn holds, by mode: of Anthropic, responses, chat, Gemini."""


@pytest.mark.parametrize("mode", LATER)
def test_errors_of_the_second_turn_are_in_each_providers_words(mode, tmp_path):
    with running(tmp_path, "--mode", mode) as stub:
        apis = list(zip((anthropic, responses, chat, gemini), LATER[mode], strict=True))
        for one, words in apis:
            assert words not in said(stub, *one(0, True, TOOLS))
        for one, words in apis:
            for stream in (False, True):
                text = said(stub, *one(1, stream, TOOLS))
                assert words in text
                assert "tool_use" not in text and "functionCall" not in text
        after = said(stub, *chat(0, True, TOOLS))
    assert ("verloaded" in after) == (mode == "overload")  # the others are about the content of the second turn


def said(stub: Stub, path: str, body: dict[str, Any]) -> str:
    """The answer, whatever its status."""
    try:
        return ask(stub, path, body)
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def test_a_hiccup_happens_once(tmp_path):
    with running(tmp_path, "--mode", "hiccup") as stub:
        assert "verloaded" in ask(stub, *responses(1, True, TOOLS))
        assert "verloaded" not in ask(stub, *responses(1, True, TOOLS))


def test_a_broker_loses_its_providers(tmp_path):
    with running(tmp_path, "--mode", "no_provider") as stub:
        ask(stub, *chat(0, True, TOOLS))
        for turn in (1, 0):
            assert refused(stub, *chat(turn, True, TOOLS))[0] == 404
