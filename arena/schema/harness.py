"""`harnesses/<name>.yaml`, the routes to the models, and the limits of a sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, field_validator, model_validator

from arena.schema import version_1
from arena.schema.common import Count, Name, Positive, Record

Api = Literal["anthropic", "responses", "chat", "gemini"]
"""Model APIs: Anthropic Messages, OpenAI Responses, OpenAI chat completions, Gemini generateContent."""


class Allow(Record):
    """Names that a route's provider may get besides those in `arena/gateway/model/allowed.py`."""

    headers: tuple[str, ...] = ()
    """Header fields of requests."""
    fields: tuple[str, ...] = ()
    """Names at the top of a request's body."""
    parts: tuple[str, ...] = ()
    """Types of a message's parts; on the `gemini` interface names in them."""
    tools: tuple[str, ...] = ()
    """Types of tools. Only of tools that the agent's program carries out itself: any other acts outside the sandbox."""


class Route(Record):
    """The way to one provider of models. Only the gateway uses it, outside every sandbox."""

    title: str
    apis: tuple[Api, ...] = Field(min_length=1)
    base_url: str
    """Address with the version, such as `https://openrouter.ai/api/v1`. The gateway appends the API's own paths."""
    key: str | None
    """Name of the environment variable or of the key file that holds the key. None: the route needs no key."""
    bearer: bool = False
    """Send the key as `Authorization: Bearer` although the API has its own header; compatible servers often need it."""
    prices: str | None = None
    """The provider's name in the price table of genai-prices. None: the cost stays unknown."""
    broker: bool = False
    """Whether the route is a broker, which forwards a request to one of many providers. Then a model must name its providers."""
    allow: Allow = Allow()
    """What may go out besides what the interface allows."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*[^\s?#/])?", url):
            raise ValueError(f"{url!r}: give http(s)://host[:port][/path], without a slash at the end")
        return url


class Routes(Record):
    """`arena/gateway/routes.yaml`, and the user's own routes file."""

    schema_version: Literal[2]
    routes: Mapping[Name, Route]

    _read_version_1 = model_validator(mode="before")(version_1.routes)


class AccountFault(Record):
    """One way in which a provider says that the user's account is at fault, and not the request."""

    apis: tuple[Api, ...] = ()
    """Interfaces whose answers show it; empty: all."""
    status: int
    """Of the answer."""
    code: str | None = None
    """A name in a field of the error that the provider alone sets. None: the status says it all."""
    phrase: str = ""
    """How the provider's message begins, where no name tells the fault from a bad request."""
    remedy: str
    """What is wrong, and what the user should do."""
    source: str
    """Where the answer is documented or was seen."""


class AccountFaults(Record):
    """`arena/gateway/account_faults.yaml`."""

    schema_version: Literal[1]
    faults: tuple[AccountFault, ...]
    limits: tuple[str, ...]
    """Names of failures that the agent's own traffic may have caused, besides status 429."""


