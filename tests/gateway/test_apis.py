"""The four interfaces: paths, errors and lists of models."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.gateway.model.apis import error, models, parse_endpoint
from arena.gateway.unix_server import Refusal
from arena.schema import Api

APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
GEMINI = "models/m-1:streamGenerateContent"


@pytest.mark.parametrize(
    ("api", "method", "target", "kind", "path"),
    [
        ("anthropic", "POST", "/v1/messages?beta=true", "model", "messages?beta=true"),
        ("anthropic", "POST", "/v1/messages/count_tokens", "count", "messages/count_tokens"),
        ("responses", "POST", "/v1/responses", "model", "responses"),
        ("chat", "POST", "/api/v1/chat/completions", "model", "chat/completions"),
        ("gemini", "POST", f"/v1beta/{GEMINI}?alt=sse&key=x", "model", f"{GEMINI}?alt=sse"),
        ("gemini", "POST", "/v1beta/models/m-1:countTokens", "count", "models/m-1:countTokens"),
        ("chat", "GET", "/v1/models", "models", "models"),
    ],
)
def test_known_paths_give_their_endpoint(api: Api, method: str, target: str, kind: str, path: str):
    found = parse_endpoint(api, method, target)
    assert (found.kind, found.path) == (kind, path)


@pytest.mark.parametrize(
    ("api", "method", "target"),
    [
        ("anthropic", "POST", "/messages"),
        ("anthropic", "POST", "/v1/v1/messages"),
        ("anthropic", "GET", "/v1/messages"),
        ("anthropic", "POST", "/v1/messages/../files"),
        ("anthropic", "POST", "/v1/messages/batches"),
        ("anthropic", "POST", "/v1/chat/completions"),
        ("anthropic", "POST", "http://other.test/v1/messages"),
        ("responses", "POST", "/v1/responses/compact"),
        ("responses", "DELETE", "/v1/responses/r"),
        ("chat", "POST", "/v1/completions"),
        ("chat", "POST", "/v1/chat/completions#x"),
        ("chat", "POST", "/v1/chat%2Fcompletions"),
        ("gemini", "POST", "/v1beta/models/m-1:batchGenerateContent"),
        ("gemini", "POST", "/v1beta/models/m-1:embedContent"),
        ("gemini", "POST", "/v1beta/files"),
        ("gemini", "POST", f"/v1beta/{GEMINI}?alt=sse&fields=candidates"),
        ("gemini", "POST", f"/v1beta/{GEMINI}?alt=media"),
        ("gemini", "POST", f"/v1beta/{GEMINI}?alt=sse&alt=json"),
        ("gemini", "POST", f"/v1beta/{GEMINI}?beta=true"),
        ("anthropic", "POST", "/v1/messages?beta=true&x=1"),
        ("anthropic", "POST", "/v1/messages/count_tokens?x"),
        ("chat", "POST", "/v1/chat/completions?beta=true"),
        ("responses", "POST", "/v1/responses?x=1"),
    ],
)
def test_unknown_paths_are_refused(api: Api, method: str, target: str):
    with pytest.raises(Refusal):
        parse_endpoint(api, method, target)


@given(st.sampled_from(APIS), st.text(alphabet=st.characters(min_codepoint=1, max_codepoint=255), max_size=60))
def test_any_target_is_known_or_refused(api: Api, target: str):
    for text in (target, f"/v1/{target}", f"/v1beta/models/{target}"):
        try:
            found = parse_endpoint(api, "POST", text)
        except Refusal:
            continue
        assert found.path.split("?")[0].split(":")[0] in (
            "messages",
            "messages/count_tokens",
            "responses",
            "chat/completions",
        ) or (api == "gemini" and found.path.startswith("models/"))


@pytest.mark.parametrize("api", APIS)
def test_errors_and_models_have_the_interfaces_form(api: Api):
    found = json.loads(error(api, 403, "no"))["error"]
    assert found["message"] == "arena's gateway: no"
    assert "m-1" in models(api, "m-1", "models").decode()
    alone = json.loads(models(api, "m-1", "models/m-1"))
    assert "m-1" in (alone.get("id"), alone.get("name", "").removeprefix("models/"))
