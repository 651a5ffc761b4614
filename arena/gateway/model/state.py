"""The state of one run's requests, and whether the run must end. The ledger gets each change first; any thread may read it."""

from __future__ import annotations

import asyncio
import bisect
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model.apis import Endpoint
from arena.gateway.model.ledger import FAULTS, FULL, GOOD, Began, Checked, Closed, Ended, Ledger, Line, Refused, Stopped
from arena.gateway.model.outcome import (
    AFTER_SUCCESS,
    Doubt,
    caps_exhausted,
    confirmed,
    failure_reason,
    provider_failed,
    request_failed,
    unconfirmed,
)
from arena.gateway.model.policy import ModelRequest
from arena.gateway.model.redact import plain_message, scrubbed
from arena.gateway.unix_server import Refusal
from arena.schema import AccountFault, Usage

REFUSALS = 1000
"""Refusals that are logged: a sandbox may cause any number."""
FEW_REQUESTS = 50
"""Programs give up after fewer: 45 requests at most were seen (codex, status 500). Any hourly or daily limit is higher."""


@dataclass
class Outcome:
    """How one request to the model ended."""

    began_s: float
    """On the monotonic clock, as the next."""
    ended_s: float
    reason: str
    """Why it failed; empty when it did not."""
    own_failed: bool | None = None
    """Whether arena's own request, sent later, failed too; None: not known."""


