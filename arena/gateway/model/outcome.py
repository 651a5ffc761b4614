"""From what was seen of an answer to its line in the ledger, with an estimate for what could not be metered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime

from arena.gateway.config import ModelAccess
from arena.gateway.model.answers import Facts, Json, told
from arena.gateway.model.ledger_lines import Began, Ended, How, Tokens, unmetered
from arena.gateway.model.redact import clean, said, scrubbed
from arena.gateway.model.usage import Price, price, reported_usd, tokens

RAW_BYTES = 1 << 12
BAD_KEY = b"API_KEY_INVALID"
"""Google says so with status 400, as if it were the request's fault."""
PROVIDERS = (401, 402, 403, 404, 408, 409, 429)
"""Statuses below 500 that are not about what the request says."""


@dataclass
class Outcome:
    """What is known of an answer up to now."""

    status: int | None = None
    how: How | None = None
    """Where something happened to it on its way."""
    error: str | None = None
    first_byte_s: float | None = None
    facts: Facts = field(default_factory=Facts)
    read_bytes: int = 0
    words: bytes = b""
    """The beginning of an error's body."""

    def line(self, asked: ModelAccess, began: Began, now_s: float) -> Ended:
        """What the ledger is told."""
        facts = self.facts
        used = tokens(asked.api, facts.usage) if facts.usage else None
        cost = reported_usd(facts.usage)
        listed = _listed(asked, began, facts, used) if cost is None else None
        error = self.error or facts.error or (_told(self.words) if self.words else None)
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
            priced_as=None if listed is None else said(f"{listed.model} ({listed.data})"),
            error=None if error is None else scrubbed(said(scrubbed(error, asked.key)), asked.key),
            bytes=self.read_bytes,
        )
        return charged(asked, began, line)

    def _how(self, began: Began) -> How:
        status, facts = self.status or 0, self.facts
        if status >= 300:
            return "error" if status in PROVIDERS or status >= 500 or BAD_KEY in self.words else "rejected"
        if facts.error is not None:
            return "rejected" if facts.own_fault else "error"
        if facts.finish is None and began.kind == "model":
            return "incomplete"
        return "refused" if facts.refused else "whole"


def _listed(asked: ModelAccess, began: Began, facts: Facts, used: Tokens | None) -> Price | None:
    """By the price table, which has the prices of the ordinary service only."""
    if used is None or facts.tier is not None:
        return None
    return price(asked.route.prices, asked.model, used, datetime.fromisoformat(began.at))


def _told(body: bytes) -> str:
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        return said(body.decode(errors="replace"))
    first = found[0] if isinstance(found, list) and found else found  # Gemini's errors may stand in a list
    return told(first) if isinstance(first, dict) else said(str(first))


def _bounded(usage: Json) -> Json:
    found: Json = clean(usage)
    return found if len(json.dumps(found)) <= RAW_BYTES else {}


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
