"""The agent CLIs, run by `arena run` against the stub instead of a provider."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from command import Arena, copy
from stub import NAIVE, Stub, started

from arena import catalog, paths
from arena.agents import install
from arena.errors import UsageError

CANARY = "sk-canary-7d1f40c2b95e48a3"
"""The provider's real key, as far as arena knows. No sandbox, transcript, record or message may ever hold it."""
KEY_NAME = "ARENA_STUB_KEY"
SMALL = "solution = None\n"
"""A solution that the judge rejects at once."""
UNSCORED = ("--check", "true", "--file", "notes.py")
"""Words for the stub's command line: it writes no solution, for runs whose score does not matter, in half of the time."""


@dataclass(frozen=True)
class Agent:
    """One harness with one of its models."""

    harness: str
    model: str
    id: str
    effort: str
    """As in the ledger: what the request really contained."""
    subagent: tuple[str, str] = ("", "")
    """The tool that starts another agent, and its arguments; empty where there is none."""
    ends_by: tuple[str, ...] = ()
    """Words for the stub's command line that end the session, for a CLI that no final text ends."""


def _explorer(tool: str, **arguments: str) -> tuple[str, str]:
    return tool, json.dumps({"description": "look", "prompt": "Look around."} | arguments)


AGENTS = {
    agent.harness: agent
    for agent in (
        Agent("claude", "claude-opus-4-7", "claude-opus-4-7", "max", _explorer("Agent", subagent_type="Explore", model="haiku")),
        Agent("codex", "gpt-5.5", "gpt-5.5", "xhigh"),
        Agent("opencode", "glm-5.1", "z-ai/glm-5.1", "high", _explorer("task", subagent_type="explore")),
        Agent("kimi", "kimi-k2.6-moonshot", "kimi-k2.6", "high", _explorer("Agent", subagent_type="explore")),
        Agent(
            "gemini",
            "gemini-3.1-pro",
            "gemini-3.1-pro-preview",
            "HIGH",
            ("invoke_agent", json.dumps({"agent_name": "cli_help", "prompt": "Look around."})),
        ),
        Agent("qwen", "qwen3.8-max-qwen-code", "qwen/qwen3.8-max-0902", "high", _explorer("agent", subagent_type="Explore")),
        Agent(
            "copilot",
            "claude-opus-5-5-copilot",
            "claude-opus-5-5",
            "max",
            ("task", json.dumps({"agent_type": "explore", "name": "look", "description": "look", "prompt": "Look around."})),
        ),
        Agent(
            "goose",
            "claude-opus-5-5-goose",
            "claude-opus-5-5",
            "max",
            ("delegate", json.dumps({"instructions": "Look around."})),
        ),
        Agent(
            "mini",
            "glm-5.3-mini",
            "z-ai/glm-5.3",
            "high",
            ends_by=("--use", "bash", json.dumps({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})),
        ),
    )
}
ANSWERS_AS = {"qwen": "Alibaba"}
"""The broker's name for the provider to which a harness's model is pinned, where it is not Z.AI."""


def missing(harness: str) -> str | None:
    """Why the harness's CLI cannot run, or None."""
    try:
        install.installed(catalog.harness(harness))
    except UsageError as error:
        return str(error).splitlines()[0]
    return None


def routes(url: str) -> dict[str, Any]:
    """The user's own routes, all of which lead to the stub."""

    def route(api: str, path: str, **more: object) -> dict[str, Any]:
        return {"title": "stub", "apis": [api], "base_url": url + path, "key": KEY_NAME} | more

    return {
        "schema_version": 1,
        "routes": {
            "anthropic": route("anthropic", "/v1", prices="anthropic"),
            "openai": route("responses", "/v1", prices="openai"),
            "openrouter": route("chat", "/api/v1", prices="openrouter", broker=True),
            "moonshot": route("chat", "/v1", prices="moonshotai"),
            "google": route("gemini", "/v1beta", prices="google"),
            "own": route("chat", "/v1"),
        },
    }


@dataclass(frozen=True)
class Played:
    """The results of one `arena run`."""

    annotation: dict[str, Any]
    folder: Path
    """The run folder."""
    arena: Arena
    output: str
    """Everything that arena printed."""
    stub: Stub

    @property
    def session(self) -> dict[str, Any]:
        session: dict[str, Any] = self.annotation["session"]
        return session

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The trajectory."""
        return [json.loads(line) for line in (self.folder / "trajectory.jsonl").read_text().splitlines()]


@contextmanager
def against_a_stub(folder: Path, *words: str, solution: Path = NAIVE) -> Iterator[tuple[Arena, Stub, dict[str, str]]]:
    """A copy of arena, a running stub that wants the canary for a key, and the variables that connect them."""
    arena = copy(folder)
    arena.one_shape()
    with started(folder / "stub.jsonl", "--key", CANARY, *words, solution=solution) as stub:
        (folder / "routes.yaml").write_text(yaml.safe_dump(routes(stub.url)))
        env = {"ARENA_ROUTES": str(folder / "routes.yaml"), "ARENA_CLI": str(paths.cli()), KEY_NAME: CANARY}
        yield arena, stub, env


def play(
    folder: Path,
    agent: Agent,
    words: tuple[str, ...],
    *stub_words: str,
    solution: Path = NAIVE,
    edits: Mapping[str, tuple[str, str]] = {},
) -> Played:
    """One `arena run` of that agent with `words` added, against a stub with `stub_words` added.

    `edits`: by harness, a text of its YAML and what replaces it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ("run", "--problem", "paged_attention", "--hardware", "cpu", "--model", f"{agent.harness}/{agent.model}", "--json")
    provider = ("--provider", ANSWERS_AS.get(agent.harness, "Z.AI"))
    ends_by = () if "loop" in stub_words else agent.ends_by
    with against_a_stub(folder, *provider, *stub_words, *ends_by, solution=solution) as (arena, stub, env):
        for name, (old, new) in edits.items():
            file = arena.tree / "harnesses" / f"{name}.yaml"
            file.write_text(file.read_text().replace(old, new))
        done = arena(*command, *words, env=env, limit_s=280)
        assert done.code in (0, 1) and done.out, (done.code, done.err)
        (annotation,) = json.loads(done.out)
        (run,) = arena.runs
        return Played(annotation, run, arena, done.out + done.err, stub)


def holders(folder: Path, word: str) -> list[str]:
    """Files below a folder that contain a word."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if path.is_file() and not path.is_symlink() and word.encode() in path.read_bytes():
                found.append(str(path.relative_to(folder)))
    return found
