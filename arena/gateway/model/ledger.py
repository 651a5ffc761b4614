"""The ledger: `ledger.jsonl` in a run's folder, from which the run's usage can be computed at any time.

The gateway writes a line when a request begins and one when it ends, before anything else. So a killed arena leaves it whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from arena.errors import DataError
from arena.files.jsonl import JsonLines
from arena.gateway.config import PATIENCE_S
from arena.schema import Api, Usage

NAMES = 16
"""Names of each kind that are kept: a sandbox may cause any number."""
COUNTED = ("input", "cache_read", "cache_write", "output", "reasoning")
ASIDE_BYTES = 4 << 20
"""Of the file, for lines that are not about requests to the model: a sandbox may cause any number of those."""
FULL = "the ledger is full"

Source = Literal["provider", "prices", "mixed"]
How = Literal["whole", "refused", "incomplete", "unread", "cut", "stalled", "error", "account", "rejected", "stopped", "left"]
"""How a request ended.

whole       answered, with a finish reason
refused     the model refused, or a policy of the provider did
incomplete  the answer ended properly, but without a finish reason
unread      the same, and the gateway cannot read a part of it
cut         the answer broke off
stalled     the program left a stream after the provider was silent for too long
error       the provider reported a failure of its own, or did not answer
account     the provider reported a fault of the user's account, such as no credit left
rejected    the provider reported a fault of the request
stopped     the gateway cut it: another model or provider answered, or the key was in the answer
left        the program left before the finish reason, which is its right
"""
GOOD = ("whole", "refused")
FAULTS = ("incomplete", "cut", "stalled", "error")
"""Faults of the provider."""
FAILED = (*FAULTS, "account", "rejected", "stopped")


@dataclass(frozen=True)
class Tokens:
    """The tokens of one answer. Each token counts in one field only."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The part of `cache_write` that the provider keeps for an hour, at a higher price."""
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.cache_read + self.cache_write + self.output + self.reasoning


@dataclass(frozen=True)
class Began:
    """A request went out."""

    n: int
    """Its number, from 1."""
    at: str
    """UTC."""
    s: float
    """Seconds since the gateway began to serve."""
    kind: Literal["model", "count"]
    api: Api
    model: str
    effort: str | None
    provider: tuple[str, ...]
    """The pin: which providers may answer. Empty: any."""
    path: str
    bytes: int
    """Of its body, unpacked."""
    max_tokens: int | None = None
    """The most that it lets the provider generate; None when it sets no bound."""
    event: Literal["began"] = "began"


@dataclass(frozen=True)
class Ended:
    """How a request ended."""

    n: int
    s: float
    how: How
    status: int | None = None
    """Of the provider's answer; None when there was none."""
    first_byte_s: float | None = None
    """Seconds from its beginning to the answer's first byte."""
    seconds: float = 0.0
    model: str | None = None
    """The model that answered, as the answer names it; likewise the provider."""
    provider: str | None = None
    finish: str | None = None
    tier: str | None = None
    tokens: Tokens | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The provider's usage object, with plain strings."""
    cost_usd: float | None = None
    cost_source: Literal["provider", "prices"] | None = None
    priced_as: str | None = None
    """The price table's entry and version."""
    error: str | None = None
    bytes: int = 0
    """Of the answer."""
    charged_tokens: int = 0
    """Beyond `tokens`, against the caps only: an estimate for an answer without numbers."""
    limit: Literal["context", "output"] | None = None
    """What cut the answer: the model's context, or the limit on one answer."""
    charged_usd: float | None = 0.0
    """The same beyond `cost_usd`; None without a price to estimate by."""
    event: Literal["ended"] = "ended"

    @property
    def is_turn(self) -> bool:
        """Whether the program has an answer, or a part of one that it left. A fault of the provider is none, and asked again.

        A fault of the request itself is one: the program may have brought it about after most of the answer.
        """
        read = self.first_byte_s is not None and self.status is not None and self.status < 300
        return read and self.how in ("whole", "refused", "rejected", "unread", "left")

    @property
    def unmetered(self) -> bool:
        """Whether the answer, or the part that arrived, may have used more than its numbers show."""
        answered = self.how in ("left", "stalled") if self.status is None else self.status < 300
        return answered and (self.tokens is None or self.finish is None)


