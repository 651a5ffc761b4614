"""Which requests the model gateway passes on, and which it refuses: pure tests over heads and bodies."""

import contextlib
import gzip
import json
import time
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.gateway.config import Caps, ModelAccess
from arena.gateway.model.apis import Endpoint, has_more_values
from arena.gateway.model.policy import BODY_BYTES, NESTING, VALUES, check_body, check_head
from arena.gateway.unix_server import Refusal
from arena.schema import Allow, Api, Route

APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
KEY = "arena-0123"
JSON = {"Content-Type": "application/json"}
GEMINI = "models/m-1:streamGenerateContent"


def access(
    api: Api, *, broker: bool = False, provider: tuple[str, ...] = (), model: str = "m-1", allow: Allow | None = None
) -> ModelAccess:
    route = Route(title="t", apis=(api,), base_url="https://p.test/v1", key="K", broker=broker, allow=allow or Allow())
    return ModelAccess(api, route, "sk-real-key", model, provider)


def ask(api: Api, more: Any = None, *, headers: dict[str, str] | None = None, raw: bytes | None = None, **how: Any):
    """Check a request with that body."""
    about = access(api, **how)
    body = ({} if api == "gemini" else {"model": about.model}) | (more or {})
    at = Endpoint("model", GEMINI, "m-1") if api == "gemini" else Endpoint("model", "x")
    return check_body(about, at, headers or JSON, json.dumps(body).encode() if raw is None else raw)


def refusal(api: Api, more: Any = None, **how: Any) -> Refusal:
    with pytest.raises(Refusal) as found:
        ask(api, more, **how)
    return found.value


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": KEY},
        {"x-goog-api-key": KEY},
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer {KEY}", "x-api-key": "something else"},
    ],
)
def test_the_runs_key_is_accepted(headers: dict[str, str]):
    assert check_head(access("chat"), KEY, "POST", "/v1/chat/completions", headers | JSON).kind == "model"


@pytest.mark.parametrize(
    "headers", [{}, {"x-api-key": ""}, {"Authorization": KEY}, {"x-api-key": "k\udcff"}, {"x-api-key": KEY + "0"}]
)
def test_another_key_is_refused(headers: dict[str, str]):
    with pytest.raises(Refusal) as found:
        check_head(access("chat"), KEY, "POST", "/v1/chat/completions", headers | JSON)
    assert found.value.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "multipart/form-data"},
        {"Content-Type": "application/json; charset=utf-16"},
        JSON | {"Content-Encoding": "zstd"},
        JSON | {"Content-Encoding": "gzip, gzip"},
    ],
)
def test_other_body_encodings_are_refused(headers: dict[str, str]):
    with pytest.raises(Refusal) as found:
        check_head(access("chat"), KEY, "POST", "/v1/chat/completions", {"x-api-key": KEY} | headers)
    assert found.value.status == 415


@pytest.mark.parametrize(
    ("api", "more", "effort"),
    [
        ("anthropic", {}, None),
        ("anthropic", {"output_config": {"effort": "high"}, "thinking": {"type": "enabled", "budget_tokens": 31999}}, "high"),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "1024 tokens"),
        ("anthropic", {"thinking": {"type": "adaptive"}}, "adaptive"),
        ("responses", {"reasoning": {"effort": "xhigh"}}, "xhigh"),
        ("chat", {"reasoning_effort": "low"}, "low"),
        ("chat", {"reasoning": {"effort": "high"}}, "high"),
        ("chat", {"reasoning": {"max_tokens": 2000}}, "2000 tokens"),
        ("chat", {"thinking": {"type": "enabled", "effort": "max"}}, "max"),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, "0 tokens"),
        ("gemini", {"generation_config": {"thinking_config": {"thinking_level": "HIGH"}}}, "HIGH"),
        ("chat", {"reasoning_effort": ["x" * 200]}, "other"),
    ],
)
def test_the_effort_is_read_from_each_interface(api: Api, more: Any, effort: str | None):
    assert ask(api, more).effort == effort


