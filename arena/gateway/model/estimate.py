"""What an answer that could not be metered is charged as, against the run's caps only: else leaving early would be free."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from arena.gateway.config import ModelAccess
from arena.gateway.model.ledger_lines import Began, Ended, unmetered
from arena.gateway.model.prices import price
from arena.gateway.model.usage import Tokens

TOKEN_BYTES = 3
"""Of JSON with code in it; fewer than there are, so that the estimate is rather too high."""
TOKENS_PER_S = 100
"""What a model may think unseen."""


def charged(asked: ModelAccess, began: Began, line: Ended) -> Ended:
    """The same line with what is charged beyond its own numbers."""
    if began.kind == "count":
        return line
    known = line.tokens or Tokens()
    if not unmetered(line):
        # Metered, but of another tier than the ordinary one, or of a model without a price.
        usd = _usd(asked, began, known) if line.tokens is not None and line.cost_usd is None else 0.0
        return replace(line, charged_usd=usd)
    seen_in = known.input + known.cache_read + known.cache_write
    seen_out = known.output + known.reasoning
    guess_out = max(line.bytes // TOKEN_BYTES, int(line.seconds * TOKENS_PER_S))
    guess = replace(
        known,
        input=known.input if seen_in else began.bytes // TOKEN_BYTES,
        output=known.output + max(0, guess_out - seen_out),
    )
    usd = _usd(asked, began, guess)
    beyond = None if usd is None else max(0.0, usd - (line.cost_usd or 0.0))
    return replace(line, charged_tokens=guess.total - known.total, charged_usd=beyond)


def _usd(asked: ModelAccess, began: Began, tokens: Tokens) -> float | None:
    found = price(asked.route.prices, asked.model, tokens, datetime.fromisoformat(began.at))
    return None if found is None else found.usd
