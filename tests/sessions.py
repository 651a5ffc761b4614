"""Sessions of fake agents: a harness that is a shell or Python script, and the RunSpec that plays it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from arena import catalog, paths
from arena.agents import session
from arena.agents.gpu_commands import Turns
from arena.agents.launch import resolve_launch
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import SelectedModel
from arena.gateway.network import Network
from arena.results.run_folder import RunFolder
from arena.sandboxes import bwrap
from arena.schema import Harness, Model, Session

DONE = """import json; print(json.dumps({"type": "end"}), flush=True)\n"""
"""Python that reports the end of the session."""


def agent(*command: str, **given) -> SelectedModel:
    """A harness whose command line is the agent."""
    entry = {
        "schema_version": 1,
        "name": "fake",
        "title": "fake",
        "command": command,
        "terminal_event": {"type": "end"},
        "models": {"m": {}},
    }
    return SelectedModel(Harness.model_validate(entry | given), "m", Model(effort="high"), "")


def python(program: str, **given) -> SelectedModel:
    """A harness whose command is a Python program."""
    return agent("python", "-c", textwrap.dedent(program), **given)


def spec_of(
    selected: SelectedModel,
    budget_s: float = 30,
    *,
    network: Network = Network(),  # noqa: B008  frozen
    harness_folder: Path | None = None,
    replay: bytes | None = None,
    leased: Turns | None = None,
    **times: Any,
) -> RunSpec:
    """The plan of a session on this CPU without a model; the canary stands for its problem."""
    return RunSpec(
        selected=selected,
        launch=resolve_launch(selected, harness_folder or paths.harnesses(), replay=replay),
        problem=catalog.problem("canary", paths.canary().parent),
        hardware=catalog.hardware("cpu"),
        gpu=0,
        times=TimeLimits(budget_s, **times),
        sandbox_name="bwrap",
        sandbox=bwrap,
        network=network,
        access=None,
        leased=leased,
    )


def play(selected: SelectedModel, run: RunFolder, prompt: str = "Write a kernel.\n", report=lambda _: None, **given) -> Session:
    """The session of a fake agent; `given` goes to `spec_of`."""
    return session.play(spec_of(selected, **given), run, prompt, report=report).session