@pytest.mark.parametrize(
    ("api", "more", "bound"),
    [
        ("anthropic", {"max_tokens": 5}, 5),
        ("responses", {"max_output_tokens": 5}, 5),
        ("chat", {"max_tokens": 5, "max_completion_tokens": 7, "n": 2}, 14),
        ("chat", {"max_tokens": 5, "n": 2.0}, 5),
        ("chat", {"max_tokens": 5, "n": "8"}, 5),
        ("chat", {"max_tokens": True}, None),
        ("chat", {"max_tokens": -1}, None),
        ("gemini", {"generationConfig": {"maxOutputTokens": 5, "candidateCount": 2}}, 10),
        ("gemini", {}, None),
        ("chat", {"max_tokens": 10**30}, 1 << 40),
    ],
)
def test_the_bound_of_an_answer_is_read(api: Api, more: Any, bound: int | None):
    assert ask(api, more).max_tokens == bound


def test_streaming_is_recognised():
    assert ask("chat", {"stream": True}).stream
    assert not ask("chat").stream
    assert ask("gemini").stream


@pytest.mark.parametrize("api", ["anthropic", "responses", "chat"])
@pytest.mark.parametrize("model", ["m-2", "m-1:online", "M-1", "m-1 ", None, ["m-1"], {"id": "m-1"}])
def test_another_model_is_refused(api: Api, model: Any):
    assert refusal(api, {"model": model}).status == 403


def test_gemini_names_its_model_in_path_or_body():
    assert refusal("gemini", {"model": "models/m-2"}).status == 403
    assert ask("gemini", {"model": "models/m-1"}).effort is None
    with pytest.raises(Refusal):
        check_body(access("gemini"), Endpoint("model", "models/m-2:generateContent", "m-2"), JSON, b"{}")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"model": "m-1", "model": "m-2"}',
        b'{"model": "m-1", "MODEL": "m-2"}',
        b'{"model": "m-1", "mo_del": "m-2"}',
        b'{"model": "m-1", "x": {"a": 1, "a": 2}}',
        b"\xef\xbb\xbf" + b'{"model": "m-1"}',
        '{"model": "m-1"}'.encode("utf-16"),
        b'{"model": "m-1", "x": "\xff"}',
        b'{"model": "m-1", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_ambiguous_bodies_are_refused(raw: bytes):
    assert refusal("chat", raw=raw).status in (400, 403)


def test_bodies_with_too_many_values_are_refused():
    assert refusal("chat", raw=b'{"model": "m-1", "x": [' + b"0," * VALUES + b"0]}").status == 413
    message = {"role": "user", "content": "0,[{" * VALUES + '"\\'}  # in text they are no values
    ask("chat", {"messages": [message]})


def test_deeply_nested_bodies_are_refused():
    """Deeper than the gateway reads, an echo of it would make an answer unreadable."""
    deep, tools = {"a": 1}, [{"type": "function", "function": {"parameters": {}}}]
    for _ in range(NESTING - 10):
        deep = {"a": deep}  # type: ignore[dict-item]
    tools[0]["function"]["parameters"] = deep  # type: ignore[index]
    ask("chat", {"tools": tools})
    tools[0]["function"]["parameters"] = {"a": [[[[[[[[[[deep]]]]]]]]]]}  # type: ignore[index]
    assert "levels deep" in refusal("chat", {"tools": tools}).reason


