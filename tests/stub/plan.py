"""The stub's behaviour: pure functions from a request to its answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from . import gemini
from .script import SIDE_TOKENS, TOKENS, Act, ParsedRequest, Reply, Run, Tokens, Use, Write, calls

Mode = Literal[
    "ok",
    "401",
    "429",
    "500",
    "529",
    "no_credit",
    "cut",
    "early",
    "loop",
    "hang",
    "unknown_model",
    "other_provider",
    "other_model",
]
MODES: tuple[Mode, ...] = get_args(Mode)
"""ok             the script, to its end
401, 429, 500, 529  that status for every request of an answer
no_credit      from the second turn on each API's own words for an account without credit
cut            from the second turn on the stub breaks the connection within the answer
early          from the second turn on the stream ends as it should, but with neither a reason nor a usage record
loop           another call of a tool after the script, for ever
hang           from the second turn on nothing follows the headers
unknown_model  404, as for a model that is not there
other_provider, other_model  the answer names another provider or another model"""
FAILURES: dict[Mode, tuple[int, str]] = {
    "401": (401, "the stub takes no such key"),
    "429": (429, "the stub has had enough requests"),
    "500": (500, "the stub has failed"),
    "529": (529, "the stub has too much to do"),
    "unknown_model": (404, "the stub has no such model"),
}
NO_CREDIT: dict[str, tuple[int, dict[str, Any]]] = {
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."},
        },
    ),
    "responses": (
        429,
        {
            "error": {
                "message": "You exceeded your current quota.",
                "type": "insufficient_quota",
                "code": "credit_balance_exhausted",
            }
        },
    ),
    "chat": (402, {"error": {"message": "Insufficient credits.", "code": 402}}),
    "gemini": (
        402,
        {"error": {"code": 402, "message": "Your prepayment credits are depleted.", "status": "RESOURCE_EXHAUSTED"}},
    ),
}
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


def turns(solution: str, check: str, extra: Sequence[str], uses: Sequence[Use]) -> tuple[tuple[Act, ...], ...]:
    """A script that writes `solution`, runs the command `check` and those of `extra` in parallel, and then these tools."""
    return ((Write("solution.py", solution),), (Run(check), *map(Run, extra)), *((use,) for use in uses))


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
    return Reply(
        model=f"{request.model}-other" if plan.mode == "other_model" else request.model,
        text=text,
        tokens=tokens(request, plan, crowded=crowded),
        calls=calls(acts, request.tools),
        thinking=THINKING if plan.thinking and (plan.answers or not request.side) else "",
        provider=None if not broker else "Another Provider" if plan.mode == "other_provider" else plan.provider,
        cost_usd=round(PRICE_USD * (request.turn + 1), 6) if broker and plan.price else None,
        id=secrets.token_hex(8),
        metered=request.metered,
    )


def tokens(request: ParsedRequest, plan: Plan, *, crowded: bool) -> Tokens:
    """The tokens that the answer reports."""
    if request.side:
        return SIDE_TOKENS
    scripted = TOKENS[min(request.turn, len(TOKENS) - 1)]
    return replace(scripted, input=scripted.input + plan.crowded * crowded)


def ends_badly(request: ParsedRequest, plan: Plan) -> bool:
    """Whether the mode breaks this answer."""
    return plan.mode in ("cut", "early", "hang") and request.turn >= 1 and not request.side
