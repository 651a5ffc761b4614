"""An agent's box: its command, variables, home and program, with everything filled in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2

from arena.agents import install
from arena.catalog import SelectedModel
from arena.errors import DataError, UsageError
from arena.gateway.routes import route
from arena.sandboxes import Limits, SandboxSpec
from arena.schema import Harness

TAPE = "/run/arena/tape.json"
"""Where `harnesses/builtin.py` finds its tape inside the sandbox."""
TEMPLATES = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)


def agent_box(
    chosen: SelectedModel,
    workspace: Path,
    prompt: str,
    *,
    folder: Path,
    limits: Limits,
    gateway: str = "",
    key: str = "",
    login: bool = False,
    tape: bytes | None = None,
    gpu: int | None = None,
) -> SandboxSpec:
    """The box in which this model's harness is started. `folder` holds the harness's files. UsageError, DataError.

    With `login` its program uses the login of the person who runs arena.
    """
    harness = chosen.harness
    words = words_of(chosen) | {"gateway": gateway, "key": key}
    found = install.found(harness)
    command = tuple(filled(word, words) for word in harness.command)
    files = {inside: (folder / name).read_bytes() for inside, name in harness.files.items()}
    return SandboxSpec(
        kind="agent",
        command=(*command, prompt) if harness.prompt == "argument" else command,
        workspace=workspace,
        files=files if tape is None else files | {TAPE: tape},
        home={path: rendered(harness, path, text, words, chosen) for path, text in harness.home.items()}
        | (logged_in(harness) if login else {}),
        binds={} if found is None else {install.INSIDE: found.folder},
        path=() if found is None else (f"{install.INSIDE}/{install.BIN}",),
        env={
            name: filled(value, words)
            for name, value in harness.env.items()
            if not (login and ("{gateway}" in value or "{key}" in value))
        },
        stdin=prompt.encode() if harness.prompt == "stdin" else b"",
        gpu=gpu,
        limits=limits,
    )


def logged_in(harness: Harness) -> dict[str, bytes]:
    """What a harness's program keeps of the login, from our own HOME. UsageError when it is not there."""
    if harness.login is None:
        raise UsageError(f"harness {harness.name} knows no login: leave --login out, and give it a key")
    try:
        return {path: (Path.home() / path).read_bytes() for path in harness.login.files}
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}: log in with {harness.title} first, outside arena") from None


def words_of(chosen: SelectedModel) -> dict[str, str]:
    """What stands for `{model}`, `{id}` and `{effort}`. UsageError when an effort is needed and none is known."""
    harness, effort = chosen.harness, chosen.model.effort
    if effort is None and takes_effort(harness):
        raise UsageError(
            f"harness {harness.name} is started with an effort, and model {chosen.model_name} names none: give --effort"
        )
    if effort is not None and harness.efforts and effort not in harness.efforts:
        raise UsageError(f"harness {harness.name} has no effort {effort!r} (it has {', '.join(harness.efforts)})")
    written = "" if effort is None else harness.efforts.get(effort, effort)
    return {"model": chosen.model_name, "id": chosen.model.id or chosen.model_name, "effort": written}


def takes_effort(harness: Harness) -> bool:
    """Whether anything of the harness is filled in with an effort."""
    texts = (*harness.command, *harness.env.values())
    return any("{effort}" in text for text in texts) or any("effort" in text for text in harness.home.values())


def keeps_pins(harness: Harness) -> bool:
    """Whether anything of the harness says who may answer."""
    return any(word in text for text in harness.home.values() for word in ("{{ provider", "if provider"))


def _broker(chosen: SelectedModel) -> bool:
    """Whether the model's route passes requests on."""
    return chosen.model.route is not None and route(chosen.model.route).broker


def filled(text: str, words: Mapping[str, str]) -> str:
    """A word of a command, or a variable's value, with `{name}` replaced; other braces stay."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def rendered(harness: Harness, path: str, text: str, words: Mapping[str, str], chosen: SelectedModel) -> bytes:
    """A file of HOME from its template. DataError."""
    try:
        template = TEMPLATES.from_string(text)
        return template.render(**words, provider=list(chosen.model.provider), broker=_broker(chosen)).encode()
    except jinja2.TemplateError as error:
        raise DataError(f"harness {harness.name}: home.{path}: {error}") from None