@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"' + "\\" * 999_999, '"a' * 500_000, "," * 400_000 + '"'])
def test_counting_values_is_quick_in_any_text(text: str):
    began_s = time.thread_time()
    has_more_values(b"," * VALUES + text.encode(), VALUES)
    assert time.thread_time() - began_s < 2.0


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_compressed_bodies_are_read_and_checked(pack: Any):
    headers = JSON | {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    good = b'{"model": "m-1", "reasoning_effort": "low"}'
    assert ask("chat", headers=headers, raw=pack(good)).effort == "low"
    for bad in (pack(b'{"model": "m-2"}'), pack(good)[:-3], pack(good) + pack(b'{"model": "m-2"}'), good, b""):
        assert refusal("chat", headers=headers, raw=bad).status in (400, 403)
    assert refusal("chat", headers=headers, raw=pack(b" " * (BODY_BYTES + 1))).status == 413


@pytest.mark.parametrize(
    "provider",
    [
        None,
        [],
        "a",
        {"order": ["a", "b"]},
        {"order": ["a", "b"], "allow_fallbacks": True},
        {"order": ["a", "b"], "allow_fallbacks": 0},
        {"order": ["b", "a"], "allow_fallbacks": False},
        {"order": ["a"], "allow_fallbacks": False},
        {"order": ["a", "b", "c"], "allow_fallbacks": False},
        {"only": ["a"], "allow_fallbacks": False},
        {"only": ["a", "b"], "order": ["b", "a"], "allow_fallbacks": False},
        {"order": ["a", "b"], "only": ["c"], "allow_fallbacks": False},
        {"allow_fallbacks": False},
    ],
)
@pytest.mark.parametrize("api", ["anthropic", "responses", "chat"])
def test_requests_without_the_pin_are_refused(api: Api, provider: Any):
    found = refusal(api, {"provider": provider}, broker=True, provider=("a", "b"))
    assert (found.status, '"order": ["a", "b"]' in found.reason) == (403, True)


@pytest.mark.parametrize(
    "provider",
    [
        {"order": ["a", "b"], "allow_fallbacks": False},
        {"only": ["b", "a"], "allow_fallbacks": False},
        {"order": ["a", "b"], "only": ["a", "b"], "allow_fallbacks": False, "data_collection": "deny"},
    ],
)
def test_requests_with_the_pin_pass(provider: Any):
    ask("chat", {"provider": provider}, broker=True, provider=("a", "b"))


@pytest.mark.parametrize(
    "more",
    [
        {"ignore": ["a"]},
        {"quantizations": ["fp4"]},
        {"max_price": {"prompt": 0}},
        {"require_parameters": True},
        {"sort": "price"},
    ],
)
def test_pins_with_other_conditions_are_refused(more: Any):
    found = refusal("chat", {"provider": {"order": ["a"], "allow_fallbacks": False} | more}, broker=True, provider=("a",))
    assert (found.status, "no provider to answer" in found.reason) == (403, True)


def test_in_an_unpinned_run_the_broker_chooses():
    ask("chat", {"provider": None}, broker=True)
    for choice in ({"order": ["z"]}, {"ignore": ["z"]}, {"sort": "price"}):
        assert refusal("chat", {"provider": choice}, broker=True).status == 403
    assert refusal("chat", {"provider": {"order": ["z"]}}).status == 403  # no broker, which alone knows the field


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("tools", [{"google_search": {}}, "web_search", 1, True, {}])
def test_tools_must_be_a_list(api: Api, tools: Any):
    assert refusal(api, {"tools": tools}).status == 400
    ask(api, {"tools": None})


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("gemini", {"generationConfig": [{"routingConfig": {}}]}),
        ("responses", {"reasoning": [{"effort": "low"}]}),
        ("chat", {"stream_options": True}),
        ("chat", {"tool_choice": [{"type": "web_search"}]}),
        ("responses", {"tools": [{"type": "namespace", "tools": {"type": "mcp"}}]}),
    ],
)
def test_lists_for_objects_are_refused(api: Api, more: Any):
    assert refusal(api, more).status == 400


def test_nested_content_and_tools_are_checked():
    parts: Any = {"source": {"type": "url", "url": "https://x.test"}}
    tools: Any = [{"type": "function"}]
    for _ in range(50):
        parts, tools = {"content": [[parts]]}, [{"type": "namespace", "tools": tools}]
    assert refusal("anthropic", {"messages": [parts]}).status == 403
    assert refusal("responses", {"tools": tools}).status == 400


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "more", [{"service_tier": "priority"}, {"serviceTier": "flex"}, {"service_tier": ["auto"]}, {"speed": "fast"}]
)
def test_service_tiers_with_other_prices_are_refused(api: Api, more: Any):
    assert refusal(api, more).status == 403
    for tier in (None, "auto", "default", "standard_only"):
        ask(api, {"service_tier": tier, "speed": None})


@pytest.mark.parametrize("caps", [Caps(tokens=9), Caps(cost_usd=1.0)])
def test_a_cap_requires_streams_to_report_usage(caps: Caps):
    def request(body: Any, *, broker: bool = False) -> None:
        data = json.dumps({"model": "m-1"} | body).encode()
        check_body(replace(access("chat", broker=broker), caps=caps), Endpoint("model", "x"), JSON, data)

    for body in ({"stream": True}, {"stream": True, "stream_options": {"include_usage": 1}}):
        with pytest.raises(Refusal, match="include_usage"):
            request(body)
        request(body, broker=True)
        ask("chat", body)
    request({})
    request({"stream": True, "stream_options": {"include_usage": True}})


@pytest.mark.parametrize("effort", ["\ud800", "a\x1b[2Jb", "<script>", "x" * 61, ["low"], {"a": 1}])
def test_an_unusual_effort_is_recorded_as_other(effort: Any):
    assert ask("chat", {"reasoning_effort": effort}).effort == "other"


