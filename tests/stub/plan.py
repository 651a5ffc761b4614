"""What the stub does with a request: pure functions from what was asked to what is answered."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from . import gemini
from .script import SIDE_TOKENS, TOKENS, Act, ModelAccess, Reply, Run, Tokens, Use, Write, calls

Mode = Literal["ok", "401", "429", "500", "cut", "early", "loop", "hang", "unknown_model", "other_provider", "other_model"]
INPUT_CLASSES: tuple[Mode, ...] = get_args(Mode)
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
    crowded: int = 0
    """Added to the input of every answer of the script: near a model's limit, and a program begins to shorten its history."""


def turns(solution: str, check: str, extra: Sequence[str], uses: Sequence[Use]) -> tuple[tuple[Act, ...], ...]:
    """A script that writes `solution`, runs the command `check` and those of `extra` side by side, and then these tools."""
    return ((Write("solution.py", solution),), (Run(check), *map(Run, extra)), *((use,) for use in uses))


def reply(asked: ModelAccess, plan: Plan, broker: bool) -> Reply:
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
        tokens=tokens(asked, plan),
        calls=calls(acts, asked.tools),
        thinking=THINKING if plan.thinking and not asked.side else "",
        provider=None if not broker else "Somebody Else" if plan.mode == "other_provider" else plan.provider,
        cost_usd=round(PRICE_USD * (asked.turn + 1), 6) if broker and plan.price else None,
        id=secrets.token_hex(8),
        metered=asked.metered,
    )


def tokens(asked: ModelAccess, plan: Plan) -> Tokens:
    """What the answer is said to cost."""
    if asked.side:
        return SIDE_TOKENS
    told = TOKENS[min(asked.turn, len(TOKENS) - 1)]
    return replace(told, input=told.input + plan.crowded)


def ends_badly(asked: ModelAccess, plan: Plan) -> bool:
    """Whether this answer is one of those that the mode breaks."""
    return plan.mode in ("cut", "early", "hang") and asked.turn >= 1 and not asked.side
