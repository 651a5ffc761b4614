"""What an answer cost by the price table of genai-prices, which is in the package: nothing is fetched."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import genai_prices

from arena.gateway.model.usage import Tokens


class Price(NamedTuple):
    """A cost, and what it was looked up by."""

    usd: float
    model: str
    """The table's entry. It is found loosely: for `gpt-5.5-codex` this may be `gpt-5.5`."""
    data: str
    """The table's version."""


def price(provider: str | None, model: str, tokens: Tokens, at: datetime | None = None) -> Price | None:
    """The cost of an answer at that time; None where the table does not know the model."""
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
    if tokens.total and not found.total_price:  # the table has the model's name, but not its prices
        return None
    return Price(float(found.total_price), found.model.id, f"genai-prices {genai_prices.__version__}")