def test_online_models_of_a_broker_are_refused():
    assert refusal("chat", broker=True, model="m-1:online").status == 403


TOOLS: list[tuple[Api, Any]] = [
    ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
    ("anthropic", {"type": "web_fetch_20250910", "name": "web_fetch"}),
    ("anthropic", {"type": "code_execution_20250825", "name": "code_execution"}),
    ("anthropic", {"type": "mcp_toolset", "mcp_server_name": "x"}),
    ("anthropic", {"type": "advisor_20260301", "name": "advisor"}),
    ("anthropic", {"type": "custom_of_next_year"}),
    ("anthropic", {"type": ["custom"]}),
    ("responses", {"type": "web_search"}),
    ("responses", {"type": "web_search_preview_2025_03_11"}),
    ("responses", {"type": "file_search", "vector_store_ids": ["v"]}),
    ("responses", {"type": "code_interpreter", "container": {"type": "auto"}}),
    ("responses", {"type": "computer_use_preview"}),
    ("responses", {"type": "image_generation"}),
    ("responses", {"type": "mcp", "server_url": "https://x.test"}),
    ("responses", {"type": "shell"}),
    ("responses", {"type": "shell", "environment": {"type": "container_auto"}}),
    ("responses", {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}),
    ("chat", {"type": "openrouter:web_search"}),
    ("chat", {"type": "builtin_function", "function": {"name": "$web_search"}}),
    ("chat", {"type": "web_search", "web_search": {"enable": True}}),
    ("gemini", {"google_search": {}}),
    ("gemini", {"googleSearch": {}}),
    ("gemini", {"googleSearchRetrieval": {}}),
    ("gemini", {"url_context": {}}),
    ("gemini", {"codeExecution": {}}),
    ("gemini", {"functionDeclarations": [], "urlContext": {}}),
]


@pytest.mark.parametrize(("api", "tool"), TOOLS)
def test_tools_of_the_provider_are_refused(api: Api, tool: Any):
    found = refusal(api, {"tools": [tool]})
    assert (found.status, "carry it out itself" in found.reason) == (403, True)


