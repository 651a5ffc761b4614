"""Token counts from a provider's numbers, and their cost."""

from datetime import UTC, datetime
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot

from arena.gateway.model.ledger import Tokens
from arena.gateway.model.usage import list_price, price, reported_usd, tokens


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1.5, "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": 1 << 60, "completion_tokens": 2},
        {"prompt_tokens": "1", "completion_tokens": 2},
        {"completion_tokens": 2},
        {},
    ],
)
def test_invalid_counts_give_no_tokens(usage: Any):
    assert tokens("chat", usage) is None


def test_parts_never_exceed_the_total():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 9},
    }
    assert tokens("chat", usage) == Tokens(0, 8, 2, 0, 0, 5)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"cost": 0.5}, 0.5),
        ({"cost": 0}, 0.0),
        ({"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 1.0}}, 1.05),
        ({"cost": 0.05, "is_byok": True}, None),
        ({"cost": -1}, None),
        ({"cost": "1"}, None),
        ({"cost": float("nan")}, None),
        ({"cost": True}, None),
        ({}, None),
    ],
)
def test_a_brokers_cost_includes_the_users_own_key(usage: Any, usd: float | None):
    assert reported_usd(usage) == usd


def test_prices_name_their_table_entry():
    found = price("anthropic", "claude-opus-4-5-20251101", Tokens(1_000_000, 1_000_000, 2_000_000, 1_000_000, 900_000, 100_000))
    assert found is not None
    assert found.usd == pytest.approx(5 + 0.5 + 6.25 + 10 + 25)
    assert found.model == "claude-opus-4-5"
    assert found.data.startswith("genai-prices ")


@pytest.mark.parametrize(("provider", "model"), [("openai", "no-such-model"), ("nobody", "gpt-5.5"), (None, "gpt-5.5")])
def test_an_unknown_price_is_none_and_never_zero(provider: str | None, model: str):
    assert price(provider, model, Tokens(1, 1, 1, 1, 1, 1)) is None


def test_a_service_tier_has_its_own_price_where_listed():
    at, used = datetime(2026, 11, 1, tzinfo=UTC), Tokens(1_000_000, output=1_000_000)
    ordinary, priority = price("openai", "gpt-4.1", used, at), price("openai", "gpt-4.1", used, at, "priority")
    assert ordinary is not None and priority is not None
    assert ordinary.usd == pytest.approx(2 + 8)
    assert priority.usd == pytest.approx(3.5 + 14)
    assert price("openai", "gpt-4.1", used, datetime(2026, 10, 1, tzinfo=UTC), "priority") is None  # listed from 12 October on
    assert price("openai", "gpt-4.1", used, at, "no-such-tier") is None
    assert price("anthropic", "claude-opus-4-5", used, at, "priority") is None


def test_list_prices_are_for_a_million_tokens():
    assert list_price("openai", "gpt-4.1") == (2.0, 0.5, 8.0)
    assert list_price("openai", "no-such-model") is None
    assert list_price(None, "gpt-4.1") is None


def test_every_table_entry_has_a_price_or_none():
    used = Tokens(1000, 200, 300, 100, 400, 100)
    for provider in get_snapshot().providers:
        for model in provider.models:
            found = price(provider.id, model.id, used)
            assert found is None or found.usd > 0
