"""What an answer used and cost, for its line in the ledger: disjoint token counts, prices, and estimates without numbers.

The interfaces differ in what each number includes. Prices come from the table in the genai-prices package; nothing is fetched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

import genai_prices

from arena.gateway.config import ModelAccess
from arena.gateway.model.account import account_fault
from arena.gateway.model.answers import Facts, error_message, error_names, is_policy_refusal, limit_reached
from arena.gateway.model.apis import Json, inner
from arena.gateway.model.ledger import Began, Ended, How, Tokens
from arena.gateway.model.redact import plain_json, plain_message, scrubbed
from arena.schema import Api

MOST = 1 << 40
"""A larger count is not believed."""
RAW_BYTES = 1 << 12
"""Kept of a provider's usage object."""
PROVIDER_STATUSES = (401, 402, 403, 404, 408, 409, 429)
"""Statuses below 500 that are not about the request's content."""
TOKEN_BYTES = 3
"""Bytes of JSON with code per token: fewer than in fact, so that the estimate is rather too high."""
UNBOUNDED_TOKENS = 64_000
"""Of an answer that the program left before its beginning, when the request sets no bound: the most that harnesses request."""
TOKENS_PER_S = 100
"""How fast a model may think unseen."""


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
    return _inclusive(usage, "input_tokens", "output_tokens", None)


def _chat(usage: Json) -> Tokens | None:
    """As in a response, by other names. DeepSeek and Moonshot put the cached tokens in a field of their own."""
    hit, cached = _count(usage, "prompt_cache_hit_tokens"), _count(usage, "cached_tokens")
    return _inclusive(usage, "prompt_tokens", "completion_tokens", cached if hit is None else hit)


def _inclusive(usage: Json, name_in: str, name_out: str, cached: int | None) -> Tokens | None:
    total_in, total_out = _count(usage, name_in), _count(usage, name_out)
    if total_in is None or total_out is None:
        return None
    of_in, of_out = inner(usage, f"{name_in}_details"), inner(usage, f"{name_out}_details")
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


def price(provider: str | None, model: str, tokens: Tokens, at: datetime | None = None, tier: str | None = None) -> Price | None:
    """The cost of an answer at that time and service tier (None: the ordinary one); None when the table does not list it."""
    if provider is None:
        return None
    usage = genai_prices.Usage(
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        cache_write_1h_tokens=tokens.cache_write_1h,
        output_tokens=tokens.output + tokens.reasoning,
    )
    at = at or datetime.now(UTC)
    context = {"service_tier": tier} if tier else None
    try:
        found = genai_prices.calc_price(usage, model, provider_id=provider, genai_request_timestamp=at, price_context=context)
    except LookupError:
        return None
    if context and not any(
        entry.when == context and (entry.constraint is None or entry.constraint.active(at))
        for entry in found.model.price_variants or ()
    ):
        return None
    if tokens.total and not found.total_price:  # the table lists the model without its prices
        return None
    return Price(float(found.total_price), found.model.id, f"genai-prices {genai_prices.__version__}")


class ListPrice(NamedTuple):
    """USD for a million tokens of each kind, of the ordinary service and a short prompt."""

    input: float
    cache_read: float
    output: float


def list_price(provider: str | None, model: str) -> ListPrice | None:
    """What the price table says of a model; None when it does not list it."""
    kinds = (Tokens(1000), Tokens(cache_read=1000), Tokens(output=1000))
    found = [entry for kind in kinds if (entry := price(provider, model, kind)) is not None]
    return ListPrice(*(round(1000 * entry.usd, 6) for entry in found)) if len(found) == len(kinds) else None


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
        listed = None
        if cost is None and used is not None:
            listed = price(access.route.prices, access.model, used, datetime.fromisoformat(began.at), facts.tier)
        raw = plain_json(facts.usage)
        error = self.error or facts.error or (error_in(self.error_body) if self.error_body else None)
        line = Ended(
            n=began.n,
            s=now_s,
            how=self.how or self._how(access, began),
            status=self.status,
            first_byte_s=self.first_byte_s,
            seconds=round(now_s - began.s, 3),
            model=facts.model,
            provider=facts.provider,
            finish=facts.finish,
            tier=facts.tier,
            tokens=used,
            raw=raw if len(json.dumps(raw)) <= RAW_BYTES else {},
            cost_usd=cost if listed is None else listed.usd,
            cost_source="provider" if cost is not None else "prices" if listed is not None else None,
            priced_as=None if listed is None else plain_message(f"{listed.model} ({listed.data})"),
            error=None if error is None else scrubbed(plain_message(scrubbed(error, access.key)), access.key),
            bytes=self.read_bytes,
            limit=limit_reached(facts.finish, *self._failure()),
        )
        return with_estimate(access, began, line)

    def _failure(self) -> tuple[tuple[str, ...], str]:
        """The names and the message of the answer's error; empty without one."""
        if (self.status or 0) < 300:
            return self.facts.error_names, self.facts.error or ""
        found = error_object(self.error_body)
        return error_names(found), error_message(found)

    def _how(self, access: ModelAccess, began: Began) -> How:
        status, facts = self.status or 0, self.facts
        if status >= 300 or facts.error is not None:
            names, message = self._failure()
            if account_fault(access.api, status, names, message):
                return "account"
            if is_policy_refusal(names, message):
                return "refused"
            failed = status in PROVIDER_STATUSES or status >= 500 or (status < 300 and not facts.own_fault)
            return "error" if failed else "rejected"
        if facts.finish is None and began.kind == "model":
            return "unread" if facts.unread else "incomplete"
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
    if line.status is None:  # the provider generates on, however soon the program left
        estimated_out = max(estimated_out, UNBOUNDED_TOKENS if began.max_tokens is None else began.max_tokens)
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


def error_in(body: bytes) -> str:
    """The provider's message in the body of an error."""
    found = error_object(body)
    return error_message(found) if found else plain_message(body.decode(errors="replace"))


def error_object(body: bytes) -> Json:
    """The object in the body of an error; an empty one when there is none. Gemini may send its errors in a list."""
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        return {}
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, dict) else {}
