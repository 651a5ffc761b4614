"""When a run should be ended because of its provider or its budget: pure, over what the ledger says."""

from __future__ import annotations

from arena.gateway.config import ModelAccess, Stop
from arena.gateway.model.ledger_lines import FAULTS, Ended
from arena.gateway.model.totals import Tally

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