@dataclass(frozen=True)
class Refused:
    """A request that the gateway refused."""

    at: str
    s: float
    status: int
    path: str
    reason: str
    event: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Stopped:
    """From this line on no request went out."""

    at: str
    s: float
    status: str
    message: str
    event: Literal["stopped"] = "stopped"


@dataclass(frozen=True)
class Checked:
    """Arena sent a small request of its own, because something looked like a failure of the provider."""

    at: str
    s: float
    failed: str
    """Why it failed; empty when the provider answered it well."""
    conclusive: bool = True
    """False when the agent's own requests may have caused the failure."""
    event: Literal["checked"] = "checked"


@dataclass(frozen=True)
class Full:
    """The ledger had no room for more lines."""

    event: Literal["full"] = "full"


@dataclass(frozen=True)
class Closed:
    """The run is over."""

    s: float
    backoff_s: float
    """Time lost to the provider's failures, with one that lasted at the run's end."""
    event: Literal["closed"] = "closed"


Line = Began | Ended | Refused | Stopped | Checked | Full | Closed
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


@dataclass(frozen=True)
class Totals:
    """The sum of the lines up to now."""

    usage: Usage = Usage()  # noqa: RUF009  frozen
    counts: int = 0
    """Requests to count tokens."""
    in_flight: Mapping[int, Began] = field(default_factory=dict)
    crowded: frozenset[int] = frozenset()
    """Requests of those beside which another one was in flight."""
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
        return self.charged_tokens + sum(int(getattr(self.usage, f"{name}_tokens")) for name in COUNTED)

    def backoff_s(self, until_s: float) -> float:
        """Seconds lost to the provider's failures, with the present one up to `until_s`."""
        since_s = self.failing_since_s
        lost_s = 0.0 if since_s is None else min(self.patience_s, max(0.0, until_s - since_s))
        return round(self.usage.backoff_s + lost_s, 3)

    def ended(self, until_s: float) -> Usage:
        """The usage of a run that was over at `until_s`. Requests then in flight are unmetered."""
        lost = sum(entry.kind == "model" for entry in self.in_flight.values())
        return self.usage.model_copy(update={"unmetered": self.usage.unmetered + lost, "backoff_s": self.backoff_s(until_s)})

    def add(self, line: Line) -> Totals:
        """The totals with one more line."""
        if isinstance(line, Began):
            return self._began(line)
        if isinstance(line, Closed):
            usage = self.usage.model_copy(update={"backoff_s": line.backoff_s})
            return replace(self, usage=usage, failing_since_s=None)
        if not isinstance(line, Ended) or (began := self.in_flight.get(line.n)) is None:
            return self
        in_flight = {n: entry for n, entry in self.in_flight.items() if n != line.n}
        totals = replace(self, in_flight=in_flight, crowded=self.crowded & in_flight.keys())
        crowded = line.n in self.crowded
        return totals if began.kind == "count" else totals._metered(line)._judged(began, line, crowded=crowded)

    def _began(self, line: Began) -> Totals:
        in_flight = {**self.in_flight, line.n: line}
        crowded = frozenset(in_flight) if self.in_flight else self.crowded
        if line.kind == "count":
            return replace(self, in_flight=in_flight, crowded=crowded, counts=self.counts + 1)
        more = {"requests": self.usage.requests + 1, "efforts": _with_name(self.usage.efforts, line.effort)}
        return replace(self, in_flight=in_flight, crowded=crowded, usage=self.usage.model_copy(update=more))

    def _metered(self, line: Ended) -> Totals:
        """Add the tokens and the cost."""
        usage, used = self.usage, line.tokens
        known_usd = self.known_usd + (line.cost_usd or 0.0)
        unpriced = self.unpriced or (used is not None and line.cost_usd is None)
        source = _source(usage.cost_source, line.cost_source)
        changes: dict[str, object] = {
            "cost_usd": None if unpriced or source is None else known_usd,
            "cost_at_least_usd": known_usd if unpriced and known_usd else None,
            "cost_source": None if unpriced else source,
            "models": _with_name(usage.models, line.model),
            "providers": _with_name(usage.providers, line.provider),
            "unmetered": usage.unmetered + line.unmetered,
        }
        if used is not None:
            changes |= {f"{name}_tokens": getattr(usage, f"{name}_tokens") + getattr(used, name) for name in COUNTED}
        return replace(
            self,
            usage=usage.model_copy(update=changes),
            known_usd=known_usd,
            unpriced=unpriced,
            charged_tokens=self.charged_tokens + line.charged_tokens,
            spent_usd=self.spent_usd + (line.cost_usd or 0.0) + (line.charged_usd or 0.0),
            unbounded=self.unbounded or line.charged_usd is None,
        )

    def _judged(self, began: Began, line: Ended, *, crowded: bool) -> Totals:
        """Add whether the provider failed. 429 beside other requests does not show that: the program may have sent too many."""
        usage, since_s = self.usage, self.failing_since_s
        if line.how in GOOD:
            usage = usage.model_copy(update={"backoff_s": self.backoff_s(began.s)})
            return replace(self, usage=usage, failing_since_s=None, unfinished=0, answered=True)
        if line.how in FAILED:
            usage = usage.model_copy(update={"failed": usage.failed + 1})
        if line.how not in FAULTS or (line.status == 429 and crowded):
            return replace(self, usage=usage)
        unfinished = self.unfinished + (line.how == "incomplete")
        return replace(self, usage=usage, failing_since_s=line.s if since_s is None else since_s, unfinished=unfinished)


