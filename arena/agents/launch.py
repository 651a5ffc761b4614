"""How an agent is started: its CLI, command, variables, files and limits, resolved once before the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import jinja2

from arena.agents import install
from arena.agents.install import InstalledCli
from arena.agents.select import SelectedModel, launch_api, launch_effort
from arena.agents.trajectory import Read, reader
from arena.errors import DataError, Faults, UsageError
from arena.gateway.config import GATEWAY_URL
from arena.gateway.routes import route
from arena.sandboxes import Limits, SandboxSpec
from arena.sandboxes.limits import limits_for
from arena.schema import Harness

REPLAY = "/run/arena/tape.json"
"""Where `harnesses/builtin.py` finds the steps that it plays inside the sandbox."""
KEY = "{key}"
"""Stands for the run's own key until the gateway has made one."""
PromptBy = Literal["stdin", "argument", "file"]
TEMPLATES = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)


@dataclass(frozen=True)
class Launch:
    """What the agent's sandbox starts with. `{key}` in a text stands for the run's own key."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    home: Mapping[str, bytes] = field(default_factory=dict)
    """Path below HOME -> content."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path inside the sandbox -> content, read-only."""
    cli: InstalledCli | None = None
    """The installed agent CLI; None for a harness that needs none."""
    limits: Limits = field(default_factory=Limits)
    """Of the agent's sandbox on this machine."""
    read_events: Read = lambda event: []
    """Reads one JSON line of the agent's output into steps."""
    login_of: Harness | None = None
    """Whose login files each start copies into HOME: read anew each time, since the CLI outside renews them. None: no login."""

    def sandbox_spec(
        self, prompt_by: PromptBy, workspace: Path, prompt: str, *, key: str = "", gpu: int | None = None
    ) -> SandboxSpec:
        """The agent's sandbox. `key` is the run's own, `gpu` the number of the device node that the agent may use."""
        command = tuple(word.replace(KEY, key) for word in self.command)
        login = login_files(self.login_of) if self.login_of else {}
        return SandboxSpec(
            kind="agent",
            command=(*command, prompt) if prompt_by == "argument" else command,
            workspace=workspace,
            files=self.files,
            home={path: content.replace(KEY.encode(), key.encode()) for path, content in self.home.items()} | login,
            binds={} if self.cli is None else {install.INSIDE: self.cli.folder},
            path=() if self.cli is None else tuple(f"{install.INSIDE}/{name}" for name in (install.NPM_BIN, install.BIN)),
            env={name: value.replace(KEY, key) for name, value in self.env.items()},
            stdin=prompt.encode() if prompt_by == "stdin" else b"",
            gpu=gpu,
            limits=self.limits,
        )


def resolve_launch(
    selected: SelectedModel, folder: Path, *, login: bool = False, replay: bytes | None = None, parallel: int = 1
) -> Launch:
    """Find the harness's CLI, fill in its command, variables and templates, and load its reader of events.

    Args:
        selected: the harness and its model.
        folder: where the harness's own files lie.
        login: use the login of the person who runs arena, and no gateway.
        replay: the steps that a built-in model plays.
        parallel: sessions at once that share the machine's memory.

    Raises:
        ArenaError: the CLI, the login or the effort is missing, or a template is wrong; every fault at once.
    """
    harness, faults = selected.harness, Faults()
    events = folder / harness.events if harness.events else None
    cli = faults.collect(lambda: install.installed(harness))
    limits = faults.collect(lambda: limits_for("agent", harness.limits, parallel=parallel))
    read_events = faults.collect(lambda: reader(events, harness.terminal_event))
    rendered = faults.collect(lambda: _rendered(selected, folder, login=login, replay=replay))
    if login:
        faults.collect(lambda: login_files(harness))  # only to refuse now what a start would lack
    faults.raise_all()
    assert limits and read_events and rendered
    return replace(rendered, cli=cli, limits=limits, read_events=read_events)


def _rendered(selected: SelectedModel, folder: Path, *, login: bool, replay: bytes | None) -> Launch:
    """Command, variables and files. UsageError, DataError."""
    harness, model = selected.harness, selected.model
    values = {"model": selected.model_name, "id": model.id or selected.model_name, "effort": launch_effort(selected)}
    values["gateway"] = GATEWAY_URL if model.route is not None and not login else ""
    values["api"] = launch_api(selected) or ""
    values |= {"turns": str(selected.turns or ""), "profile": "true" if selected.profile else "false"}
    needs_gateway = [name for name, value in harness.env.items() if "{gateway}" in value or KEY in value]
    files = {inside: (folder / name).read_bytes() for inside, name in harness.files.items()}
    home = {path: _home_file(harness, path, text, values, selected) for path, text in harness.home.items()}
    return Launch(
        command=tuple(_filled(word, values) for word in harness.command),
        env={name: _filled(value, values) for name, value in harness.env.items() if not (login and name in needs_gateway)},
        home=home,
        login_of=harness if login else None,
        files=files if replay is None else files | {REPLAY: replay},
    )


def login_files(harness: Harness) -> dict[str, bytes]:
    """What a harness's CLI keeps of the login, read from the user's HOME. UsageError when it is not there."""
    if harness.login is None:
        raise UsageError(f"harness {harness.name} has no login: leave --login out, and give it a key")
    try:
        return {path: (Path.home() / path).read_bytes() for path in harness.login.files}
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}: log in with {harness.title} first, outside arena") from None


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with each `{name}` of `values` replaced; other braces stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _home_file(harness: Harness, path: str, text: str, values: Mapping[str, str], selected: SelectedModel) -> bytes:
    """A file of HOME from its template. DataError."""
    model = selected.model
    broker = model.route is not None and route(model.route).broker
    try:
        key = KEY if values["gateway"] else ""
        return TEMPLATES.from_string(text).render(**values, key=key, provider=list(model.provider), broker=broker).encode()
    except jinja2.TemplateError as error:
        raise DataError(f"harness {harness.name}: home.{path}: {error}") from None
