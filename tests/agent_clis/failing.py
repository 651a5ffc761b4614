"""Runs of each agent CLI against a provider that fails in each of the stub's ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import AGENTS, UNSCORED, play

PATIENCE_S = 8
BUDGETS_S = {"loop": 20, "hang": 20}
BUDGET_S = 90

FAILURES = {
    "401": "every request is refused for its key",
    "429": "every request comes too soon (retry-after: 1)",
    "500": "the provider fails at every request",
    "529": "the provider is overloaded at every request",
    "no_credit": "from the second turn on the account has no credit, in the words of each interface",
    "overload": "from the second turn on an overload inside the answer",
    "hiccup": "the same once; every other request is answered",
    "no_provider": "from the second turn on a broker has no provider of the pin (404)",
    "policy": "from the second turn on its policy refuses the request, in the words of each interface",
    "filter": "from the second turn on a filter ends the answer",
    "context": "from the second turn on the model's context is full, until the agent shortens it",
    "output": "from the second turn on the limit on one answer cuts it",
    "cut": "from the second turn on the connection breaks within the answer",
    "early": "from the second turn on the stream ends without a finish reason",
    "loop": "calls of tools without end",
    "hang": "from the second turn on nothing follows the headers",
    "unknown_model": "404 at every request",
    "other_model": "another model answers; with opencode also another provider",
}
"""Failure, by the stub's mode: what the provider does."""
EXPECTED = {failure: {"provider_error"} for failure in FAILURES} | {
    "hiccup": {"complete"},
    "policy": {"refused"},
    "filter": {"refused"},
    "context": {"complete", "crashed"},
    "output": {"complete", "crashed"},
    "loop": {"deadline", "crashed"},
    "hang": {"deadline"},
}
"""How such a run may end. A loop is noticed after 200 answers, where the CLI is quick enough for so many."""
LIMITS = {"context": "context", "output": "output"}
"""What the record then says of the model's last answer, where the agent did not complete."""
NO_BROKER = ("claude", "codex", "kimi", "gemini", "copilot", "goose")
CANNOT_HAPPEN = {("mini", "early")} | {(harness, "no_provider") for harness in NO_BROKER}
"""mini-SWE-agent asks for whole answers, not for streams, so none ends early. The others have the vendor's own route."""


def budget_s(harness: str, failure: str) -> int:
    """The budget of such a run. mini-SWE-agent asks ten times over minutes, also after a refusal."""
    return 30 if (harness, failure) in (("mini", "policy"), ("mini", "context")) else BUDGETS_S.get(failure, BUDGET_S)


@dataclass(frozen=True)
class Outcome:
    """How one run ended."""

    status: str
    exit_code: int | None
    seconds: float
    requests: int
    """Requests that reached the provider."""
    message: str
    limit: str | None
    """What cut the model's last answer."""

    def cell(self) -> str:
        """A cell of the table."""
        code = "killed" if self.exit_code is None else f"exit {self.exit_code}"
        limit = f" ({self.limit})" if self.limit else ""
        return f"{self.status}{limit}, {code}, {self.seconds:.0f} s, {self.requests}"


def run_against_failure(folder: Path, harness: str, failure: str) -> Outcome:
    """One run against a stub that fails in this way."""
    limits = ("--budget", f"{budget_s(harness, failure)}s", "--patience", "60s" if failure == "hiccup" else f"{PATIENCE_S}s")
    mode = "other_provider" if (harness, failure) == ("opencode", "other_model") else failure
    played = play(folder, AGENTS[harness], limits, "--mode", mode, *UNSCORED)
    session: dict[str, Any] = played.session
    return Outcome(
        session["agent_status"],
        session["exit_code"],
        session["elapsed_s"],
        len(played.stub.requests()),
        session["message"],
        session["limit_reached"],
    )
