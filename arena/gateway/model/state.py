"""What the gateway knows of its run, written down before anything else happens. Every thread may read it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model.apis import Place
from arena.gateway.model.ledger import FULL, Ledger
from arena.gateway.model.ledger_lines import FAULTS, GOOD, Began, Closed, Ended, Line, Refused, Stopped
from arena.gateway.model.policy import Wish
from arena.gateway.model.redact import said, scrubbed
from arena.gateway.model.totals import Tally, exhausted, failed, impatient, why
from arena.gateway.refusal import Refusal
from arena.schema import Usage

THEREAFTER = (403, 404)
"""Once the model has answered well, it is there and may be asked: then these are about what a request says, such as a picture for
a model without eyes, or a moderator's no. An agent could otherwise have its run taken out of the count."""
REFUSALS = 1000
"""That are written down: a box may bring about as many as it likes."""


class Account:
    """One run's requests."""

    def __init__(self, asked: ModelAccess, ledger: Ledger) -> None:
        self.stop: Stop | None = None
        self.stopped_s = 0.0
        """When, on the monotonic clock; of no meaning without `stop`."""
        self.last = ""
        self.refused = False
        self.over = False
        """Arena ends the box: what breaks off from now on is nobody's fault."""
        self.well: dict[int, float] = {}
        """Answers that come in well at the moment: by number, when they began."""
        self.active_s = self._start_s = time.monotonic()
        self._asked = asked
        self._ledger = ledger
        self._requests = 0
        self._refusals = 0
        self._lasts: list[tuple[float, str]] = []
        self._backoff_s = 0.0

    @property
    def tally(self) -> Tally:
        """All requests up to now."""
        return self._ledger.tally

    @property
    def backoff_s(self) -> float:
        """Seconds lost to the provider's failures, with those that pass now, up to the end of the run."""
        if self.over:
            return self._backoff_s
        tally = self.tally
        since_s = tally.failing_since_s
        # An answer that comes in well will have ended the failing when it began.
        well_s = [began_s for began_s in list(self.well.values()) if since_s is not None and began_s >= since_s]
        return tally.backoff_s(min([self.now_s(), *well_s]))

    def usage(self) -> Usage:
        """What was used up to now."""
        return self.tally.usage.model_copy(update={"backoff_s": self.backoff_s})

    def leaving(self) -> None:
        """Arena ends the box now. Any thread may say so."""
        if not self.over:
            self._backoff_s, self.over = self.backoff_s, True

    def close(self) -> None:
        """Nothing comes any more."""
        self.leaving()
        self._write(Closed(self.now_s(), self._backoff_s))

    def last_before(self, monotonic_s: float) -> str:
        """Why the last request to the model that had begun by then failed; empty when it did not.

        By its beginning: a program may say its last word while the end of a good answer is still on its way here.
        """
        return next((words for began_s, words in reversed(self._lasts.copy()) if began_s < monotonic_s), "")

    def admit(self) -> None:
        """Refusal when the run is over, or its caps are used up. The status is one that no program tries again."""
        if self.stop is None and (stop := exhausted(self._asked, self.tally)):
            self.end_run(stop)
        if self.stop is not None:
            raise Refusal(400, f"the run is over: {self.stop.message}")

    def began(self, at: Place, wish: Wish) -> Began:
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
            path=said(at.path),
            bytes=wish.bytes,
        )
        self._write(line)
        if self.stop is not None:
            raise Refusal(400, f"the run is over: {self.stop.message}")
        return line

    def ended(self, began: Began, line: Ended) -> None:
        """It has ended."""
        if line.how == "error" and line.status in THEREAFTER and self.tally.answered:
            line = replace(line, how="rejected")
        self._write(line)
        if self.over:
            return
        if began.kind == "model" and line.how in FAULTS:
            self._ended_so(began, why(line))
        elif began.kind == "model" and line.how in GOOD:
            self._ended_so(began, "")
            self.refused = line.how == "refused"
        if began.kind == "model" or line.how == "stopped":
            stop = failed(self._asked, self.tally, line, alive=bool(self.well))
            if stop is not None:
                self._ended_so(began, why(line))
                self.end_run(stop)

    def _ended_so(self, began: Began, words: str) -> None:
        self.last = words
        self._lasts.append((self._start_s + began.s, words))

    def look(self) -> None:
        """Also between requests a provider's time may be up: some programs wait for long before they ask again."""
        if self.stop is None and (stop := impatient(self._asked, self.tally, self.now_s(), self.last, alive=bool(self.well))):
            self.end_run(stop)

    def not_passed(self, path: str, refusal: Refusal) -> None:
        """A request was refused."""
        self._refusals += 1
        if self._refusals <= REFUSALS:
            reason = scrubbed(refusal.reason, self._asked.key)
            self._write(Refused(_now(), self.now_s(), refusal.status, said(path), said(reason)))

    def end_run(self, stop: Stop) -> None:
        """The first reason counts."""
        if self.stop is None and not self.over:
            stop = replace(stop, message=said(stop.message))
            self.stopped_s, self.stop = time.monotonic(), stop
            self._write(Stopped(_now(), self.now_s(), stop.status, stop.message))

    def now_s(self) -> float:
        """Seconds since the gateway began to serve, as the ledger has them; to the microsecond, for `last_before`."""
        return round(time.monotonic() - self._start_s, 6)

    def heard(self) -> None:
        """A byte went in either direction."""
        self.active_s = time.monotonic()

    def _write(self, line: Line) -> None:
        trouble = self._ledger.add(line)
        if trouble and self.stop is None and not self.over:
            # What is not written down would be nobody's spending. A box can fill the file, though not the disk.
            self.stopped_s, self.stop = (
                time.monotonic(),
                Stop("budget_exhausted" if trouble == FULL else "provider_error", trouble),
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
