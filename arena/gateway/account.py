"""What the gateway knows of its run, written down before anything else happens. Every thread may read it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from arena.gateway.apis import Place
from arena.gateway.asked import Asked, Stop
from arena.gateway.entries import FAULTS, GOOD, Began, Ended, Line, Refused, Stopped
from arena.gateway.leak import scrubbed
from arena.gateway.ledger import Ledger
from arena.gateway.policy import Wish
from arena.gateway.rules import Refusal
from arena.gateway.stops import exhausted, failed, impatient, why
from arena.gateway.tally import Tally

REFUSALS = 1000
"""That are written down: a box may bring about as many as it likes."""
SAID = 1024


class Account:
    """One run's requests."""

    def __init__(self, asked: Asked, ledger: Ledger) -> None:
        self.stop: Stop | None = None
        self.last = ""
        self.refused = False
        self.streaming = 0
        """Answers that come in well at the moment."""
        self.active_s = self._start_s = time.monotonic()
        self._asked = asked
        self._ledger = ledger
        self._requests = 0
        self._refusals = 0

    @property
    def tally(self) -> Tally:
        """All requests up to now."""
        return self._ledger.tally

    @property
    def backoff_s(self) -> float:
        """Seconds lost to the provider's failures, with those that pass now."""
        tally = self.tally
        since_s = tally.failing_since_s
        return tally.usage.backoff_s + (0.0 if since_s is None else max(0.0, self.now_s() - since_s))

    def admit(self) -> None:
        """Refusal when the run is over, or its caps are used up. The status is one that no program tries again."""
        if self.stop is None and (stop := exhausted(self._asked, self.tally)):
            self.end_run(stop)
        if self.stop is not None:
            raise Refusal(400, f"the run is over: {self.stop.message}")

    def began(self, at: Place, wish: Wish, body_bytes: int) -> Began:
        """A request is about to be passed on. Refusal when that cannot be written down."""
        self._requests += 1
        line = Began(
            n=self._requests,
            at=_now(),
            s=self.now_s(),
            kind="count" if at.kind == "count" else "model",
            api=self._asked.api,
            model=self._asked.model,
            effort=wish.effort,
            provider=self._asked.provider,
            path=at.path[:SAID],
            bytes=body_bytes,
        )
        self._write(line)
        if self.stop is not None:
            raise Refusal(400, f"the run is over: {self.stop.message}")
        return line

    def ended(self, began: Began, line: Ended) -> None:
        """It has ended."""
        self._write(line)
        if began.kind == "model" and line.how in FAULTS:
            self.last = why(line)
        elif began.kind == "model" and line.how in GOOD:
            self.last, self.refused = "", line.how == "refused"
        if began.kind == "model" or line.how == "stopped":
            stop = failed(self._asked, self.tally, line, alive=self.streaming > 0)
            if stop is not None:
                self.last = why(line)
                self.end_run(stop)

    def look(self) -> None:
        """Also between requests a provider's time may be up: some programs wait for long before they ask again."""
        if self.stop is None and (stop := impatient(self._asked, self.tally, self.now_s(), self.last, alive=self.streaming > 0)):
            self.end_run(stop)

    def not_passed(self, path: str, refusal: Refusal) -> None:
        """A request was refused."""
        self._refusals += 1
        if self._refusals <= REFUSALS:
            reason = scrubbed(refusal.reason, self._asked.key)
            self._write(Refused(_now(), self.now_s(), refusal.status, path[:SAID], reason[:SAID]))

    def end_run(self, stop: Stop) -> None:
        """The first reason counts."""
        if self.stop is None:
            self.stop = stop
            self._write(Stopped(_now(), self.now_s(), stop.status, stop.message))

    def now_s(self) -> float:
        """Seconds since the gateway began to serve, as the ledger has them."""
        return round(time.monotonic() - self._start_s, 3)

    def heard(self) -> float:
        """A byte went in either direction, at this moment of the monotonic clock."""
        self.active_s = time.monotonic()
        return self.active_s

    def _write(self, line: Line) -> None:
        trouble = self._ledger.add(line)
        if trouble and self.stop is None:
            # What is not written down would be nobody's spending.
            self.stop = Stop("provider_error", trouble)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
