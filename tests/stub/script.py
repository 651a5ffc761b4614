"""The stub's script: a fixed list of turns, and their translation into calls of the tools that a request offers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .failures import Ending

Shape = Literal["function", "free", "code"]
"""How a request calls a tool: with JSON arguments; with one text; with a JavaScript program that calls other tools (codex)."""
WRITERS = re.compile(r"write|write_?file|create_file", re.IGNORECASE)
SHELLS = re.compile(r"bash|shell|exec_command|shell_command|run_shell_command|run_command", re.IGNORECASE)
COMPACTION = re.compile(
    r"create a detailed summary of the conversation|CONTEXT CHECKPOINT COMPACTION|generate the <state_snapshot>"
    r"|(create|update)[a-z ]* anchored summary|prompt for continuing our conversation|create a handoff summary",
    re.IGNORECASE,
)
"""What the last message of a request says that asks for a summary: one phrase for each agent CLI."""
PATIENCE_MS = 120_000
"""The wait for a shell tool that would otherwise answer before its command has ended."""


@dataclass(frozen=True)
class Write:
    """Write a file of the workspace."""

    path: str
    text: str


@dataclass(frozen=True)
class Run:
    """Run a shell command in the workspace."""

    command: str


@dataclass(frozen=True)
class Use:
    """Call the tool of that name, whatever it does."""

    tool: str
    arguments: dict[str, Any]


Act = Write | Run | Use


@dataclass(frozen=True)
class Tokens:
    """Usage of one answer, in disjoint parts."""

    input: int
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


TOKENS = (Tokens(800, 200, 64, 40, 10), Tokens(300, 900, 32, 35, 5), Tokens(200, 1100, 0, 30, 0), Tokens(150, 1300, 16, 25, 3))
"""Usage by turn; later turns cost as much as the last one."""
SIDE_TOKENS = Tokens(10, output=5)
"""Usage of requests beside the conversation, such as one for a title."""


@dataclass(frozen=True)
class Tool:
    """One tool that a request offers."""

    name: str
    schema: Mapping[str, Any]
    shape: Shape = "function"


@dataclass(frozen=True)
class Call:
    """One call in an answer; `arguments` are text where the tool takes text."""

    id: str
    name: str
    arguments: dict[str, Any] | str
    shape: Shape


@dataclass(frozen=True)
class ParsedRequest:
    """A parsed request, of any API."""

    model: str
    tools: tuple[Tool, ...]
    turn: int
    """Rounds of tool results that it already contains."""
    stream: bool
    schema: Mapping[str, Any] | None = None
    """Schema of the JSON document that it wants as the answer."""
    metered: bool = True
    """Whether a stream must end with a usage record."""
    compacts: bool = False
    """Whether it asks for a summary in place of its history."""

    @property
    def side(self) -> bool:
        """Whether it is beside the work: it asks for a summary, or offers no tool to work with, like a request for a title."""
        return self.compacts or not any(tool.shape == "code" or SHELLS.fullmatch(tool.name) for tool in self.tools)


@dataclass(frozen=True)
class Reply:
    """One answer, for any API."""

    model: str
    text: str
    tokens: Tokens
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    provider: str | None = None
    """As a broker reports it."""
    cost_usd: float | None = None
    id: str = ""
    metered: bool = True
    ending: Ending = ""
    """Other than by its content; such an answer calls nothing."""


def calls(acts: Sequence[Act], tools: Sequence[Tool]) -> tuple[Call, ...]:
    """The acts as calls of these tools."""
    return tuple(call(act, tools) for act in acts)


def call(act: Act, tools: Sequence[Tool]) -> Call:
    """One act as a call of a tool that can do it."""
    number = f"call_{secrets.token_hex(8)}"
    if isinstance(act, Use):
        return Call(number, act.tool, act.arguments, "function")
    by_name = {tool.name: tool for tool in tools}
    if code := next((tool for tool in tools if tool.shape == "code"), None):
        return Call(number, code.name, javascript(act), "code")
    if isinstance(act, Write):
        if writer := next((tool for tool in tools if WRITERS.fullmatch(tool.name)), None):
            known: dict[str, Any] = {"path|file_?name": f"/workspace/{act.path}", "content|text": act.text}
            return Call(number, writer.name, filled(writer.schema, known), "function")
        if patcher := by_name.get("apply_patch"):
            text = patch(act)
            return Call(number, patcher.name, text if patcher.shape == "free" else {"input": text}, patcher.shape)
        act = Run(f"cat > {act.path} <<'END OF FILE'\n{act.text}END OF FILE")
    shell = next(tool for tool in tools if SHELLS.fullmatch(tool.name))
    known = {"^(cmd|commands?)$": act.command, "description": "one step", "yield_time_ms": PATIENCE_MS}
    return Call(number, shell.name, filled(shell.schema, known), "function")


def javascript(act: Write | Run) -> str:
    """The act as a JavaScript program, for a tool that runs programs."""
    if isinstance(act, Write):
        return f"text(await tools.apply_patch({quoted(patch(act))}));"
    return f"text(await tools.exec_command({{cmd: {quoted(act.command)}, yield_time_ms: {PATIENCE_MS}}}));"


def quoted(text: str) -> str:
    """A JavaScript string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def patch(act: Write) -> str:
    """A new file in the form of codex's apply_patch."""
    added = "".join(f"+{line}\n" for line in act.text.splitlines())
    return f"*** Begin Patch\n*** Add File: {act.path}\n{added}*** End Patch\n"


def filled(schema: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit a JSON schema: known values by the property's name; of the rest the required ones, by type."""
    arguments: dict[str, Any] = {}
    for name, kind in schema.get("properties", {}).items():
        value = next((value for pattern, value in known.items() if re.search(pattern, name, re.IGNORECASE)), None)
        if value is not None:
            arguments[name] = ["bash", "-lc", value] if kind.get("type") == "array" else value
        elif name in schema.get("required", ()):
            arguments[name] = kind["enum"][0] if kind.get("enum") else EMPTY.get(str(kind.get("type")).lower(), lambda: "x")()
    return arguments


EMPTY: Mapping[str, Callable[[], Any]] = {
    "integer": lambda: 1,
    "number": lambda: 1,
    "boolean": lambda: False,
    "array": list,
    "object": dict,
}
