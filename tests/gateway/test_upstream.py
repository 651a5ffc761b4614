"""The way to the provider: proxies of the environment, and the headers that pass."""

import pytest
from yarl import URL

from arena.gateway.model.upstream import Proxy, answer_headers, check_repeated_headers, environment_proxy, request_headers
from arena.gateway.unix_server import Refusal


@pytest.mark.parametrize(
    ("environment", "url", "found"),
    [
        ({}, "https://p.test/v1", None),
        ({"https_proxy": "http://proxy.test:3128"}, "https://p.test/v1", "http://proxy.test:3128"),
        ({"https_proxy": "proxy.test:3128"}, "https://p.test/v1", "http://proxy.test:3128"),
        ({"https_proxy": "http://proxy.test:3128", "no_proxy": ".test"}, "https://p.test/v1", None),
        ({"http_proxy": "http://proxy.test:3128"}, "https://p.test/v1", None),
        ({"http_proxy": "http://proxy.test:3128"}, "http://127.0.0.1:8000/v1", None),
        ({"http_proxy": "http://proxy.test:3128"}, "http://[::1]:8000/v1", None),
        ({"http_proxy": "http://proxy.test:3128"}, "http://localhost:8000/v1", None),
    ],
)
def test_environment_proxies_are_found(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, found: str | None):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy(url) == (None if found is None else Proxy(URL(found), {}))


def test_only_harmless_headers_pass():
    given = [
        ("User-Agent", "a"),
        ("anthropic-beta", "b"),
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Host", "127.0.0.1"),
        ("x-api-key", "k"),
        ("Authorization", "k"),
        ("Cookie", "c"),
        ("X-HTTP-Method-Override", "GET"),
        ("X-Goog-FieldMask", "candidates"),
        ("X-OpenRouter-Cache", "true"),
        ("Origin", "http://x"),
        ("X-Forwarded-Host", "x"),
        ("X-HTTP-Method", "GET"),
        ("Anthropic-Workspace-Id", "w"),
        ("X-Stainless-Lang", "js"),
        ("X-OpenRouter-Title", "t"),
        ("Odd", "a\x00b"),
        ("Accept-Encoding", "gzip"),
    ]
    assert request_headers(given) == [
        ("User-Agent", "a"),
        ("anthropic-beta", "b"),
        ("X-Stainless-Lang", "js"),
        ("X-OpenRouter-Title", "t"),
        ("Accept-Encoding", "identity"),
    ]
    assert request_headers([("X-Mine", "a"), ("Cookie", "c")], ["x-mine", "Cookie"]) == [
        ("X-Mine", "a"),
        ("Accept-Encoding", "identity"),
    ]
    answer = [
        ("Content-Type", "x"),
        ("Set-Cookie", "c"),
        ("openai-organization", "us"),
        ("Retry-After", "1"),
        ("Keep-Alive", "5"),
    ]
    assert answer_headers(answer) == [("Content-Type", "x"), ("Retry-After", "1")]


@pytest.mark.parametrize("name", ["Content-Type", "content-encoding", "Authorization", "X-Api-Key", "x-goog-api-key"])
def test_repeated_checked_headers_are_refused(name: str):
    check_repeated_headers([(name, "a"), ("Accept", "a"), ("Accept", "b")])
    with pytest.raises(Refusal, match="comes twice"):
        check_repeated_headers([(name, "a"), (name.upper(), "a")])
