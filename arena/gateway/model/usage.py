"""Disjoint token counts from a provider's own numbers, and their cost.

The interfaces differ in what each number includes. Prices come from the table in the genai-prices package; nothing is fetched.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import genai_prices

from arena.gateway.model.apis import Json, inner
from arena.gateway.model.ledger import Tokens
from arena.schema import Api

MOST = 1 << 40
"""A larger count is not believed."""


def tokens(api: Api, usage: Json) -> Tokens | None:
    """The tokens of a usage object; None without a count of input or output."""
    return {"anthropic": _anthropic, "responses": _responses, "chat": _chat, "gemini": _gemini}[api](usage)


def _anthropic(usage: Json) -> Tokens | None:
    """Input excludes the cache, output includes thinking."""
    total_in, total_out = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if total_in is None or total_out is None:
        return None
    thinking = _at_most(_count(inner(usage, "output_tokens_details"), "thinking_tokens"), total_out)
    written = _count(usage, "cache_creation_input_tokens") or 0
    hour = _at_most(_count(inner(usage, "cache_creation"), "ephemeral_1h_input_tokens"), written)
    read = _count(usage, "cache_read_input_tokens") or 0
    return Tokens(total_in, read, written, hour, total_out - thinking, thinking)


def _responses(usage: Json) -> Tokens | None:
    """Input includes the cache, output includes reasoning."""
    return _inclusive(
        _count(usage, "input_tokens"),
        _count(usage, "output_tokens"),
        inner(usage, "input_tokens_details"),
        inner(usage, "output_tokens_details"),
        None,
    )


def _chat(usage: Json) -> Tokens | None:
    """As in a response, by other names. DeepSeek and Moonshot put the cached tokens in a field of their own."""
    cached = _count(usage, "prompt_cache_hit_tokens")
    return _inclusive(
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        inner(usage, "prompt_tokens_details"),
        inner(usage, "completion_tokens_details"),
        _count(usage, "cached_tokens") if cached is None else cached,
    )


def _inclusive(total_in: int | None, total_out: int | None, of_in: Json, of_out: Json, cached: int | None) -> Tokens | None:
    if total_in is None or total_out is None:
        return None
    detail = _count(of_in, "cached_tokens")
    read = _at_most(cached if detail is None else detail, total_in)
    written = _at_most(_count(of_in, "cache_write_tokens"), total_in - read)
    reasoning = _at_most(_count(of_out, "reasoning_tokens"), total_out)
    return Tokens(total_in - read - written, read, written, 0, total_out - reasoning, reasoning)


def _gemini(usage: Json) -> Tokens | None:
    """The prompt includes the cache; the candidates exclude the thoughts. A count of 0 may be absent."""
    prompt = _count(usage, "promptTokenCount")
    if prompt is None:
        return None
    read = _at_most(_count(usage, "cachedContentTokenCount"), prompt)
    tools = _count(usage, "toolUsePromptTokenCount") or 0
    thoughts = _count(usage, "thoughtsTokenCount") or 0
    return Tokens(prompt - read + tools, read, 0, 0, _count(usage, "candidatesTokenCount") or 0, thoughts)


def reported_usd(usage: Json) -> float | None:
    """The cost that a broker reports, with the part that it charged to the user's own key at a provider."""
    cost = _dollars(usage.get("cost"))
    if cost is None or usage.get("is_byok") is not True:
        return cost
    upstream = _dollars(inner(usage, "cost_details").get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _dollars(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= MOST else None  # NaN fails both


def _count(usage: Json, name: str) -> int | None:
    found = usage.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MOST else None


def _at_most(count: int | None, bound: int) -> int:
    return min(count or 0, bound)


class Price(NamedTuple):
    """A cost, and the table entry it came from."""

    usd: float
    model: str
    """The table's entry. The lookup is loose: for `gpt-5.5-codex` this may be `gpt-5.5`."""
    data: str
    """The table's version."""


def price(provider: str | None, model: str, tokens: Tokens, at: datetime | None = None) -> Price | None:
    """The cost of an answer at that time; None when the table does not list the model."""
    if provider is None:
        return None
    usage = genai_prices.Usage(
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        cache_write_1h_tokens=tokens.cache_write_1h,
        output_tokens=tokens.output + tokens.reasoning,
    )
    try:
        found = genai_prices.calc_price(usage, model, provider_id=provider, genai_request_timestamp=at)
    except LookupError:
        return None
    if tokens.total and not found.total_price:  # the table lists the model without its prices
        return None
    return Price(float(found.total_price), found.model.id, f"genai-prices {genai_prices.__version__}")
