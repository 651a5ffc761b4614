"""The sum of a ledger, line by line, and whether a run must end by it: live, and from the file of a killed run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from arena.gateway.config import PATIENCE_S, ModelAccess, Stop
from arena.gateway.model.ledger_lines import FAILED, FAULTS, GOOD, Began, Closed, Ended, Line, unmetered
from arena.schema import Usage

NAMES = 16
"""Names of each kind that are kept: a sandbox may cause any number."""
COUNTED = ("input", "cache_read", "cache_write", "output", "reasoning")
HOPELESS = (401, 402, 403, 404)
"""Statuses that no retry can change: the key, the account's money, what it may do, the model's name."""
UNFINISHED = 8
"""opencode retries at once and without end after an answer without a finish reason: 625 times in 45 s were seen."""

Source = Literal["provider", "prices", "mixed"]


@dataclass(frozen=True)
class Totals:
    """The sum of the lines up to now."""

    usage: Usage = Usage()  # noqa: RUF009  frozen
    counts: int = 0
    """Requests to count tokens."""
    in_flight: Mapping[int, Began] = field(default_factory=dict)
    failing_since_s: float | None = None
    """When the provider first failed after its last good answer."""
    unfinished: int = 0
    """Answers in a row without a finish reason."""
    answered: bool = False
    """Whether the model has given a good answer."""
    charged_tokens: int = 0
    """Estimated for answers without numbers: they count against the caps, and not as usage."""
    spent_usd: float = 0.0
    """What counts against the cap, with estimates."""
    unbounded: bool = False
    """Whether the cost of some answer cannot even be estimated."""
    patience_s: float = PATIENCE_S
    """The most that one period of failure counts as back-off."""
    known_usd: float = 0.0
    unpriced: bool = False
    """Whether the cost of some answer is unknown, and with it the total."""

    @property
    def tokens(self) -> int:
        """All tokens, with the estimated ones."""
        counted: int = sum(getattr(self.usage, f"{name}_tokens") for name in COUNTED)
        return counted + self.charged_tokens

    def backoff_s(self, until_s: float) -> float:
        """Seconds lost to the provider's failures, with the present one up to `until_s`."""
        since_s = self.failing_since_s
        return round(self.usage.backoff_s + (0.0 if since_s is None else self._lost_s(since_s, until_s)), 3)

    def ended(self, until_s: float) -> Usage:
        """The usage of a run that was over at `until_s`. Requests in flight at that time are unmetered."""
        lost = sum(entry.kind == "model" for entry in self.in_flight.values())
        return self.usage.model_copy(update={"unmetered": self.usage.unmetered + lost, "backoff_s": self.backoff_s(until_s)})

    def add(self, line: Line) -> Totals:
        """The totals with one more line."""
        if isinstance(line, Began):
            return self._began(line)
        if isinstance(line, Closed):
            usage = self.usage.model_copy(update={"backoff_s": line.backoff_s})
            return replace(self, usage=usage, failing_since_s=None)
        began = self.in_flight.get(line.n) if isinstance(line, Ended) else None
        if began is None or not isinstance(line, Ended):
            return self
        totals = replace(self, in_flight={n: entry for n, entry in self.in_flight.items() if n != line.n})
        return totals if began.kind == "count" else totals._metered(line)._judged(began, line)

    def _began(self, line: Began) -> Totals:
        in_flight = {**self.in_flight, line.n: line}
        if line.kind == "count":
            return replace(self, in_flight=in_flight, counts=self.counts + 1)
        more = {"requests": self.usage.requests + 1, "efforts": _with_name(self.usage.efforts, line.effort)}
        return replace(self, in_flight=in_flight, usage=self.usage.model_copy(update=more))

    def _metered(self, line: Ended) -> Totals:
        """Add the tokens and the cost."""
        usage, used = self.usage, line.tokens
        known_usd = self.known_usd + (line.cost_usd or 0.0)
        unpriced = self.unpriced or (used is not None and line.cost_usd is None)
        source = _source(usage.cost_source, line.cost_source)
        changes: dict[str, object] = {
            "cost_usd": None if unpriced or source is None else known_usd,
            "cost_source": None if unpriced else source,
            "models": _with_name(usage.models, line.model),
            "providers": _with_name(usage.providers, line.provider),
        }
        if used is not None:
            for name in COUNTED:
                changes[f"{name}_tokens"] = getattr(usage, f"{name}_tokens") + getattr(used, name)
        changes["unmetered"] = usage.unmetered + unmetered(line)
        return replace(
            self,
            usage=usage.model_copy(update=changes),
            known_usd=known_usd,
            unpriced=unpriced,
            charged_tokens=self.charged_tokens + line.charged_tokens,
            spent_usd=self.spent_usd + (line.cost_usd or 0.0) + (line.charged_usd or 0.0),
            unbounded=self.unbounded or line.charged_usd is None,
        )

    def _judged(self, began: Began, line: Ended) -> Totals:
        """Add whether the provider failed."""
        usage, since_s = self.usage, self.failing_since_s
        if line.how in FAILED:
            usage = usage.model_copy(update={"failed": usage.failed + 1})
        if line.how in FAULTS:
            unfinished = self.unfinished + (line.how == "incomplete")
            return replace(self, usage=usage, failing_since_s=line.s if since_s is None else since_s, unfinished=unfinished)
        if line.how not in GOOD:
            return replace(self, usage=usage)
        if since_s is not None:
            usage = usage.model_copy(update={"backoff_s": round(usage.backoff_s + self._lost_s(since_s, began.s), 3)})
        return replace(self, usage=usage, failing_since_s=None, unfinished=0, answered=True)

    def _lost_s(self, since_s: float, until_s: float) -> float:
        return min(self.patience_s, max(0.0, until_s - since_s))


