"""A ledger added up, line by line, and whether the run should end by it: live, and from the file of a run that was killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from arena.gateway.config import PATIENCE_S, ModelAccess, Stop
from arena.gateway.model.ledger_lines import FAILED, FAULTS, GOOD, Began, Closed, Ended, Line, unmetered
from arena.schema import Usage

NAMES = 16
"""Of a kind that are kept: a box may bring about as many as it likes."""
COUNTED = ("input", "cache_read", "cache_write", "output", "reasoning")


@dataclass(frozen=True)
class Tally:
    """What the lines up to now come to."""

    usage: Usage = Usage()  # noqa: RUF009  frozen
    counts: int = 0
    """Requests that had tokens counted."""
    in_flight: Mapping[int, Began] = field(default_factory=dict)
    failing_since_s: float | None = None
    """When the provider first failed after its last good answer."""
    unfinished: int = 0
    """Answers in a row without a finish reason."""
    answered: bool = False
    """Whether the model has answered well."""
    charged_tokens: int = 0
    """Estimated for answers that could not be metered: these count against the caps, and are no usage."""
    spent_usd: float = 0.0
    """What counts against the cap, estimates included."""
    unbounded: bool = False
    """Some answer's cost cannot even be estimated."""
    patience_s: float = PATIENCE_S
    """The most that one time of failing counts as back-off."""
    known_usd: float = 0.0
    unpriced: bool = False
    """The cost of some answer is unknown, and with it that of all."""

    @property
    def tokens(self) -> int:
        """All of them, with those that are estimated."""
        counted: int = sum(getattr(self.usage, f"{name}_tokens") for name in COUNTED)
        return counted + self.charged_tokens

    def backoff_s(self, until_s: float) -> float:
        """Seconds lost to the provider's failures, with those of the present one up to `until_s`."""
        since_s = self.failing_since_s
        return round(self.usage.backoff_s + (0.0 if since_s is None else self._lost_s(since_s, until_s)), 3)

    def ended(self, until_s: float) -> Usage:
        """What was used by a run that was over at `until_s`. What was on its way then is unmetered."""
        lost = sum(entry.kind == "model" for entry in self.in_flight.values())
        return self.usage.model_copy(update={"unmetered": self.usage.unmetered + lost, "backoff_s": self.backoff_s(until_s)})

    def add(self, line: Line) -> Tally:
        """With one more line."""
        if isinstance(line, Began):
            return self._began(line)
        if isinstance(line, Closed):
            usage = self.usage.model_copy(update={"backoff_s": line.backoff_s})
            return replace(self, usage=usage, failing_since_s=None)
        began = self.in_flight.get(line.n) if isinstance(line, Ended) else None
        if began is None or not isinstance(line, Ended):
            return self
        tally = replace(self, in_flight={n: entry for n, entry in self.in_flight.items() if n != line.n})
        return tally if began.kind == "count" else tally._metered(line)._judged(began, line)

    def _began(self, line: Began) -> Tally:
        flying = {**self.in_flight, line.n: line}
        if line.kind == "count":
            return replace(self, in_flight=flying, counts=self.counts + 1)
        more = {"requests": self.usage.requests + 1, "efforts": _seen(self.usage.efforts, line.effort)}
        return replace(self, in_flight=flying, usage=self.usage.model_copy(update=more))

    def _metered(self, line: Ended) -> Tally:
        """What it used, and what that cost."""
        usage, used = self.usage, line.tokens
        known_usd = self.known_usd + (line.cost_usd or 0.0)
        unpriced = self.unpriced or (used is not None and line.cost_usd is None)
        source = _source(usage.cost_source, line.cost_source)
        changes: dict[str, object] = {
            "cost_usd": None if unpriced or source is None else known_usd,
            "cost_source": None if unpriced else source,
            "models": _seen(usage.models, line.model),
            "providers": _seen(usage.providers, line.provider),
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

    def _judged(self, began: Began, line: Ended) -> Tally:
        """Whether the provider did its part."""
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


Source = Literal["provider", "prices", "mixed"]


def _source(one: Source | None, other: Source | None) -> Source | None:
    return one or other if one is None or other is None or one == other else "mixed"


def _seen(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    return names if name is None or name in names or len(names) >= NAMES else (*names, name)


HOPELESS = (401, 402, 403, 404)
"""No second try can help: the key, the account's money, what it may do, the model's name."""
UNFINISHED = 8
"""opencode asks again at once after an answer without a finish reason, for ever: 625 times in 45 s were seen."""


def exhausted(asked: ModelAccess, tally: Tally) -> Stop | None:
    """Whether a cap is used up."""
    caps, usage = asked.caps, tally.usage
    if usage.requests >= caps.requests or tally.counts >= caps.requests:
        return Stop("budget_exhausted", f"the run's {caps.requests} requests are used up")
    if caps.tokens is not None and tally.tokens >= caps.tokens:
        return Stop("budget_exhausted", f"the run's {caps.tokens} tokens are used up: {tally.tokens} counted{_estimated(tally)}")
    if caps.cost_usd is not None and tally.unbounded:
        return Stop(
            "budget_exhausted", f"what is left of the run's {caps.cost_usd:g} USD is unknown: an answer has no known cost"
        )
    if caps.cost_usd is not None and tally.spent_usd >= caps.cost_usd:
        return Stop(
            "budget_exhausted", f"the run's {caps.cost_usd:g} USD are used up: {tally.spent_usd:.4f} spent{_estimated(tally)}"
        )
    return None


def _estimated(tally: Tally) -> str:
    return ", of them some by estimate, as answers could not be metered" if tally.charged_tokens else ""


def failed(asked: ModelAccess, tally: Tally, line: Ended, *, alive: bool) -> Stop | None:
    """Whether this request's end should be the run's. `alive`: another answer comes in well meanwhile."""
    title, words = asked.route.title, why(line)
    if line.how == "stopped":
        return Stop("provider_error", words)
    if line.how == "error" and (line.status in HOPELESS or line.status == 400):
        return Stop("provider_error", f"{title}: {words}")
    if tally.unfinished >= UNFINISHED:
        return Stop("provider_error", f"{title}: {UNFINISHED} answers in a row ended without a finish reason")
    return impatient(asked, tally, line.s, words, alive=alive) if line.how in FAULTS else None


def impatient(asked: ModelAccess, tally: Tally, now_s: float, words: str, *, alive: bool) -> Stop | None:
    """Whether the provider has failed for too long. `words`: how it did last."""
    since_s = tally.failing_since_s
    if since_s is None or now_s - since_s < asked.patience_s or alive:
        return None
    return Stop("provider_error", f"{asked.route.title}: no good answer for {now_s - since_s:.0f} s; the last: {words}")


def why(line: Ended) -> str:
    """Why a request failed, in words."""
    said = f": {line.error}" if line.error else ""
    if line.how == "stopped":
        return line.error or ""
    if line.status is None:
        return f"no answer{said}"
    if line.status >= 300:
        return f"status {line.status}{said}"
    ways = {
        "incomplete": "an answer without a finish reason",
        "cut": "an answer that broke off",
        "stalled": "an answer that stalled",
    }
    return f"{ways.get(line.how, 'an error inside an answer')}{said}"
