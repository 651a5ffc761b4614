"""How `agent_status` is decided, the first row that fits. Pure: from what was seen of a session to a word and a sentence.

the gateway said stop before the agent was done   budget_exhausted, provider_error; whoever ended it then
nothing was heard of it for long                  crashed
the budget ended before the agent was done        deadline
its last model request failed                     provider_error   by what the gateway saw, never by the program's word;
                                                                   also when it took a broken answer for the last word
it ended well, having asked its model for nothing no_activity
the model's last answer was a refusal             refused
it said that it is done, and that all is well     complete         whatever the exit code; killed if it lingers
it ended otherwise
    exit code not 0, or it said that all is not well  crashed
    no event, and nothing in the workspace changed  no_activity
    exit 0, but its last word was to come         crashed          an exit code alone is never taken for success
    exit 0, and the harness defines no last word  complete
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arena.schema import AgentStatus


@dataclass(frozen=True)
class Seen:
    """What was seen of a session that has ended."""

    exit_code: int | None
    """None when arena had to kill it."""
    cause: Literal["itself", "budget", "silence", "gateway"] = "itself"
    """What ended it."""
    done: bool | None = None
    """By its own word: True done, False not well, None nothing said."""
    says_when_done: bool = True
    """Whether its harness can tell."""
    events: int = 0
    changed: bool = False
    """Whether anything in the workspace is not as it was."""
    told: str = ""
    """What the program told of last, as half a sentence."""
    stop: tuple[AgentStatus, str] | None = None
    """What the gateway wanted before the agent was done, and why."""
    asked: int | None = None
    """Requests to the model; None for an agent without one."""
    failed: str = ""
    """Why the last request to the model failed, of those that ended before the agent was done."""
    refused: bool = False
    """Whether the model's last answer was a refusal."""


def decide(seen: Seen) -> tuple[AgentStatus, str]:
    """The table above, and a sentence for people."""
    how = "was killed" if seen.exit_code is None else f"ended with exit code {seen.exit_code}"
    if seen.stop is not None and seen.cause != "budget":
        return seen.stop[0], f"{seen.stop[1]}; the command {how}"
    if seen.cause == "silence":
        return "crashed", f"nothing was heard of it for too long; the command {how}"
    if seen.cause == "budget":
        trouble = f"; its last request to the model failed: {seen.failed}" if seen.failed else ""
        return "deadline", f"the budget ended; the command {how}{trouble}"
    if seen.failed and (seen.done or seen.exit_code is not None):
        return "provider_error", f"its last request to the model failed: {seen.failed}; the command {how}"
    if seen.asked == 0 and (seen.done or seen.exit_code == 0):
        return "no_activity", f"it asked its model for nothing; the command {how}; {seen.told}"
    if seen.refused:
        return "refused", f"the model refused; the command {how}"
    if seen.done:
        return "complete", f"the agent said that it is done, and the command {how}"
    return _unfinished(seen, how)


def _unfinished(seen: Seen, how: str) -> tuple[AgentStatus, str]:
    if seen.exit_code != 0 or seen.done is False:
        return "crashed", f"the command {how}; {seen.told}"
    if not seen.events and not seen.changed:
        return "no_activity", "the command ended at once with exit code 0, without an event and without a change in the workspace"
    if seen.says_when_done:
        return "crashed", "the command ended with exit code 0, but without saying that it is done"
    return "complete", "the command ended with exit code 0"
