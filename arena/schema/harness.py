"""`harnesses/<name>.yaml`, and the routes to the models: who is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, field_validator, model_validator

from arena.schema import version_1
from arena.schema.common import Name, Record
from arena.schema.limits import Limits

Api = Literal["anthropic", "responses", "chat", "gemini"]
"""How a model is spoken to: Anthropic Messages, OpenAI Responses, OpenAI chat completions, Gemini generateContent."""


class Route(Record):
    """One way to a provider of models. Only the gateway, outside every sandbox, uses it."""

    title: str
    apis: tuple[Api, ...] = Field(min_length=1)
    base_url: str
    """With the version, such as `https://openrouter.ai/api/v1`: what follows is one of the interface's own paths."""
    key: str | None
    """Name of the environment variable, or of the file among the keys, that holds the key; None where no key is needed."""
    bearer: bool = False
    """Whether it goes as `Authorization: Bearer` even where the interface has a header of its own, as copies of it often want."""
    prices: str | None = None
    """The provider's name in the price table of genai-prices; None: the cost stays unknown."""
    broker: bool = False
    """Whether this route forwards each request to one of several providers: a model on it must name those it may use."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*[^\s?#/])?", url):
            raise ValueError(f"{url!r}: give http(s)://host[:port][/path], without a slash at the end")
        return url


class Routes(Record):
    """`arena/gateway/routes.yaml`, and a file of the user's own."""

    schema_version: Literal[2]
    routes: Mapping[Name, Route]

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: object) -> object:
        return version_1.routes(data)


class Cli(Record):
    """The agent's program, installed by npm into a folder of its own and shown read-only at /opt/cli in the sandbox."""

    packages: tuple[str, ...] = Field(min_length=1)
    """What to install, each `name@version`; the first is the program's own."""
    program: str
    """Its name in `node_modules/.bin`."""
    versions: str
    """Which versions of the first package arena knows how to drive, such as `>=2.1,<3`."""

    @field_validator("packages")
    @classmethod
    def _are_named_with_their_version(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for package in packages:
            if not re.fullmatch(r"(@[\w.-]+/)?[\w.-]+@[\w.+-]+", package):
                raise ValueError(f"{package!r}: give name@version, such as opencode-ai@1.18.33")
        return packages

    @field_validator("versions")
    @classmethod
    def _is_a_range(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier:
            raise ValueError(f"{versions!r}: give a range such as `>=2.1,<3`") from None
        return versions


class Login(Record):
    """How a program uses a person's own subscription instead of a key."""

    files: tuple[str, ...] = Field(min_length=1)
    """What it keeps of the login, as paths below HOME. The agent can read the copies in its sandbox."""
    hosts: tuple[str, ...] = Field(min_length=1)
    """Whom it must reach, as `--allow` has them."""


class Model(Record):
    """One model of a harness."""

    title: str = ""
    id: str | None = None
    """What the provider calls it; without it the model's own name."""
    route: Name | None = None
    """Which route leads to it (`arena list routes`); None: the harness needs no model."""
    provider: tuple[str, ...] = ()
    """On a broker's route: the providers that may answer, in this order, and no other."""
    effort: str | None = None
    plays: str | None = None
    """Built-in harness only: which of the problem's solutions it plays, `nothing`, or `run:{name}` for a stored run;
    `{name}` stands for what follows the slash of `--model`."""


class Harness(Record):
    """`harnesses/<name>.yaml`: how to start one agent's command line, and how to tell that it finished."""

    schema_version: Literal[1]
    name: Name
    """The file's stem; not written in the file."""
    title: str
    command: tuple[str, ...] = Field(min_length=1)
    """Argument list inside the sandbox, never a shell string. Filled in: `{model}` the model's name, `{id}` what its provider
    calls it, `{effort}`, `{gateway}` the address of the gateway, `{key}` this run's own key to it."""
    prompt: Literal["stdin", "argument", "file"] = "file"
    """How the prompt arrives: standard input, last argument, or only as PROMPT.md in the workspace."""
    env: Mapping[str, str] = {}
    """Variables of the agent; filled in as the command is."""
    files: Mapping[str, str] = {}
    """Read-only files inside the sandbox: absolute path -> file name beside this YAML."""
    home: Mapping[str, str] = {}
    """Files that its fresh HOME holds: path below HOME -> text, a Jinja2 template."""
    cli: Cli | None = None
    """None: the command needs nothing that is not in every sandbox."""
    api: Api | None = None
    """How it speaks to its model; None: it has none."""
    login: Login | None = None
    """None: it runs with a key only. Where `gateway` is empty, a session uses a login: variables with `{gateway}` or `{key}` are
    left out, and templates of `home` must do without."""
    efforts: Mapping[str, str] = {}
    """The efforts it knows -> how they are written in its command, variables or files; empty: any word, as it stands."""
    terminal_event: Mapping[str, str] | None = None
    """Keys and values of the JSON line on stdout that marks a finished session."""
    events: str | None = None
    """Python file beside this YAML whose `read(event)` understands the JSON lines on stdout; without it only `terminal_event`
    is looked for."""
    limits: Limits | None = None
    """What its box may use, where that differs from the defaults."""
    models: Mapping[str, Model] = Field(min_length=1)
    """By name; a name ending in `/*` stands for a family."""

    @field_validator("files")
    @classmethod
    def _absolute(cls, files: Mapping[str, str]) -> Mapping[str, str]:
        for path in files:
            if not path.startswith("/"):
                raise ValueError(f"{path!r}: a path inside the sandbox is absolute")
        return files