def _source(one: Source | None, other: Source | None) -> Source | None:
    return one or other if one is None or other is None or one == other else "mixed"


def _with_name(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    return names if name is None or name in names or len(names) >= NAMES else (*names, name)


def caps_exhausted(access: ModelAccess, totals: Totals) -> Stop | None:
    """A stop when a cap is used up."""
    caps, usage = access.caps, totals.usage
    estimated = ", some of them estimated for answers without numbers" if totals.charged_tokens else ""
    if usage.requests >= caps.requests or totals.counts >= caps.requests:
        return Stop("budget_exhausted", f"the run's {caps.requests} requests are used up")
    if caps.tokens is not None and totals.tokens >= caps.tokens:
        return Stop("budget_exhausted", f"the run's {caps.tokens} tokens are used up: {totals.tokens} counted{estimated}")
    if caps.cost_usd is not None and totals.unbounded:
        return Stop(
            "budget_exhausted", f"the rest of the run's {caps.cost_usd:g} USD is unknown: the cost of an answer is unknown"
        )
    if caps.cost_usd is not None and totals.spent_usd >= caps.cost_usd:
        return Stop("budget_exhausted", f"the run's {caps.cost_usd:g} USD are used up: {totals.spent_usd:.4f} spent{estimated}")
    return None


def request_failed(access: ModelAccess, totals: Totals, line: Ended, *, other_arriving: bool) -> Stop | None:
    """A stop when this request's end must end the run. `other_arriving`: another good answer is coming in."""
    title, reason = access.route.title, failure_reason(line)
    if line.how == "stopped":
        return Stop("provider_error", reason)
    if line.how == "error" and (line.status in HOPELESS or line.status == 400):
        return Stop("provider_error", f"{title}: {reason}")
    if totals.unfinished >= UNFINISHED:
        return Stop("provider_error", f"{title}: {UNFINISHED} answers in a row ended without a finish reason")
    return provider_failed(access, totals, line.s, reason, other_arriving=other_arriving) if line.how in FAULTS else None


def provider_failed(access: ModelAccess, totals: Totals, now_s: float, reason: str, *, other_arriving: bool) -> Stop | None:
    """A stop when the provider has failed for too long. `reason`: of the last failure."""
    since_s = totals.failing_since_s
    if since_s is None or now_s - since_s < access.patience_s or other_arriving:
        return None
    return Stop("provider_error", f"{access.route.title}: no good answer for {now_s - since_s:.0f} s; the last: {reason}")


def failure_reason(line: Ended) -> str:
    """Why a request failed."""
    error = f": {line.error}" if line.error else ""
    if line.how == "stopped":
        return line.error or ""
    if line.status is None:
        return f"no answer{error}"
    if line.status >= 300:
        return f"status {line.status}{error}"
    reasons = {
        "incomplete": "an answer without a finish reason",
        "cut": "an answer that broke off",
        "stalled": "an answer that stalled",
    }
    return f"{reasons.get(line.how, 'an error inside an answer')}{error}"
