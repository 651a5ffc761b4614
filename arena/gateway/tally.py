"""A ledger added up, line by line: live, and from the file of a run that was killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from arena.gateway.entries import FAILED, FAULTS, GOOD, Began, Ended, Line
from arena.schema import Usage

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
    spent_usd: float = 0.0
    unpriced: bool = False
    """The cost of some answer is unknown, and with it that of all."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return sum(getattr(self.usage, f"{name}_tokens") for name in COUNTED)

    def add(self, line: Line) -> Tally:
        """With one more line."""
        if isinstance(line, Began):
            return self._began(line)
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
        spent_usd = self.spent_usd + (line.cost_usd or 0.0)
        unpriced = self.unpriced or (used is not None and line.cost_usd is None)
        source = _source(usage.cost_source, line.cost_source)
        changes: dict[str, object] = {
            "cost_usd": None if unpriced or source is None else spent_usd,
            "cost_source": None if unpriced else source,
            "models": _seen(usage.models, line.model),
            "providers": _seen(usage.providers, line.provider),
        }
        if used is not None:
            for name in COUNTED:
                changes[f"{name}_tokens"] = getattr(usage, f"{name}_tokens") + getattr(used, name)
        elif line.status is not None and line.status < 300:
            changes["unmetered"] = usage.unmetered + 1
        return replace(self, usage=usage.model_copy(update=changes), spent_usd=spent_usd, unpriced=unpriced)

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
            usage = usage.model_copy(update={"backoff_s": round(usage.backoff_s + max(0.0, began.s - since_s), 3)})
        return replace(self, usage=usage, failing_since_s=None, unfinished=0)


Source = Literal["provider", "prices", "mixed"]


def _source(one: Source | None, other: Source | None) -> Source | None:
    return one or other if one is None or other is None or one == other else "mixed"


def _seen(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    return names if name is None or name in names else (*names, name)
