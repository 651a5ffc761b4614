"""Decide `agent_status` by the first row that fits. A pure function from what arena observed to a status and a sentence.

the gateway stopped the run before the agent was done   budget_exhausted, provider_error; whatever ended the command
no output and no traffic for long                       crashed
many answers in a row, and nothing changes              crashed
nothing reached the gateway for long                    no_activity
the budget ended before the agent was done              deadline         refused, when the last answer was a refusal
its last model request failed, and arena's own too      provider_error   by the gateway's ledger, never by the agent's report;
                                                                         also when the agent took a broken answer for the last
it ended well without a request to its model            no_activity
the model's last answer was a refusal                   refused
it reported that it is done and all is well             complete         whatever the exit code; killed if it lingers
it ended otherwise
    exit code not 0, or it reported an error            crashed
    no event, and no change in the workspace            no_activity
    exit 0 without the report that its harness defines  crashed          an exit code alone never means success
    exit 0, and the harness defines no such report      complete
"""

from __future__ import annotations

from dataclasses import dataclass

from arena.agents.progress_watch import ANSWERS
from arena.agents.supervisor import Cause
from arena.schema import AgentStatus


@dataclass(frozen=True)
class Observed:
    """What arena observed of a session that has ended."""

    exit_code: int | None
    """None when arena killed the command."""
    cause: Cause = "itself"
    """What ended it."""
    done: bool | None = None
    """The agent's own report: True done, False an error, None no report."""
    reports_its_end: bool = True
    """Whether its harness defines such a report."""
    events: int = 0
    changed: bool = False
    """Whether anything in the workspace changed."""
    last_words: str = ""
    """The agent's last error or output, as half a sentence."""
    stop: tuple[AgentStatus, str] | None = None
    """Why the gateway stopped the run before the agent was done."""
    requests: int | None = None
    """To the model; None for an agent without one."""
    arrived: int | None = None
    """Requests of any kind that reached the gateway; None without one."""
    last_refusal: str = ""
    """Why the gateway last refused a request."""
    failed: str = ""
    """Why the last request to the model failed, of those that ended before the agent was done."""
    refused: bool = False
    """Whether the model's last answer was a refusal."""
    account_fault: str = ""
    """What the user should do about the account at the provider, when its fault made a request of arena's own fail."""


def decide(observed: Observed) -> tuple[AgentStatus, str]:
    """The status by the table above, and a sentence for people: it ends with what to do when the account is at fault."""
    status, message = _decide(observed)
    remedy = f"; {observed.account_fault}" if observed.account_fault and status == "provider_error" else ""
    return status, message + remedy


def _decide(observed: Observed) -> tuple[AgentStatus, str]:
    code, failed = observed.exit_code, observed.failed
    end = "was killed" if code is None else f"ended with exit code {code}"
    if observed.stop is not None and observed.cause != "budget":
        return observed.stop[0], f"{observed.stop[1]}; the command {end}"
    if observed.cause == "silence":
        return "crashed", f"the agent was silent for too long; the command {end}"
    if observed.cause == "loop":
        return "crashed", f"{ANSWERS} answers in a row changed nothing in the workspace; the command {end}"
    if observed.cause == "unasked":
        return "no_activity", f"{_unasked(observed)}; the command {end}"
    if observed.cause == "budget" and observed.refused and not failed:
        return "refused", f"the model refused until the budget ended; the command {end}"
    if observed.cause == "budget":
        trouble = f"; its last request to the model failed: {failed}" if failed else ""
        return "deadline", f"the budget ended; the command {end}{trouble}"
    if failed and (observed.done or code is not None):
        return "provider_error", f"its last request to the model failed: {failed}; the command {end}"
    if observed.requests == 0 and (observed.done or code == 0):
        return "no_activity", f"{_unasked(observed)}; the command {end}; {observed.last_words}"
    if observed.refused:
        return "refused", f"the model refused; the command {end}"
    if observed.done:
        return "complete", f"the agent reported that it is done, and the command {end}"
    return _without_report(observed, end)


def _unasked(observed: Observed) -> str:
    """Why no request of the agent went on to its model: a program that talks past the gateway is no model that fails."""
    if observed.arrived == 0:
        return "nothing of the agent reached the gateway: its program calls another address, or none"
    if observed.last_refusal:
        return f"the gateway passed no request of the agent on, the last because: {observed.last_refusal}"
    return "the agent sent no request to its model"


def _without_report(observed: Observed, end: str) -> tuple[AgentStatus, str]:
    if observed.exit_code != 0 or observed.done is False:
        asked = f"{_unasked(observed)}; " if observed.requests == 0 else ""
        return "crashed", f"{asked}the command {end}; {observed.last_words}"
    if not observed.events and not observed.changed:
        return "no_activity", "the command ended at once with exit code 0, without an event and without a change in the workspace"
    if observed.reports_its_end:
        return "crashed", "the command ended with exit code 0, but without reporting that the agent is done"
    return "complete", "the command ended with exit code 0"
