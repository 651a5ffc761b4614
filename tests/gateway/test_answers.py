"""Reading an answer: any pieces, any bytes, and which model or provider sent it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider import STREAMS, TOKENS, access, events

from arena.gateway.model.answers import (
    PARSERS,
    AnswerReader,
    EventParser,
    Facts,
    is_policy_refusal,
    limit_reached,
    wrong_answer,
    wrong_model,
    wrong_provider,
)
from arena.gateway.model.ledger import Tokens
from arena.gateway.model.usage import reported_usd, tokens
from arena.schema import Api

APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
SSE = "text/event-stream"


def read(api: Api, data: bytes, *, kind: str = SSE, sizes: tuple[int, ...] = ()) -> Facts:
    """The facts of an answer that arrives in pieces of those sizes and a last one for the rest."""
    reader = AnswerReader(api, kind)
    for size in sizes:
        reader.feed(data[:size])
        data = data[size:]
    reader.feed(data)
    reader.end()
    return reader.facts


@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(0, 9), max_size=40), st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_found_in_any_pieces(bodies: list[bytes], sizes: list[int], end: bytes):
    bodies = [body.replace(b"\n", b"").replace(b"\r", b"") for body in bodies]
    data = b": a comment" + end + end + b"".join(b"event: x" + end + b"data: " + body + end + end for body in bodies)
    found, parsed = list[bytes](), EventParser()
    for size in [*sizes, len(data)]:
        found += parsed.feed(data[:size])
        data = data[size:]
    assert found == [body for body in bodies if body]


def test_events_may_have_many_lines_and_no_end():
    parsed = EventParser()
    assert list(parsed.feed(b"data: a\ndata:b\nid: 3\n\ndata: c")) == [b"a\nb"]
    assert list(parsed.rest()) == [b"c"]


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), b"data: " + b"x" * (1 << 20) + b"\n"])
def test_too_long_events_are_skipped(piece: bytes):
    parsed = EventParser()
    assert list(parsed.feed(b"data: {}\n\ndata: ")) == [b"{}"]
    for _ in range(20):
        assert list(parsed.feed(piece)) == []
    held = len(parsed._line) + sum(map(len, parsed._data))
    assert held < 100
    assert list(parsed.feed(b"data: still the same\n\ndata: [1]\n\n")) == [b"[1]"]


@given(st.sampled_from(APIS), st.lists(st.integers(0, 300), max_size=30))
def test_numbers_are_the_same_in_any_pieces(api: Api, sizes: list[int]):
    facts = read(api, STREAMS[api], sizes=tuple(sizes))
    found = tokens(api, facts.usage)
    assert found is not None
    assert (found.input, found.cache_read, found.cache_write, found.output, found.reasoning) == TOKENS[api]
    assert facts.finish


@given(st.sampled_from(APIS), st.binary(max_size=300), st.integers(0, 400), st.sampled_from([SSE, "application/json", ""]))
def test_any_bytes_are_read_without_error(api: Api, noise: bytes, at: int, kind: str):
    stream = STREAMS[api]
    read(api, stream[:at] + noise + stream[at:], kind=kind)
    read(api, noise, kind=kind)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = {
    *(
        "type",
        "message",
        "usage",
        "delta",
        "error",
        "model",
        "provider",
        "choices",
        "finish_reason",
        "response",
        "status",
        "output",
    ),
    *(
        "content",
        "candidates",
        "modelVersion",
        "usageMetadata",
        "promptFeedback",
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
    ),
    *(
        "completion_tokens",
        "prompt_tokens_details",
        "promptTokenCount",
        "cost",
        "is_byok",
        "cost_details",
        "service_tier",
        "code",
    ),
    *("incomplete_details", "object"),
}


@given(
    st.sampled_from(APIS),
    st.dictionaries(
        st.sampled_from(sorted(NAMES)), st.dictionaries(st.sampled_from(sorted(NAMES)), values) | st.lists(values) | values
    ),
)
def test_any_event_is_read_without_error(api: Api, event: dict[str, Any]):
    facts = PARSERS[api](event)
    tokens(api, facts.usage)
    reported_usd(facts.usage)


@pytest.mark.parametrize("hostile", [b"[" * 200_000, b"1" * 10_000, b'{"a":' * 200_000, b"\xff\xfe", b"null", b"[1, [2]]"])
def test_hostile_json_gives_no_facts(hostile: bytes):
    nothing = Facts(unread=hostile[:2] in (b"[[", b"11", b'{"'))  # more than the gateway reads, but valid as far as it goes
    for api in APIS:
        assert read(api, b"data: " + hostile + b"\n\n") == nothing
        assert read(api, hostile, kind="application/json") == nothing


@pytest.mark.parametrize(
    ("api", "body", "model", "finish", "counted"),
    [
        (
            "anthropic",
            {"type": "message", "model": "m", "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 7}},
            "m",
            "end_turn",
            Tokens(5, output=7),
        ),
        (
            "anthropic",
            {
                "type": "message",
                "model": "m",
                "stop_reason": "tool_use",
                "usage": {
                    "input_tokens": 5,
                    "output_tokens": 7,
                    "output_tokens_details": {"thinking_tokens": 3},
                    "cache_creation_input_tokens": 20,
                    "cache_creation": {"ephemeral_1h_input_tokens": 15, "ephemeral_5m_input_tokens": 5},
                },
            },
            "m",
            "tool_use",
            Tokens(5, 0, 20, 15, 4, 3),
        ),
        (
            "responses",
            {
                "object": "response",
                "model": "m",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "usage": {"input_tokens": 5, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 7}},
            },
            "m",
            "max_output_tokens",
            Tokens(5, output=0, reasoning=7),
        ),
        (
            "chat",  # Moonshot puts the usage into the choice, and its cached tokens at the top
            {
                "model": "m",
                "choices": [{"finish_reason": "stop", "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4}}],
            },
            "m",
            "stop",
            Tokens(5, 4, output=2),
        ),
        (
            "chat",  # DeepSeek
            {
                "model": "m",
                "choices": [{"finish_reason": "length", "message": {}}],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "prompt_cache_hit_tokens": 9,
                    "prompt_cache_miss_tokens": 0,
                },
            },
            "m",
            "length",
            Tokens(0, 9, output=2),
        ),
        (
            "gemini",
            [
                {
                    "modelVersion": "m",
                    "candidates": [{"finishReason": "STOP"}],
                    "usageMetadata": {"promptTokenCount": 5, "toolUsePromptTokenCount": 2},
                }
            ],
            "m",
            "STOP",
            Tokens(7),
        ),
    ],
)
def test_whole_answers_give_their_facts(api: Api, body: Any, model: str, finish: str, counted: Tokens):
    facts = read(api, json.dumps(body).encode(), kind="application/json", sizes=(3, 10))
    assert (facts.model, facts.finish, facts.error, facts.refused) == (model, finish, None, False)
    assert tokens(api, facts.usage) == counted


@pytest.mark.parametrize(
    ("api", "event", "error", "own"),
    [
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "busy", False),
        ("responses", {"type": "error", "code": "server_error", "message": "broken"}, "broken", False),
        (
            "responses",
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}},
            },
            "slow",
            False,
        ),
        (
            "responses",
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "context_length_exceeded", "message": "long"}},
            },
            "long",
            True,
        ),
        (
            "chat",
            {"error": {"code": 502, "message": "gone"}, "choices": [{"finish_reason": "error", "delta": {}}]},
            "gone",
            False,
        ),
        ("chat", {"choices": [{"finish_reason": "error"}]}, "an error without a message", False),
        ("gemini", {"error": {"code": 503, "message": "full", "status": "UNAVAILABLE"}}, "full", False),
    ],
)
def test_errors_inside_a_stream_are_read(api: Api, event: Any, error: str, own: bool):
    facts = read(api, STREAMS[api][:60] + b"\n\n" + events(event))
    assert (facts.error, facts.own_fault, facts.finish) == (error, own, None)


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("anthropic", {"type": "message_delta", "delta": {"stop_reason": "refusal"}}),
        ("responses", {"type": "response.refusal.done", "refusal": "no"}),
        (
            "responses",
            {
                "type": "response.completed",
                "response": {"status": "completed", "output": [{"content": [{"type": "refusal", "refusal": "no"}]}]},
            },
        ),
        (
            "responses",
            {
                "type": "response.incomplete",
                "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            },
        ),
        ("chat", {"choices": [{"finish_reason": "content_filter", "delta": {}}]}),
        ("chat", {"choices": [{"finish_reason": "stop", "delta": {"refusal": "no"}}]}),
        ("gemini", {"candidates": [{"finishReason": "SAFETY"}]}),
        ("gemini", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    ],
)
def test_refusals_are_recognised(api: Api, event: Any):
    assert read(api, events(event)).refused
    assert not read(api, STREAMS[api]).refused


@pytest.mark.parametrize(
    ("requested", "answered", "broker", "wrong"),
    [
        ("m", None, False, False),
        ("claude-opus-4-5", "claude-opus-4-5", False, False),
        ("claude-opus-4-5", "claude-opus-4-5-20251101", False, False),
        ("gpt-5.5", "gpt-5.5-2026-04-23", False, False),
        ("gemini-2.5-pro", "models/gemini-2.5-pro", False, False),
        ("MiniMax-M3", "minimax-m3", False, False),
        ("gpt-5.5", "gpt-5.5-mini", False, True),
        ("gpt-5.5", "gpt-5.5-mini-2026-04-23", False, True),
        ("gpt-5.5", "gpt-5", False, True),
        ("gpt-5.5", "gpt-5.5-20260423-2", False, True),
        ("kimi-k2", "kimi-k2-0905", False, True),
        ("claude-opus-4.8", "claude-4.8-opus-20260528", False, True),
        ("anthropic/claude-opus-4.8", "anthropic/claude-4.8-opus-20260528", True, False),
        ("anthropic/claude-opus-4.8", "anthropic/claude-4.8-sonnet-20260528", True, True),
        ("anthropic/claude-opus-4.8", "evil/claude-4.8-opus-20260528", True, True),
        ("anthropic/claude-fable-5", "anthropic/claude-5-fable-20260609", True, False),
        ("mistralai/mistral-medium-3-5", "mistralai/mistral-medium-3.5-20260430", True, False),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127", True, False),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-9999", True, True),
        ("openai/gpt-5.5", "openai/gpt-5.5-20260423", True, False),
        ("qwen/qwen3.6-plus", "qwen/qwen3.6-plus-04-02", True, False),
        ("qwen/qwen3.6-plus", "qwen/qwen3.6-plus-04-02", False, True),
        ("qwen/qwen3.6-plus", "qwen/qwen3.6-plus-13-02", True, True),
        ("x-ai/grok-4", "x-ai/grok-4-07-09", True, False),
        ("qwen/qwen3-235b-a22b-2507", "qwen/qwen3-235b-a22b-07-25", True, False),
        ("qwen/qwen3-235b-a22b-2507", "qwen/qwen3-235b-a22b-04-28", True, True),
        ("z-ai/glm-4.6v", "z-ai/glm-4.6-20251208", True, True),
        ("x/m:free", "x/m:free", True, False),
        ("x/m:free", "x/m-20260101:free", True, False),
        ("x/m:free", "x/m", True, True),
        ("x/m", "x/m:free", True, True),
    ],
)
def test_answers_of_another_model_are_recognised(requested: str, answered: str | None, broker: bool, wrong: bool):
    assert wrong_model(requested, answered, broker=broker) == wrong


@pytest.mark.parametrize(
    ("answered", "wrong"),
    [
        ("gpt-5.5", False),
        ("gpt-5.5-codex", False),
        ("gpt-5.5-codex-2026-05-01", False),
        ("gpt-5.5-codex-mini", True),
        ("gpt-5.5-chat", True),
        ("gpt-6-sol", True),
    ],
)
def test_only_listed_names_count_as_the_same_model(answered: str, wrong: bool):
    asked = access("responses", "http://127.0.0.1:1", model="gpt-5.5", answers_as=("gpt-5.5-codex",))
    assert bool(wrong_answer(asked, Facts(model=answered))) == wrong


@pytest.mark.parametrize(
    ("finish", "names", "message", "limit"),
    [
        ("max_tokens", (), "", "output"),
        ("length", (), "", "output"),
        ("max_output_tokens", (), "", "output"),
        ("MAX_TOKENS", (), "", "output"),
        ("model_context_window_exceeded", (), "", "context"),
        (None, ("invalid_request_error", "context_length_exceeded"), "too long", "context"),
        (None, ("invalid_request_error",), "prompt is too long: 1000001 tokens > 1000000 maximum", "context"),
        (None, (), "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).", "context"),
        (None, (), "This model's maximum context length is 32768 tokens.", "context"),
        (None, ("invalid_request_error",), "tools.0: the text 'prompt is too long' is no name", None),
        ("end_turn", (), "", None),
    ],
)
def test_limits_that_cut_an_answer_are_recognised(finish: str | None, names: tuple[str, ...], message: str, limit: str | None):
    assert limit_reached(finish, names, message) == limit


@pytest.mark.parametrize(
    ("pin", "answered", "wrong"),
    [
        (("deepinfra",), "DeepInfra", False),
        (("deepinfra/fp4",), "DeepInfra", False),
        (("moonshotai",), "Moonshot AI", False),
        (("z-ai",), "Z.AI", False),
        (("amazon-bedrock",), "Amazon Bedrock", False),
        (("google-vertex",), "Google", False),
        (("google-ai-studio",), "Google", True),
        (("fireworks", "together"), "Together", False),
        (("fireworks",), "Together", True),
        (("fireworks",), None, False),
        ((), "Together", False),
    ],
)
def test_providers_outside_the_pin_are_recognised(pin: tuple[str, ...], answered: str | None, wrong: bool):
    assert wrong_provider(pin, answered) == wrong


@pytest.mark.parametrize(
    ("names", "message", "refused"),
    [
        (("cyber_policy",), "Flagged.", True),
        (("bio_policy",), "Flagged.", True),
        (("misalignment_policy_violation",), "Flagged.", True),
        (("403", "flagged_input"), "Your chosen model requires moderation", True),
        (("invalid_request_error",), "Output blocked by content filtering policy", True),
        (("invalid_prompt",), "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", True),
        (("invalid_request_error",), "tools.0: 'Output blocked by content filtering policy' is no name", False),
        (("403",), "This key may not use the model.", False),
    ],
)
def test_policies_that_refuse_are_recognised(names: tuple[str, ...], message: str, refused: bool):
    assert is_policy_refusal(names, message) == refused
