"""The stub's behaviour: pure functions from a request to its answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from . import gemini
from .failures import ENDINGS, LASTING, LATER, Error, Mode
from .script import SIDE_TOKENS, TOKENS, Act, ParsedRequest, Reply, Run, Tokens, Use, Write, calls

MODES: tuple[Mode, ...] = get_args(Mode)
"""ok             the script, to its end
401, 429, 500, 529  that status for every request of an answer
no_credit      from the second turn on each API's own words for an account without credit
overload       from the second turn on an overload of the provider, inside the answer
hiccup         the same at the first try of the second turn only
no_provider    from the second turn on a broker has no provider of the pin
policy         from the second turn on an error of the provider's policy
filter         from the second turn on the answer ends as a refusal
context        from the second turn on the model's context is full, until the agent asks for a summary of it
output         from the second turn on the limit on one answer cuts it
cut            from the second turn on the stub breaks the connection within the answer
early          from the second turn on the stream ends as it should, but with neither a reason nor a usage record
loop           another call of a tool after the script, for ever
hang           from the second turn on nothing follows the headers
unknown_model  404, as for a model that is not there
other_provider, other_model  the answer names another provider or another model"""
THINKING = "First the file, then the check: one step after the other."
SUMMARY = (
    "<state_snapshot><overall_goal>A kernel in solution.py.</overall_goal> It is written; more steps follow.</state_snapshot>"
)
"""In the form in which Gemini CLI wants it; the others take any."""
PRICE_USD = 0.0001
"""The price of the first turn; the second costs twice as much, and so on."""


@dataclass(frozen=True)
class Plan:
    """The settings of one stub."""

    mode: Mode = "ok"
    key: str | None = None
    """The key that requests must contain; None accepts any."""
    turns: tuple[tuple[Act, ...], ...] = ()
    """The acts of one turn become parallel calls."""
    final: str = "Done: solution.py is written, and check.py has been run."
    thinking: bool = False
    provider: str = "Stub Provider"
    """The provider that answers behind the broker."""
    price: bool = True
    """Whether the broker reports what an answer costs."""
    answers: tuple[str, ...] = ()
    """Texts of the answers to requests without tools, in order; the last one again and again."""
    length: int = 0
    """Turns of the session, however often its history is shortened; 0: as many as the script has."""
    crowded: int = 0
    """Input tokens added to every answer of the script. Near a model's limit an agent CLI begins to shorten its history."""


def turns(solution: str, file: str, check: str, extra: Sequence[str], uses: Sequence[Use]) -> tuple[tuple[Act, ...], ...]:
    """A script that writes `solution` to `file`, runs `check` and the commands of `extra` in parallel, and then these tools."""
    return ((Write(file, solution),), (Run(check), *map(Run, extra)), *((use,) for use in uses))


def reply(request: ParsedRequest, plan: Plan, broker: bool, *, crowded: bool = True, number: int = 0) -> Reply:
    """The answer to a request. `crowded`: whether it reports the plan's further input tokens. `number`: answers before it."""
    acts: tuple[Act, ...] = ()
    if not request.side:
        loop: tuple[Act, ...] = (Run(f"echo {request.turn}"),) if plan.mode == "loop" else ()
        long: tuple[Act, ...] = (Run(f"seq {request.turn}000 {request.turn}400"),) if request.turn < plan.length - 1 else ()
        acts = plan.turns[request.turn] if request.turn < len(plan.turns) else loop or long
    text = plan.final if not acts else "Working on it."
    if request.side:
        bare = plan.answers[min(number, len(plan.answers) - 1)] if plan.answers else ""
        text = (
            bare or SUMMARY
            if request.compacts or bare
            else "a title"
            if request.schema is None
            else gemini.document(request.schema)
        )
    ending = ENDINGS.get(plan.mode, "") if later(request) else ""
    return Reply(
        model=f"{request.model}-other" if plan.mode == "other_model" else request.model,
        text=text,
        tokens=tokens(request, plan, crowded=crowded),
        calls=() if ending else calls(acts, request.tools),
        thinking=THINKING if plan.thinking and (plan.answers or not request.side) else "",
        provider=None if not broker else "Another Provider" if plan.mode == "other_provider" else plan.provider,
        cost_usd=round(PRICE_USD * (request.turn + 1), 6) if broker and plan.price else None,
        id=secrets.token_hex(8),
        metered=request.metered,
        ending=ending,
    )


def tokens(request: ParsedRequest, plan: Plan, *, crowded: bool) -> Tokens:
    """The tokens that the answer reports."""
    if request.side:
        return SIDE_TOKENS
    scripted = TOKENS[min(request.turn, len(TOKENS) - 1)]
    return replace(scripted, input=scripted.input + plan.crowded * crowded)


def later(request: ParsedRequest) -> bool:
    """Whether a request is of the second turn or a later one."""
    return request.turn >= 1 and not request.side


def breaks(request: ParsedRequest, plan: Plan) -> bool:
    """Whether the mode breaks this answer off."""
    return plan.mode in ("cut", "early", "hang") and later(request)


def error(request: ParsedRequest, plan: Plan, api: str, *, broke: bool) -> Error | None:
    """The error that the mode gives this request; None: it is answered. `broke`: whether one has had it before."""
    due = (broke and plan.mode in LASTING) or (later(request) and not (plan.mode in ("hiccup", "context") and broke))
    return LATER.get(plan.mode, {}).get(api) if due else None