@pytest.mark.parametrize(
    ("api", "tools"),
    [
        ("anthropic", [{"name": "Bash", "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}}}]),
        ("anthropic", [{"type": "custom", "name": "Write"}, {"type": "bash_20250124", "name": "bash"}]),
        ("responses", [{"type": "function", "name": "f"}, {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"}]),
        ("responses", [{"type": "shell", "environment": {"type": "local"}}]),
        ("responses", [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]),
        ("chat", [{"type": "function", "function": {"name": "web_search"}}]),
        ("gemini", [{"functionDeclarations": [{"name": "google_search"}]}, {"function_declarations": []}]),
    ],
)
def test_tools_of_the_program_pass(api: Api, tools: Any):
    ask(api, {"tools": tools})


@pytest.mark.parametrize(
    ("api", "tool"),
    [
        ("anthropic", {"type": "bash_20250124", "name": "bash"}),
        ("responses", {"type": "shell", "environment": {"type": "local"}}),
        ("responses", {"type": "apply_patch"}),
    ],
)
def test_tools_that_a_broker_may_run_are_refused(api: Api, tool: Any):
    ask(api, {"tools": [tool]})
    assert refusal(api, {"tools": [tool]}, broker=True).status == 403


FIELDS: list[tuple[Api, Any]] = [
    ("anthropic", {"mcp_servers": [{"type": "url", "url": "https://x.test"}]}),
    ("anthropic", {"container": "c"}),
    ("anthropic", {"fallbacks": "default"}),
    ("anthropic", {"thread": {"id": "t"}}),
    ("responses", {"background": True}),
    ("responses", {"previous_response_id": "resp_1"}),
    ("responses", {"conversation": "conv_1"}),
    ("responses", {"prompt": {"id": "pmpt_1"}}),
    ("chat", {"plugins": [{"id": "web"}]}),
    ("chat", {"web_search_options": {"search_context_size": "low"}}),
    ("chat", {"webSearchOptions": {"a": 1}}),
    ("chat", {"models": ["m-2"]}),
    ("chat", {"route": "fallback"}),
    ("chat", {"enable_search": True}),
    ("chat", {"search_parameters": {"mode": "on"}}),
    ("gemini", {"cachedContent": "cachedContents/1"}),
    ("gemini", {"cached_content": "cachedContents/1"}),
    ("gemini", {"generationConfig": {"routing_config": {"auto_mode": {}}}}),
    ("chat", {"tool_choice": {"type": "openrouter:web_search"}}),
    ("responses", {"tool_choice": {"type": "web_search_preview"}}),
    ("responses", {"tool_choice": {"type": ["mcp"]}}),
]


@pytest.mark.parametrize(("api", "more"), FIELDS)
def test_fields_that_act_outside_are_refused(api: Api, more: Any):
    assert refusal(api, more).status == 403


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("responses", {"background": False, "previous_response_id": None, "conversation": None, "prompt": None}),
        ("chat", {"models": [], "plugins": None, "tool_choice": "auto"}),
        ("anthropic", {"mcp_servers": [], "tool_choice": {"type": "tool", "name": "x"}}),
    ],
)
def test_empty_forbidden_fields_pass(api: Api, more: Any):
    ask(api, more)


def message(api: Api, part: Any) -> Any:
    if api == "gemini":
        return {"contents": [{"role": "user", "parts": [part]}]}
    return {("input" if api == "responses" else "messages"): [{"role": "user", "content": [part]}]}


PARTS: list[tuple[Api, Any]] = [
    ("anthropic", {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}),
    ("anthropic", {"type": "document", "source": {"type": "url", "url": "http://x.test/a.pdf"}}),
    ("anthropic", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
    ("anthropic", {"type": "container_upload", "file_id": "file_1"}),
    (
        "anthropic",
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "image", "source": {"type": "url", "url": "https://x.test"}}],
        },
    ),
    (
        "anthropic",
        {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "image", "source": {"type": "url", "url": "https://x.test"}}]},
        },
    ),
    ("anthropic", {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_20260318"}}}),
    ("anthropic", {"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "s"}}),
    ("responses", {"type": "input_image", "image_url": "https://x.test/a.png"}),
    ("responses", {"type": "input_file", "file_url": "https://x.test/a.pdf"}),
    ("responses", {"type": "input_file", "file_id": "file-1"}),
    ("chat", {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}),
    ("chat", {"type": "image_url", "image_url": "https://x.test/a.png"}),
    ("chat", {"type": "video_url", "video_url": {"url": "file:///etc/passwd"}}),
    ("chat", {"type": "file", "file": {"filename": "a", "file_data": "https://x.test/a.pdf"}}),
    ("chat", {"type": "file", "file": {"file_id": "file-1"}}),
    ("gemini", {"fileData": {"fileUri": "https://www.youtube.com/watch?v=1"}}),
    ("gemini", {"file_data": {"file_uri": "gs://x/y"}}),
    ("gemini", {"functionResponse": {"name": "f", "response": {}, "parts": [{"fileData": {"fileUri": "https://x.test"}}]}}),
]


@pytest.mark.parametrize(("api", "part"), PARTS)
def test_content_that_is_fetched_is_refused(api: Api, part: Any):
    assert refusal(api, message(api, part)).status == 403


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "rs_1"},
        {"id": "rs_1"},
        {"type": "additional_tools", "tools": [{"type": "web_search"}]},
        {"type": "tool_search_output", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "https://x.test"}]},
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f"}},
    ],
)
def test_response_items_that_reach_outside_are_refused(item: Any):
    assert refusal("responses", {"input": [item]}).status == 403


@pytest.mark.parametrize(
    ("api", "part"),
    [
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}),
        (
            "anthropic",
            {
                "type": "tool_use",
                "id": "t",
                "name": "f",
                "input": {"url": "https://x.test", "file_id": "1", "tools": [{"type": "mcp"}]},
            },
        ),
        ("anthropic", {"type": "tool_result", "tool_use_id": "t", "content": "see https://x.test"}),
        (
            "anthropic",
            {"type": "search_result", "source": "https://x.test", "title": "t", "content": [{"type": "text", "text": "x"}]},
        ),
        ("responses", {"type": "input_image", "image_url": "data:image/png;base64,iVBO"}),
        ("chat", {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}),
        ("chat", {"type": "text", "text": "https://x.test"}),
        ("gemini", {"functionCall": {"name": "f", "args": {"url": "https://x.test", "fileUri": "x"}}}),
        ("gemini", {"functionResponse": {"id": "1", "name": "f", "response": {"url": "https://x.test", "tools": [{"a": 1}]}}}),
    ],
)
def test_self_contained_content_passes(api: Api, part: Any):
    ask(api, message(api, part))


