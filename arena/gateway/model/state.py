"""The state of one run's requests, and whether the run must end. The ledger gets each change first; any thread may read it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model.apis import Endpoint
from arena.gateway.model.ledger import FAULTS, FULL, GOOD, Began, Closed, Ended, Ledger, Line, Refused, Stopped, Totals
from arena.gateway.model.policy import ModelRequest
from arena.gateway.model.redact import plain_message, scrubbed
from arena.gateway.unix_server import Refusal
from arena.schema import Usage

AFTER_SUCCESS = (403, 404)
"""After one good answer the model exists and may be used. Then these statuses are about the request's content, such as a picture
for a model without vision, or a moderator's refusal. Otherwise an agent could have its run discarded."""
REFUSALS = 1000
"""Refusals that are logged: a sandbox may cause any number."""
HOPELESS = (401, 402, 403, 404)
"""Statuses that no retry can change: the key, the account's money, what it may do, the model's name."""
UNFINISHED = 8
"""opencode retries at once and without end after an answer without a finish reason: 625 times in 45 s were seen."""


class RunState:
    """One run's requests, their totals, and whether the run must end."""

    def __init__(self, access: ModelAccess, ledger: Ledger) -> None:
        self.stop: Stop | None = None
        """Set once, when the run should be ended."""
        self.stopped_s = 0.0
        """When `stop` was set, on the monotonic clock; meaningless without it."""
        self.last_failure = ""
        """Why the last request to the model failed, when that is the provider's fault; empty when it did not."""
        self.refused = False
        """Whether the model's last answer was a refusal."""
        self.ending = False
        """Arena ends the sandbox: a connection that breaks from now on is not a fault."""
        self.arriving: dict[int, float] = {}
        """Good answers that are coming in now: when each request began, by its number."""
        self.active_s = self._start_s = time.monotonic()
        """When the last byte passed in either direction, on the monotonic clock."""
        self._access = access
        self._ledger = ledger
        self._requests = 0
        self._refusals = 0
        self._failures: list[tuple[float, str]] = []
        self._backoff_s = 0.0

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
            self._backoff_s, self.ending = self.backoff_s, True

    def close(self) -> None:
        """Write the ledger's last line. No request comes after it."""
        self.leaving()
        self._write(Closed(self.now_s(), self._backoff_s))

    def last_failure_before(self, monotonic_s: float) -> str:
        """Why the last request to the model that had begun by then failed; empty when it did not.

        Its beginning counts: a program may print its last message while the end of a good answer is still on its way here.
        """
        return next((reason for began_s, reason in reversed(self._failures.copy()) if began_s < monotonic_s), "")

    def admit(self) -> None:
        """Refusal when the run is over or a cap is used up. Programs do not retry this status."""
        if self.stop is None and (stop := caps_exhausted(self._access, self._ledger.totals)):
            self.end_run(stop)
        self._check_running()

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
        )
        self._write(line)
        self._check_running()
        return line

    def end(self, began: Began, line: Ended) -> None:
        """Record the end of a request, and end the run when that is due."""
        if line.how == "error" and line.status in AFTER_SUCCESS and self._ledger.totals.answered:
            line = replace(line, how="rejected")
        self._write(line)
        if self.ending:
            return
        if began.kind == "model" and line.how in FAULTS:
            self._note_failure(began, failure_reason(line))
        elif began.kind == "model" and line.how in GOOD:
            self._note_failure(began, "")
            self.refused = line.how == "refused"
        counts, arriving = began.kind == "model" or line.how == "stopped", bool(self.arriving)
        if counts and (stop := request_failed(self._access, self._ledger.totals, line, other_arriving=arriving)):
            self._note_failure(began, failure_reason(line))
            self.end_run(stop)

    def _note_failure(self, began: Began, reason: str) -> None:
        self.last_failure = reason
        self._failures.append((self._start_s + began.s, reason))

    def check_patience(self) -> None:
        """End the run when the provider has failed for too long. Some programs wait long before they try again."""
        totals, arriving = self._ledger.totals, bool(self.arriving)
        if stop := provider_failed(self._access, totals, self.now_s(), self.last_failure, other_arriving=arriving):
            self.end_run(stop)

    def record_refusal(self, path: str, refusal: Refusal) -> None:
        """Record a request that the gateway refused."""
        self._refusals += 1
        if self._refusals <= REFUSALS:
            reason = scrubbed(refusal.reason, self._access.key)
            self._write(Refused(_now(), self.now_s(), refusal.status, plain_message(path), plain_message(reason)))

    def end_run(self, stop: Stop) -> None:
        """End the run. The first reason counts."""
        if self.stop is None and not self.ending:
            stop = replace(stop, message=plain_message(stop.message))
            self.stopped_s, self.stop = time.monotonic(), stop
            self._write(Stopped(_now(), self.now_s(), stop.status, stop.message))

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
            stop = Stop("budget_exhausted" if trouble == FULL else "provider_error", trouble)
            self.stopped_s, self.stop = time.monotonic(), stop


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def caps_exhausted(access: ModelAccess, totals: Totals) -> Stop | None:
    """A stop when a cap is used up."""
    caps, usage = access.caps, totals.usage
    estimated = ", some of them estimated for answers without numbers" if totals.charged_tokens else ""
    if usage.requests >= caps.requests or totals.counts >= caps.requests:
        reason = f"the run's {caps.requests} requests are used up"
    elif caps.tokens is not None and totals.tokens >= caps.tokens:
        reason = f"the run's {caps.tokens} tokens are used up: {totals.tokens} counted{estimated}"
    elif caps.cost_usd is not None and totals.unbounded:
        reason = f"the rest of the run's {caps.cost_usd:g} USD is unknown: the cost of an answer is unknown"
    elif caps.cost_usd is not None and totals.spent_usd >= caps.cost_usd:
        reason = f"the run's {caps.cost_usd:g} USD are used up: {totals.spent_usd:.4f} spent{estimated}"
    else:
        return None
    return Stop("budget_exhausted", reason)


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