class Download(Record):
    """A program that lies at an address: an archive (tar or zip), or the program itself."""

    name: str
    version: str
    url: str = Field(pattern=r"^https?://[^\s]+$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of what lies there. Arena keeps nothing that differs."""


class Cli(Record):
    """The agent's CLI. It has a folder of its own, which the sandbox shows read-only at /opt/cli."""

    packages: tuple[str | Download, ...] = Field(min_length=1)
    """npm packages as `name@version`, Python packages as `pip:name@version`, and downloads; the first is the CLI itself."""
    program: str
    """The command that the first package installs; of a download the file of that name in it."""
    versions: str
    """Versions of the first package that arena supports, such as `>=2.1,<3`."""

    @field_validator("packages")
    @classmethod
    def _are_named_with_their_version(cls, packages: tuple[str | Download, ...]) -> tuple[str | Download, ...]:
        for package in packages:
            if isinstance(package, str) and not re.fullmatch(r"(pip:|@[\w.-]+/)?[\w.-]+@[\w.+-]+", package):
                raise ValueError(f"{package!r}: give name@version, such as opencode-ai@1.18.33, or pip:name@version")
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
    """How a CLI uses a person's subscription instead of an API key."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of the login, as paths below HOME. The agent can read their copies in its sandbox."""
    hosts: tuple[str, ...] = Field(min_length=1)
    """Hosts that the CLI must reach, written as for `--allow`."""


class Model(Record):
    """One model of a harness."""

    title: str = ""
    id: str | None = None
    """The provider's name for the model. None: the same name as here."""
    answers_as: tuple[str, ...] = ()
    """Further names of the same model in answers, such as that of a snapshot: none of them counts as another model."""
    route: Name | None = None
    """The route to the model (`arena list routes`). None: the harness needs no model."""
    provider: tuple[str, ...] = ()
    """On a broker's route: the only providers that may answer, in order of preference."""
    effort: str | None = None
    plays: str | None = None
    """Built-in harness only: the solution of the problem that it replays, or several with ` then ` between them; `nothing`; or
    `run:{name}` for a stored run. `{name}` stands for the part of `--model` after the slash."""


class OwnModels(Record):
    """The user's own models file, `~/.config/arena/models.yaml`."""

    schema_version: Literal[1]
    models: Mapping[Name, Mapping[str, Model]]
    """Models by harness and name. They replace shipped ones of the same name."""


class Limits(Record):
    """The limits of a sandbox. A missing one defaults to `arena/sandboxes/limits.yaml`, or to no bound. MiB are 2^20 bytes."""

    memory_mib: Count | None = None
    """All memory of the sandbox, including its /tmp, home, /dev/shm and (as root) workspace."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same as a fraction of the memory that arena itself may use. With both, the smaller counts."""
    cpus: Positive | None = None
    """CPU time, in CPUs."""
    processes: Count | None = None
    """Threads count."""
    open_files: Count | None = None
    file_mib: Count | None = None
    """The largest single file."""
    tmp_mib: Count | None = None
    home_mib: Count | None = None
    shm_mib: Count | None = None
    workspace_mib: Count | None = None
    workspace_files: Count | None = None

    def replaced(self, own: Limits | None) -> Limits:
        """These limits, replaced by those that `own` names. A memory size replaces a memory fraction, and the reverse."""
        if own is None:
            return self
        named = own.model_dump(exclude_none=True)
        memory = {"memory_mib", "memory_fraction"}
        dropped = memory if memory & named.keys() else set()
        return Limits(**self.model_dump(exclude_none=True, exclude=dropped) | named)


class DefaultLimits(Record):
    """`arena/sandboxes/limits.yaml`."""

    schema_version: Literal[1]
    agent: Limits
    worker: Limits


class Harness(Record):
    """`harnesses/<name>.yaml`: how to start one agent's CLI, and how to recognise that it finished."""

    schema_version: Literal[1]
    name: Name
    """The file's stem; not written in the file."""
    title: str
    command: tuple[str, ...] = Field(min_length=1)
    """Argument list inside the sandbox, never a shell string. Arena fills in `{model}` the model's name, `{id}` the provider's
    name for it, `{effort}`, `{api}`, `{gateway}` the address of the gateway, `{key}` this run's own key to the gateway."""
    prompt: Literal["stdin", "argument", "file"] = "file"
    """How the agent gets the prompt: standard input, last argument, or only PROMPT.md in the workspace."""
    env: Mapping[str, str] = {}
    """Environment variables of the agent, filled in like the command."""
    files: Mapping[str, str] = {}
    """Read-only files inside the sandbox: absolute path -> file name beside this YAML."""
    home: Mapping[str, str] = {}
    """Files in the agent's fresh HOME: path below HOME -> text, a Jinja2 template."""
    cli: Cli | None = None
    """None: the command needs only what every sandbox has."""
    api: Api | tuple[Api, ...] | None = None
    """The API of its model, or those that it speaks: the route's first one among them is used. None: it has no model."""
    turns: Count | None = None
    """Answers that it asks of its model unless `--turns` says otherwise. Its texts use `{turns}` and `{profile}`. None: it takes
    neither `--turns` nor `--profile`."""
    login: Login | None = None
    """None: it runs only with an API key. With a login, `gateway` is empty: arena leaves out variables with `{gateway}` or
    `{key}`, and templates of `home` must work without them."""
    efforts: Mapping[str, str] = {}
    """Known efforts -> their spelling in the command, variables or files. Empty: any word is passed unchanged."""
    terminal_event: Mapping[str, str] | None = None
    """Keys and values of the JSON line on stdout that marks a finished session."""
    events: str | None = None
    """Python file beside this YAML whose `read(event)` parses the JSON lines on stdout. None: arena looks only for
    `terminal_event`."""
    limits: Limits | None = None
    """Limits of the agent's sandbox that differ from the defaults."""
    models: Mapping[str, Model] = Field(min_length=1)
    """Models by name. A name that ends in `/*` stands for a family."""

    @property
    def apis(self) -> tuple[Api, ...]:
        """The APIs that it speaks."""
        return self.api if isinstance(self.api, tuple) else (self.api,) if self.api else ()

    @field_validator("files")
    @classmethod
    def _absolute(cls, files: Mapping[str, str]) -> Mapping[str, str]:
        for path in files:
            if not path.startswith("/"):
                raise ValueError(f"{path!r}: a path inside the sandbox is absolute")
        return files