def test_requests_of_codex_pass():
    ask(
        "responses",
        {
            "instructions": "x",
            "input": [
                {"type": "additional_tools", "tools": [{"type": "custom", "name": "exec", "format": {"type": "grammar"}}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "https://x.test"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "id": "fc_1", "name": "f", "arguments": '{"url": "https://x.test"}', "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "https://x.test"},
                {"role": "assistant", "content": "x"},
            ],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "client_metadata": {"a": "b"},
        },
    )


UNLISTED: list[tuple[Api, Any, str]] = [
    ("anthropic", {"inference_geo": "eu"}, "inferencegeo"),
    ("anthropic", {"inferenceGeo": "eu"}, "inferencegeo"),
    ("anthropic", {"user_profile_id": "u"}, "userprofileid"),
    ("anthropic", {"workspace_id": "w"}, "workspaceid"),
    ("chat", {"kv_transfer_params": {"do_remote_decode": True}}, "kvtransferparams"),
    ("chat", {"api_base": "https://x.test"}, "apibase"),
    ("chat", {"priority": 1}, "priority"),
    ("chat", {"vllm_xargs": {}}, "vllmxargs"),
    ("chat", {"tool\u017f": [{"type": "web_search"}]}, "tool\u017f"),
    ("responses", {"meſsages": []}, "meſsages"),
    ("chat", {"usage": {"include": True}}, "usage"),
    ("gemini", {"labels": {}}, "labels"),
    ("gemini", {"generateContentRequest": {}}, "generatecontentrequest"),
    ("gemini", {"generationConfig": {"ſpeechConfig": {}}}, "ſpeechconfig"),
    ("gemini", {"generationConfig": {"modelConfig": {}}}, "modelconfig"),
]


@pytest.mark.parametrize(("api", "more", "name"), UNLISTED)
def test_unlisted_fields_are_refused_by_name(api: Api, more: Any, name: str):
    found = refusal(api, more)
    assert (found.status, repr(name) in found.reason, "`allow`" in found.reason) == (403, True, True)


UNLISTED_PARTS: list[tuple[Api, Any]] = [
    ("chat", {"type": "video", "video": "https://x.test/a.mp4"}),
    ("chat", {"type": "video", "video": ["https://x.test/1.png"]}),
    ("chat", {"type": "input_audio", "input_audio": {"data": "https://x.test/a.wav", "format": "wav"}}),
    ("chat", {"type": "image_url", "image_url": {"link": "gs://x/y"}}),
    ("chat", {"type": "file", "file": {"filename": "a", "file_data": "//x.test/a"}}),
    ("chat", {"type": ["text"], "text": "x"}),
    ("anthropic", {"type": "image", "source": {"type": "base64", "data": "https://x.test"}}),
    ("anthropic", {"type": "image", "source": {"type": "gcs", "uri": "gs://x"}}),
    ("anthropic", {"type": "web_search_tool_result", "content": []}),
    ("anthropic", {"type": "image", "\u017fource": {"type": "url", "url": "https://x.test"}}),
    ("responses", {"type": "input_image", "image": "https://x.test"}),
    ("responses", {"type": "mcp_call", "id": "m"}),
    ("gemini", {"inlineData": {"mimeType": "image/png", "data": "https://x.test/a.png"}}),
    ("gemini", {"executableCode": {"code": "1", "language": "PYTHON"}}),
    ("gemini", {"toolCall": {}}),
]


@pytest.mark.parametrize(("api", "part"), UNLISTED_PARTS)
def test_unlisted_parts_and_addresses_are_refused(api: Api, part: Any):
    assert refusal(api, message(api, part)).status in (400, 403)


@pytest.mark.parametrize(
    ("api", "part"),
    [
        ("chat", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        ("chat", {"type": "file", "file": {"filename": "c:notes", "file_data": "data:text/plain;base64,eA=="}}),
        (
            "anthropic",
            {
                "type": "document",
                "title": "a: b",
                "source": {"type": "text", "media_type": "text/plain", "data": "https://x.test"},
            },
        ),
        ("responses", {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"}),
        ("gemini", {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}),
        ("gemini", {"text": "https://x.test", "thought": True, "thoughtSignature": "eA=="}),
    ],
)
def test_parts_with_their_data_pass(api: Api, part: Any):
    ask(api, message(api, part))


COUNT = Endpoint("count", "models/m-1:countTokens", "m-1")


@pytest.mark.parametrize(
    "inner",
    [
        {"model": "models/m-2"},
        {"tools": [{"google_search": {}}]},
        {"contents": [{"parts": [{"fileData": {"fileUri": "https://x.test"}}]}]},
        {"cachedContent": "cachedContents/1"},
        {"generationConfig": {"routingConfig": {}}},
        [],
        "x",
    ],
)
def test_counted_requests_are_checked_as_bodies(inner: Any):
    for name in ("generateContentRequest", "generate_content_request"):
        with pytest.raises(Refusal):
            check_body(access("gemini"), COUNT, JSON, json.dumps({name: inner}).encode())


def test_counting_an_honest_request_passes():
    inner = {"model": "models/m-1", "contents": [{"role": "user", "parts": [{"text": "x"}]}], "systemInstruction": {"parts": []}}
    for body in ({"contents": inner["contents"]}, {"generateContentRequest": inner}):
        check_body(access("gemini"), COUNT, JSON, json.dumps(body).encode())


AGENTS: list[tuple[Api, bool, Any]] = [
    (
        "anthropic",
        False,
        {
            "max_tokens": 32000,
            "stream": True,
            "metadata": {"user_id": "u"},
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "max"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "x", "signature": "s"},
                        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": False}]},
            ],
            "tools": [{"name": "Bash", "description": "d", "input_schema": {}}],
        },
    ),
    (
        "responses",
        False,
        {
            "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]}],
            "client_metadata": {"x-codex-window-id": "1"},
            "include": ["reasoning.encrypted_content"],
            "parallel_tool_calls": True,
            "prompt_cache_key": "k",
            "reasoning": {"effort": "high", "context": "x"},
            "store": False,
            "stream": True,
            "text": {"verbosity": "low"},
            "tool_choice": "auto",
            "tools": [{"type": "function", "name": "f"}, {"type": "tool_search"}, {"type": "custom", "name": "c"}],
        },
    ),
    (
        "chat",
        True,
        {
            "max_tokens": 64000,
            "messages": [{"role": "assistant", "content": "x", "reasoning_details": [{"type": "reasoning.text", "text": "x"}]}],
            "provider": {"order": ["a"], "allow_fallbacks": False},
            "reasoning": {"effort": "high"},
            "stream": True,
            "tool_choice": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "usage": {"include": True},
        },
    ),
    (
        "chat",
        False,
        {
            "max_completion_tokens": 131072,
            "messages": [{"role": "tool", "content": "x", "tool_call_id": "t"}],
            "prompt_cache_key": "k",
            "stream": True,
            "stream_options": {"include_usage": True},
            "thinking": {"type": "enabled", "effort": "high", "keep": "all"},
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    ),
    (
        "gemini",
        False,
        {
            "contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "x"}]}],
            "generationConfig": {"temperature": 1, "topK": 64, "topP": 0.95, "thinkingConfig": {"thinkingLevel": "HIGH"}},
            "systemInstruction": {"role": "user", "parts": [{"text": "x"}]},
            "tools": [{"functionDeclarations": []}],
        },
    ),
]


@pytest.mark.parametrize(("api", "broker", "body"), AGENTS, ids=["claude", "codex", "opencode", "kimi", "gemini"])
def test_requests_of_the_five_clis_pass(api: Api, broker: bool, body: Any):
    """As the stub received them."""
    ask(api, body, broker=broker, provider=("a",) if broker else ())


def test_a_route_allows_more_by_name():
    allow = Allow(fields=("kv_transfer_params",), parts=("video",), tools=("mine",))
    more = {"kv_transfer_params": {}, "tools": [{"type": "mine"}], "messages": [{"role": "user", "content": [{"type": "video"}]}]}
    assert refusal("chat", more).status == 403
    ask("chat", more, allow=allow)
    assert refusal("chat", {"models": ["m-2"]}, allow=Allow(fields=("models",))).status == 403  # never another model


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "tools", "content", "tool", "source", "url", "id", "parts", "provider", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(APIS),
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "input",
                "tools",
                "tool_choice",
                "contents",
                "system",
                "provider",
                "thinking",
                "reasoning",
                "generationConfig",
            ]
        ),
        json_values,
    ),
)
def test_any_body_passes_or_is_refused(api: Api, more: Any):
    for broker in (False, True):
        with contextlib.suppress(Refusal):
            ask(api, more, broker=broker, provider=("a",))