class RunState:
    """One run's requests, their totals, and whether the run must end."""

    def __init__(self, access: ModelAccess, ledger: Ledger) -> None:
        self.stop: Stop | None = None
        """Set once, when the run should be ended."""
        self.stopped_s = 0.0
        """When `stop` was set, on the monotonic clock; meaningless without it."""
        self.doubts = asyncio.Event()
        """Set when arena should send a request of its own: something looks like a failure of the provider."""
        self.refused = False
        """Whether the model's last answer was a refusal."""
        self.answers = 0
        """Good answers of the model."""
        self.arrived = 0
        """Requests of any kind that reached the gateway."""
        self.last_refusal = ""
        """Why the gateway last refused a request."""
        self.limit_reached: Literal["context", "output"] | None = None
        """What cut the model's last answer."""
        self.ending = False
        """Arena ends the sandbox: a connection that breaks from now on is not a fault."""
        self.account_fault = ""
        """What the user should do about the account, when the provider last named a fault of it to arena's own request."""
        self.resumed = 0
        """Times that the agent's command has gone on after a break of the provider."""
        self.resumed_s = 0.0
        """When it last did, on the monotonic clock; meaningless before."""
        self.resuming = False
        """Whether it waits to go on until the provider answers again."""
        self.arriving: dict[int, float] = {}
        """Good answers that are coming in now: when each request began, by its number."""
        self.failing: dict[int, float] = {}
        """When an answer was seen to be a failure, on the monotonic clock, by its request's number, until that is recorded."""
        self.active_s = self._start_s = time.monotonic()
        """When the last byte passed in either direction, on the monotonic clock."""
        self._access = access
        self._ledger = ledger
        self._requests = 0
        self._refusals = 0
        self._outcomes: list[Outcome] = []
        self._doubt: tuple[float, Doubt] | None = None
        """The first doubt that no request of arena's own has settled, and when it arose, on the monotonic clock."""
        self._backoff_s = self._leaving_s = 0.0
        self._turns = 0
        """Answers that count against the run's turns."""
        self._turns_open = 0
        """Requests to the model that have gone out and not ended."""

    @property
    def backoff_s(self) -> float:
        """Seconds lost to the provider's failures up to the end of the run, with the failure that lasts now."""
        if self.ending:
            return self._backoff_s
        totals = self._ledger.totals
        since_s = totals.failing_since_s
        # A good answer that is coming in will have ended the failure when its request began.
        good_s = [began_s for began_s in list(self.arriving.values()) if since_s is not None and began_s >= since_s]
        return totals.backoff_s(min([self.now_s(), *good_s]))

    def usage(self) -> Usage:
        """What the run used up to now: the same as `ledger.read` computes from the ledger."""
        return self._ledger.totals.usage.model_copy(update={"backoff_s": self.backoff_s})

    def leaving(self) -> None:
        """Call this before arena ends the sandbox, from any thread: a connection that breaks later is not a fault."""
        if not self.ending:
            self._backoff_s, self._leaving_s, self.ending = self.backoff_s, self.now_s(), True

    def close(self) -> None:
        """Write the ledger's last line. No request comes after it."""
        self.leaving()
        if self._doubt is not None and self._doubt[1].ends and self.stop is not None:
            self._replace_stop(self.stop)
        self._write(Closed(self.now_s(), self._backoff_s))

    def asking_words(self, in_flight: int) -> str:
        """What the agent's requests are doing, for a display; empty when none is under way and the last one went well."""
        last = self._outcomes[-1:]
        failed = last[0].reason.partition(":")[0] if last else ""  # `status 429`, without the provider's own words
        if self.arriving:
            return "receiving an answer"
        if in_flight:
            return f"retrying after {failed}" if failed else "waiting for an answer"
        return f"pausing after {failed}" if failed else ""

    @property
    def broken_off(self) -> bool:
        """Whether the last request failed by the provider's fault, and the run has not ended by it."""
        return bool(self._outcomes and self._outcomes[-1].reason) and self.stop is None and not self.ending

    @property
    def last_failure(self) -> str:
        """Why the last request to the model failed, when arena's own request failed too; otherwise empty."""
        return self._failure(self._outcomes[-1:])

    def last_failure_before(self, monotonic_s: float) -> str:
        """The same for the last request that had begun by then.

        Its beginning counts: a program may print its last message while the end of a good answer is still on its way here.
        """
        return self._failure([entry for entry in self._outcomes.copy() if entry.began_s < monotonic_s][-1:])

    def _failure(self, last: list[Outcome]) -> str:
        return last[0].reason if last and last[0].own_failed else ""

    @property
    def unsettled(self) -> bool:
        """Whether the run's status depends on a request of arena's own that is still to be made."""
        last = self._outcomes[-1:]
        return self._doubt is not None or bool(last and last[0].reason and last[0].own_failed is None)

    @property
    def little_asked(self) -> bool:
        """Whether the agent's requests cannot have used up an hour's or a day's limit: no good answer, and few tries."""
        totals = self._ledger.totals
        return not totals.answered and not self.arriving and totals.usage.requests + totals.counts <= FEW_REQUESTS

    def checked(self, sent_s: float, own_failure: str, *, conclusive: bool = True, account: AccountFault | None = None) -> None:
        """Settle what arose before arena's own request went out at `sent_s`, on the monotonic clock.

        Args:
            sent_s: when it went out.
            own_failure: why it failed; empty when it was answered well.
            conclusive: False when the agent itself may have caused that failure.
            account: the fault of the user's account that the provider named to arena's own request.
        """
        self.record_check(own_failure, conclusive=conclusive)
        if own_failure and not conclusive:
            if self._doubt is not None and self._doubt[1].ends:
                self.stop = _plain(unconfirmed(self._doubt[1], own_failure))
            return
        self.account_fault = account.remedy if account else ""
        for entry in reversed(self._outcomes):
            if not entry.reason or entry.own_failed is not None:
                break
            if entry.ended_s <= sent_s:
                entry.own_failed = bool(own_failure)
        if self._doubt is not None and self._doubt[0] <= sent_s:
            (_, doubt), self._doubt = self._doubt, None
            if doubt.ends:
                self._replace_stop(confirmed(doubt, own_failure))
            elif own_failure:
                self.end_run(confirmed(doubt, own_failure))

    def record_check(self, own_failure: str, *, conclusive: bool) -> None:
        """Record a request of arena's own, and how it failed, if it did."""
        self._write(Checked(_now(), self.now_s(), own_failure, conclusive))

    def admit(self, endpoint: Endpoint) -> None:
        """Refusal when the run is over, or a cap or its turns are used up. Programs do not retry this status, except 503.

        `begin` must follow before anything else runs: two requests at once are never two turns for one.
        """
        stop, turns = caps_exhausted(self._access, self._ledger.totals), self._access.turns
        if turns is not None and endpoint.kind == "model" and self._turns >= turns:
            answers = "one answer" if turns == 1 else f"{turns} answers"
            stop = stop or Stop("budget_exhausted", f"the run's turns are used up: its model may give {answers} (--turns)")
        if self.stop is None and stop:
            self.end_run(stop)
        self._check_running()
        if turns is not None and endpoint.kind == "model" and self._turns_open:
            raise Refusal(503, "an answer is still under way, and a run with a number of turns gets one at a time")

    def begin(self, endpoint: Endpoint, request: ModelRequest) -> Began:
        """Record that a request is about to go out. Refusal when the ledger cannot be written."""
        self._requests += 1
        line = Began(
            n=self._requests,
            at=_now(),
            s=self.now_s(),
            kind="count" if endpoint.kind == "count" else "model",
            api=self._access.api,
            model=self._access.model,
            effort=request.effort,
            provider=self._access.provider,
            path=plain_message(endpoint.path),
            bytes=request.bytes,
            max_tokens=request.max_tokens,
        )
        self._write(line)
        self._check_running()
        self._turns_open += line.kind == "model"
        return line

    def end(self, began: Began, line: Ended) -> None:
        """Record the end of a request, and end the run when that is due."""
        if line.how == "error" and line.status in AFTER_SUCCESS and self._ledger.totals.answered:
            line = replace(line, how="rejected")
        self._turns_open -= began.kind == "model"
        self._turns += began.kind == "model" and line.is_turn
        self._write(line)
        reason = failure_reason(line)
        if self.ending:
            # A program may end by a failure before the end of that answer is recorded.
            if began.kind == "model" and began.s < self._leaving_s and line.how in ("error", "account"):
                self._note(began, reason)
            return
        if began.kind == "model":
            self.limit_reached = line.limit
        if began.kind == "model" and line.how in GOOD:
            self.answers += 1
            self.refused = line.how == "refused"
            self._note(began, "")
        counts, arriving = began.kind == "model" or line.how == "stopped", bool(self.arriving)
        doubt = request_failed(self._access, self._ledger.totals, line, other_arriving=arriving) if counts else None
        if counts and (line.how in FAULTS or doubt):
            self._note(began, reason)
            self.doubts.set()
        if doubt:
            self._take(doubt)

    def _note(self, began: Began, reason: str) -> None:
        ended_s = self.failing.get(began.n, time.monotonic())
        # A failure's rest may take longer than the answer to what the program asked next.
        bisect.insort(self._outcomes, Outcome(self._start_s + began.s, ended_s, reason), key=lambda each: each.ended_s)

    def _take(self, doubt: Doubt) -> None:
        """Keep a doubt until arena's own request settles it. A doubt that ends the run ends it now: it counts until then."""
        if self.stop is not None or self.ending:
            return
        if doubt.ends:
            self._doubt = time.monotonic(), doubt
            self.stopped_s, self.stop = time.monotonic(), _plain(unconfirmed(doubt))
        elif self._doubt is None:
            self._doubt = time.monotonic(), doubt
        self.doubts.set()

    def _replace_stop(self, stop: Stop) -> None:
        self.stop = _plain(stop)
        self._write(Stopped(_now(), self.now_s(), self.stop.status, self.stop.message))

    def check_patience(self) -> None:
        """End the run when the provider has failed for too long. Some programs wait long before they try again."""
        totals, arriving = self._ledger.totals, bool(self.arriving)
        reason = self._outcomes[-1].reason if self._outcomes else ""
        if doubt := provider_failed(self._access, totals, self.now_s(), reason, other_arriving=arriving):
            self._take(doubt)

    def record_refusal(self, path: str, refusal: Refusal) -> None:
        """Record a request that the gateway refused."""
        self._refusals += 1
        self.last_refusal = plain_message(scrubbed(refusal.reason, self._access.key))
        if self._refusals <= REFUSALS:
            self._write(Refused(_now(), self.now_s(), refusal.status, plain_message(path), self.last_refusal))

    def end_run(self, stop: Stop) -> None:
        """End the run. The first reason counts."""
        if self.stop is None and not self.ending:
            self.stopped_s = time.monotonic()
            self._replace_stop(stop)

    def now_s(self) -> float:
        """Seconds since the gateway began to serve, as in the ledger; to the microsecond, for `last_failure_before`."""
        return round(time.monotonic() - self._start_s, 6)

    def _check_running(self) -> None:
        if self.stop is not None:
            raise Refusal(400, f"the run is over: {self.stop.message}")

    def _write(self, line: Line) -> None:
        trouble = self._ledger.add(line)
        if trouble and self.stop is None and not self.ending:
            # Unrecorded requests would be free. A sandbox can fill the file, but not the disk.
            stop = Stop("budget_exhausted" if trouble == FULL else "crashed", trouble)
            self.stopped_s, self.stop = time.monotonic(), stop


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _plain(stop: Stop) -> Stop:
    return replace(stop, message=plain_message(stop.message))