def _source(one: Source | None, other: Source | None) -> Source | None:
    return one or other if one is None or other is None or one == other else "mixed"


def _with_name(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    return names if name is None or name in names or len(names) >= NAMES else (*names, name)


class Ledger:
    """An open ledger and its totals. The gateway's thread writes it; any thread may read `totals`."""

    def __init__(self, lines: JsonLines, patience_s: float = PATIENCE_S) -> None:
        self.totals = Totals(patience_s=patience_s)
        self._lines = lines
        self._aside_bytes = 0

    def add(self, line: Line) -> str:
        """Append a line. Returns why no further line can be written, or an empty string."""
        began = self.totals.in_flight.get(line.n) if isinstance(line, Ended) else line
        aside = isinstance(line, Refused | Checked) or (isinstance(began, Began) and began.kind == "count")
        self.totals = self.totals.add(line)
        if aside and self._aside_bytes > ASIDE_BYTES:
            return ""
        try:
            before_bytes = self._lines.bytes
            written = self._lines.add(asdict(line), asdict(Full()))
            self._aside_bytes += aside * (self._lines.bytes - before_bytes)
            return "" if written else FULL
        except OSError as error:
            return f"the ledger cannot be written ({error.strerror})"


@contextmanager
def opened(path: Path, patience_s: float = PATIENCE_S) -> Iterator[Ledger]:
    """A new ledger at that path. OSError."""
    with FileIO(path, "x") as file:  # no buffer: a written line stays, however arena ends
        yield Ledger(JsonLines(file), patience_s)


def read(path: Path) -> Usage:
    """The usage in a ledger, without an unfinished last line. In a killed run back-off counts up to the last line. DataError."""
    totals, until_s = Totals(), 0.0
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            line = LINE.validate_json(text)
        except ValidationError as error:
            raise DataError(f"{path}:{number}: not a line of a ledger: {error.errors()[0]['msg']}") from None
        totals, until_s = totals.add(line), getattr(line, "s", until_s)
    return totals.ended(until_s)
