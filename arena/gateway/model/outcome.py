"""The ledger line of an answer, from what the gateway observed; with an estimate for what it could not meter."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime

from arena.gateway.config import ModelAccess
from arena.gateway.model.answers import Facts, error_message
from arena.gateway.model.apis import Json
from arena.gateway.model.ledger import Began, Ended, How, Tokens
from arena.gateway.model.redact import plain_json, plain_message, scrubbed
from arena.gateway.model.usage import Price, price, reported_usd, tokens

RAW_BYTES = 1 << 12
"""Kept of a provider's usage object."""
BAD_KEY = b"API_KEY_INVALID"
"""Google sends this with status 400, as if the request were at fault."""
PROVIDER_STATUSES = (401, 402, 403, 404, 408, 409, 429)
"""Statuses below 500 that are not about the request's content."""
TOKEN_BYTES = 3
"""Bytes of JSON with code per token: fewer than in fact, so that the estimate is rather too high."""
TOKENS_PER_S = 100
"""How fast a model may think unseen."""


@dataclass
class ObservedAnswer:
    """What is known of an answer up to now."""

    status: int | None = None
    how: How | None = None
    """Set when something happened to the answer on its way."""
    error: str | None = None
    first_byte_s: float | None = None
    facts: Facts = field(default_factory=Facts)
    read_bytes: int = 0
    error_body: bytes = b""
    """The beginning of an error's body."""

    def line(self, access: ModelAccess, began: Began, now_s: float) -> Ended:
        """The answer's line in the ledger."""
        facts = self.facts
        used = tokens(access.api, facts.usage) if facts.usage else None
        cost = reported_usd(facts.usage)
        listed = _list_price(access, began, facts, used) if cost is None else None
        error = self.error or facts.error or (_error_in(self.error_body) if self.error_body else None)
        line = Ended(
            n=began.n,
            s=now_s,
            how=self.how or self._how(began),
            status=self.status,
            first_byte_s=self.first_byte_s,
            seconds=round(now_s - began.s, 3),
            model=facts.model,
            provider=facts.provider,
            finish=facts.finish,
            tier=facts.tier,
            tokens=used,
            raw=_bounded(facts.usage),
            cost_usd=cost if listed is None else listed.usd,
            cost_source="provider" if cost is not None else "prices" if listed is not None else None,
            priced_as=None if listed is None else plain_message(f"{listed.model} ({listed.data})"),
            error=None if error is None else scrubbed(plain_message(scrubbed(error, access.key)), access.key),
            bytes=self.read_bytes,
        )
        return with_estimate(access, began, line)

    def _how(self, began: Began) -> How:
        status, facts = self.status or 0, self.facts
        if status >= 300:
            return "error" if status in PROVIDER_STATUSES or status >= 500 or BAD_KEY in self.error_body else "rejected"
        if facts.error is not None:
            return "rejected" if facts.own_fault else "error"
        if facts.finish is None and began.kind == "model":
            return "incomplete"
        return "refused" if facts.refused else "whole"


def with_estimate(access: ModelAccess, began: Began, line: Ended) -> Ended:
    """The line with what counts against the run's caps beyond its own numbers: otherwise leaving early would be free."""
    if began.kind == "count":
        return line
    known = line.tokens or Tokens()
    if not line.unmetered:
        # Metered, but at another service tier than the ordinary one, or for a model without a price.
        usd = _usd(access, began, known) if line.tokens is not None and line.cost_usd is None else 0.0
        return replace(line, charged_usd=usd)
    known_in = known.input + known.cache_read + known.cache_write
    known_out = known.output + known.reasoning
    estimated_out = max(line.bytes // TOKEN_BYTES, int(line.seconds * TOKENS_PER_S))
    estimate = replace(
        known,
        input=known.input if known_in else began.bytes // TOKEN_BYTES,
        output=known.output + max(0, estimated_out - known_out),
    )
    usd = _usd(access, began, estimate)
    beyond = None if usd is None else max(0.0, usd - (line.cost_usd or 0.0))
    return replace(line, charged_tokens=estimate.total - known.total, charged_usd=beyond)


def _usd(access: ModelAccess, began: Began, tokens: Tokens) -> float | None:
    found = price(access.route.prices, access.model, tokens, datetime.fromisoformat(began.at))
    return None if found is None else found.usd


def _list_price(access: ModelAccess, began: Began, facts: Facts, used: Tokens | None) -> Price | None:
    """The cost by the price table, which lists the ordinary service only."""
    if used is None or facts.tier is not None:
        return None
    return price(access.route.prices, access.model, used, datetime.fromisoformat(began.at))


def _error_in(body: bytes) -> str:
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        return plain_message(body.decode(errors="replace"))
    first = found[0] if isinstance(found, list) and found else found  # Gemini may send its errors in a list
    return error_message(first) if isinstance(first, dict) else plain_message(str(first))


def _bounded(usage: Json) -> Json:
    found: Json = plain_json(usage)
    return found if len(json.dumps(found)) <= RAW_BYTES else {}
