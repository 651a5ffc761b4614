"""What the stub does with a request: pure functions from what was asked to what is answered."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal, get_args

from . import gemini
from .script import SIDE_TOKENS, TOKENS, Act, Asked, Reply, Run, Write, calls

Mode = Literal["ok", "401", "429", "500", "cut", "early", "loop", "hang", "unknown_model", "other_provider", "other_model"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""ok             the script, to its end
401, 429, 500  that status for every request of an answer
cut            from the second turn on the connection is broken off within the answer
early          from the second turn on the stream ends as it should, but with neither a reason nor a usage record
loop           another call of a tool after the script, for ever
hang           from the second turn on nothing follows the headers
unknown_model  404, as for a model that is not there
other_provider, other_model  somebody else says that it answers"""
FAILURES: dict[Mode, tuple[int, str]] = {
    "401": (401, "the stub takes no such key"),
    "429": (429, "the stub has had enough requests"),
    "500": (500, "the stub has failed"),
    "unknown_model": (404, "the stub has no such model"),
}
THINKING = "First the file, then the check: one step after the other."
PRICE_USD = 0.0001
"""Of the first turn; the second costs twice as much, and so on."""


@dataclass(frozen=True)
class Plan:
    """How the stub was started."""

    mode: Mode = "ok"
    key: str | None = None
    """What requests have to bring; None: anything will do."""
    turns: tuple[tuple[Act, ...], ...] = ()
    """Acts of one turn are called side by side."""
    final: str = "Done: solution.py is written, and check.py has been run."
    thinking: bool = False
    provider: str = "Stub Provider"
    """Who answers behind the broker."""
    price: bool = True
    """Whether the broker tells what an answer costs."""


def plan(
    mode: Mode, key: str | None, solution: str, extra: tuple[str, ...], thinking: bool, provider: str, check: str, price: bool
) -> Plan:
    """A script that writes `solution`, runs the command `check` and `extra` side by side, and says that it is done."""
    turns = ((Write("solution.py", solution),), (Run(check), *map(Run, extra)))
    return Plan(mode, key, turns, thinking=thinking, provider=provider, price=price)


def reply(asked: Asked, plan: Plan, broker: bool) -> Reply:
    """The answer to a request, if it is to have one."""
    acts: tuple[Act, ...] = ()
    if not asked.side:
        loop: tuple[Act, ...] = (Run(f"echo {asked.turn}"),) if plan.mode == "loop" else ()
        acts = plan.turns[asked.turn] if asked.turn < len(plan.turns) else loop
    text = plan.final if not acts else "Working on it."
    if asked.side:
        text = "a title" if asked.schema is None else gemini.document(asked.schema)
    return Reply(
        model=f"{asked.model}-other" if plan.mode == "other_model" else asked.model,
        text=text,
        tokens=SIDE_TOKENS if asked.side else TOKENS[min(asked.turn, len(TOKENS) - 1)],
        calls=calls(acts, asked.tools),
        thinking=THINKING if plan.thinking and not asked.side else "",
        provider=None if not broker else "Somebody Else" if plan.mode == "other_provider" else plan.provider,
        cost_usd=round(PRICE_USD * (asked.turn + 1), 6) if broker and plan.price else None,
        id=secrets.token_hex(8),
    )


def ends_badly(asked: Asked, plan: Plan) -> bool:
    """Whether this answer is one of those that the mode breaks."""
    return plan.mode in ("cut", "early", "hang") and asked.turn >= 1 and not asked.side
