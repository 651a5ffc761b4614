"""Which endings a run can have, what can cause each, whether the run then counts, and the decisions that lead to them.

The rule: an ending for which a run does not count is believed only when a small request of arena's own, made at that moment with
the same key and model, fails too. An agent writes the requests, and so it chooses many of the provider's answers. It does not
write arena's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model.ledger import FAULTS, Ended, Totals
from arena.schema import AgentStatus

Cause = Literal["agent", "provider", "arena", "user"]
HOPELESS = (403, 404)
"""Statuses that no retry can change, besides the account's faults: what the key may do, the model's name."""
AFTER_SUCCESS = (403, 404)
"""After one good answer the model exists and may be used. Then these statuses are about the request's content, such as a picture
for a model without vision, or a moderator's refusal. With a pin, 404 makes arena ask all the same: `provider_gone`."""
UNFINISHED = 8
"""opencode retries at once and without end after an answer without a finish reason: 625 times in 45 s were seen."""


@dataclass(frozen=True)
class Ending:
    """One way in which a run can end."""

    what: str
    by: tuple[Cause, ...]
    """What can bring it about."""
    status: AgentStatus
    needs_own_failure: bool = False
    """Whether it is believed only when arena's own request fails too."""

    @property
    def counts(self) -> bool:
        """Whether the run counts: its score stays in the leaderboard."""
        return self.status != "provider_error"

    def row(self) -> str:
        """Its row in docs/gateway.md."""
        return f"| {self.what} | {', '.join(self.by)} | `{self.status}` | {'yes' if self.counts else 'no'} |"


ENDINGS = (
    Ending("a request after the run's requests, turns, tokens or dollars are used up", ("agent",), "budget_exhausted"),
    Ending("the ledger is full", ("agent",), "budget_exhausted"),
    Ending("the ledger cannot be written", ("user", "agent"), "crashed"),
    Ending("the gateway itself fails, a bug of arena", ("arena", "agent"), "crashed"),
    Ending("403 or 404; arena's own request fails too", ("provider", "user"), "provider_error", True),
    Ending(
        "the account's fault, such as no credit or a bad key; arena's own request fails so too", ("user",), "provider_error", True
    ),
    Ending("no good answer within the patience; arena's own request fails too", ("provider",), "provider_error", True),
    Ending("no good answer within the patience; arena's own request is answered", ("agent", "provider"), "crashed"),
    Ending(
        "a limit on traffic fails all requests for the patience, after a good answer; arena's own too",
        ("agent", "provider"),
        "crashed",
    ),
    Ending(f"{UNFINISHED} answers without a finish reason; arena's own request fails too", ("provider",), "provider_error", True),
    Ending(f"{UNFINISHED} answers without a finish reason; arena's own request is answered", ("agent", "provider"), "crashed"),
    Ending("another model or provider answers; arena's own request gets one too", ("provider",), "provider_error", True),
    Ending("another model or provider answers; arena's own request gets the right one", ("agent", "provider"), "crashed"),
    Ending("the key is in an answer; arena's own request fails too", ("provider",), "provider_error", True),
    Ending("the key is in an answer; arena's own request is answered well", ("agent", "provider"), "crashed"),
    Ending("the last request failed, and so did arena's own", ("provider",), "provider_error", True),
    Ending("the last request failed, and arena's own did not: as the command ended", ("agent", "provider"), "crashed"),
    Ending("the budget ends", ("agent", "provider", "user"), "deadline"),
    Ending("no output and no traffic for long", ("agent",), "crashed"),
    Ending("many good answers in a row, and nothing in the workspace changes", ("agent", "provider"), "crashed"),
    Ending("nothing reaches the gateway for long", ("agent", "user"), "no_activity"),
    Ending("the command fails, or ends without its report", ("agent",), "crashed"),
    Ending("no request to the model, or no event and no change", ("agent",), "no_activity"),
    Ending("the model's last answer is a refusal", ("agent", "provider"), "refused"),
    Ending("the agent reports that it is done", ("agent",), "complete"),
)
"""Every ending of a session. A session that the user interrupts, or that arena does not survive, leaves no annotation."""


class Doubt(NamedTuple):
    """A sign that the provider fails, which arena's own request must confirm."""

    reason: str
    ends: bool
    """Whether the run ends in any case. Otherwise it goes on when arena's own request is answered."""


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


def request_failed(access: ModelAccess, totals: Totals, line: Ended, *, other_arriving: bool) -> Doubt | None:
    """The doubt that this request's end raises. `other_arriving`: another good answer is coming in."""
    title, reason = access.route.title, failure_reason(line)
    if line.how == "stopped":
        return Doubt(reason, ends=True)
    if line.how == "account" or (line.how == "error" and line.status in HOPELESS) or provider_gone(access, line):
        return Doubt(f"{title}: {reason}", ends=False)
    if totals.unfinished >= UNFINISHED:
        return Doubt(f"{title}: {UNFINISHED} answers in a row ended without a finish reason", ends=True)
    return provider_failed(access, totals, line.s, reason, other_arriving=other_arriving) if line.how in FAULTS else None


def provider_gone(access: ModelAccess, line: Ended) -> bool:
    """Whether a broker may say that no provider of the pin serves the model any more. No back-off: a picture gets 404 too."""
    return line.how == "rejected" and line.status == 404 and bool(access.provider)


def provider_failed(access: ModelAccess, totals: Totals, now_s: float, reason: str, *, other_arriving: bool) -> Doubt | None:
    """A doubt when the provider has failed for too long. `reason`: of the last failure."""
    since_s = totals.failing_since_s
    if since_s is None or now_s - since_s < access.patience_s or other_arriving:
        return None
    return Doubt(f"{access.route.title}: no good answer for {now_s - since_s:.0f} s; the last: {reason}", ends=True)


def confirmed(doubt: Doubt, own_failure: str) -> Stop:
    """The stop of a doubt when arena's own request failed in this way, or, when empty, was answered."""
    if own_failure:
        return Stop("provider_error", f"{doubt.reason} (arena's own request: {own_failure})")
    return Stop("crashed", f"{doubt.reason}; a request of arena's own was answered, so the run counts")


def unconfirmed(doubt: Doubt, own_failure: str = "") -> Stop:
    """The stop of a doubt that nothing has settled. `own_failure`: arena's own request's, if not believed."""
    shown = "no request of arena's own has confirmed it"
    if own_failure:
        shown = f"arena's own request failed too ({own_failure}), but the agent's own traffic may be the cause"
    return Stop("crashed", f"{doubt.reason}; {shown}, so the run counts")


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
