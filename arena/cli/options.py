"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import rich_click as click
from click.core import ParameterSource

from arena import catalog, paths
from arena.cli import console, settings
from arena.cli.console import safe, tell
from arena.errors import Faults, UsageError
from arena.gateway import network as network_
from arena.gateway.config import Caps
from arena.plan import hardware_on, problem_on, unscorable
from arena.schema import Hardware, Problem
from arena.system import load

Pairs = list[tuple[Problem, Hardware]]


def completes(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion in the shell by these names."""
    return lambda context, parameter, begun: [name for name in sorted(names()) if name.startswith(begun)]


def _models() -> list[str]:
    """Models without a parameter, of the harnesses that can be read."""
    return [name for harness in catalog.readable_harnesses()[0].values() for name in harness.models if not name.endswith("*")]


def _runs() -> list[str]:
    annotated = [path.stem for path in paths.annotations().glob("*.yaml")]
    return ["latest", *annotated, *(path.parent.name for path in paths.workspaces().glob("[!.]*/manifest.json"))]


problems_complete = completes(lambda: catalog.problem_names())
models_complete = completes(_models)
runs_complete = completes(_runs)
problem = click.option(
    "--problem",
    "-p",
    "problem_name",
    required=True,
    metavar="P",
    shell_complete=problems_complete,
    help="Choose the problem (`arena list problems`).",
)
hardware = click.option(
    "--hardware",
    "hardware_name",
    metavar="H",
    shell_complete=completes(lambda: (path.stem for path in paths.hardware().glob("*.yaml"))),
    help="Choose the hardware (`arena list hardware`). Default: this machine's GPU, or `cpu` without one.",
)
gpu = click.option(
    "--gpu", default=0, show_default=True, type=click.IntRange(0), metavar="N", help="Use the GPU with this CUDA index."
)
sandbox = click.option(
    "--sandbox",
    "sandbox_name",
    default="bwrap",
    show_default=True,
    metavar="S",
    shell_complete=completes(lambda: ("bwrap", "docker")),
    help="Choose the sandbox backend: bwrap or docker.",
)
_network = click.option(
    "--network",
    "mode",
    default="none",
    show_default=True,
    type=click.Choice(get_args(network_.Mode)),
    help="Set what the agent can reach besides its model: nothing, the hosts of --allow, or (unsealed!) all that its host can.",
)
_allow = click.option(
    "--allow",
    multiple=True,
    metavar="HOST",
    help="With --network allow: allow this host (name, *.name or name:port; the default port is 443).",
)
_allow_private = click.option(
    "--allow-private", is_flag=True, help="Let allowed names resolve to private addresses, such as a company's mirror."
)
_provider = click.option(
    "--provider",
    multiple=True,
    metavar="P",
    help="Allow this provider to answer when the route is a broker. Repeat in order of preference.",
)
_unpinned = click.option("--unpinned", is_flag=True, help="Let the broker choose the provider. The leaderboard shows it.")
_turns = click.option(
    "--turns",
    type=click.IntRange(1),
    metavar="N",
    help="With a harness that asks its model itself (`loop`): ask for so many answers at most. 1 is a single shot.",
)
_profile = click.option(
    "--profile", is_flag=True, help="With such a harness: show the model a profile of each kernel that passed its check."
)
_requests = click.option(
    "--max-requests", default=2000, show_default=True, type=click.IntRange(1), help="Limit the requests to the model, per run."
)
_tokens = click.option(
    "--max-tokens", type=click.IntRange(1), metavar="N", help="Limit the tokens of all kinds together, per run."
)
_cost = click.option(
    "--max-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Limit the known cost, per run. Default: 100 where it is known.",
)
_patience = click.option(
    "--patience", default="5m", show_default=True, metavar="T", help="Fail the run after this long without a successful response."
)
progress = click.option(
    "--progress",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    expose_value=False,
    callback=lambda context, option, value: console.set_progress(value),
    help="Print progress on stderr for people, or as JSON lines for programs: one object for each change.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")


def problems(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the choice of problems and hardware; the command gets `pairs`, each problem with its hardware."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument("names", nargs=-1, metavar="[PROBLEM]...", shell_complete=problems_complete)
        @click.option("--all", "everything", is_flag=True, help=f"{verb.capitalize()} every problem.")
        @hardware
        @gpu
        @functools.wraps(command)
        def with_problems(
            *arguments: object, names: tuple[str, ...], everything: bool, hardware_name: str | None, gpu: int, **options: object
        ) -> None:
            if bool(names) == everything:
                raise UsageError(f"name the problems to {verb}, or --all (known: {', '.join(catalog.problems())})")
            pairs = _scorable(hardware_name, gpu) if everything else _named(names, hardware_name, gpu)
            command(*arguments, pairs=pairs, hardware_name=hardware_name, gpu=gpu, **options)

        return with_problems

    return decorate


def _named(names: Sequence[str], hardware_name: str | None, gpu: int) -> Pairs:
    """The problems of these names, each with the hardware; UsageError with every fault at once."""
    faults = Faults()
    found = [faults.collect(functools.partial(problem_on, name, hardware_name, gpu)) for name in names]
    faults.raise_all()
    return [pair for pair in found if pair is not None]


def _scorable(hardware_name: str | None, gpu: int) -> Pairs:
    """Every problem of which this hardware allows a score. Reports those that it leaves out; UsageError when none is left."""
    hardware, pairs = hardware_on(hardware_name, gpu), Pairs()
    for problem in catalog.problems().values():
        if reason := unscorable(problem, hardware):
            tell(f"left out: {safe(reason)}")
        else:
            pairs.append((problem, hardware))
    if not pairs:
        raise UsageError(f"no problem can be scored on {hardware.title}")
    return pairs


def network(command: Callable[..., None]) -> Callable[..., None]:
    """Add the three network options; the command gets them as one `network_.Network`."""

    @functools.wraps(command)
    def with_network(
        *arguments: object, mode: network_.Mode, allow: tuple[str, ...], allow_private: bool, **options: object
    ) -> None:
        command(*arguments, network=network_.network(mode, allow, allow_private), **options)

    return _network(_allow(_allow_private(with_network)))


def provider(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about a broker's providers; the command gets `provider` and `unpinned`."""
    return _provider(_unpinned(command))


def turns(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about a harness that asks its model itself; the command gets `turns` and `profile`."""
    return _turns(_profile(command))


def caps(command: Callable[..., None]) -> Callable[..., None]:
    """Add the limits of what a run may use of its model; the command gets `caps` and `patience`."""

    @functools.wraps(command)
    def with_caps(
        *arguments: object, max_requests: int, max_tokens: int | None, max_cost: float | None, patience: str, **options: object
    ) -> None:
        command(*arguments, caps=Caps(max_requests, max_tokens, max_cost), patience=patience, **options)

    return _requests(_tokens(_cost(_patience(with_caps))))


def say_settings(context: click.Context) -> None:
    """Report the options that a setting filled, with its origin. Call it when no error can follow."""
    for setting in settings.settings():
        if context.get_parameter_source(settings.PARAMETERS[setting.name]) is ParameterSource.DEFAULT_MAP:
            tell(f"{setting.name} {safe(setting.value)}, from {safe(setting.origin)}")


def say_busy() -> None:
    """Report that others use much of this machine, and who. Call it when no error can follow."""
    if (seen := load.look()).busy:
        tell(f"[bold yellow]busy machine:[/] {safe(seen.words())}. Times will be long and scores low: wait, or end them")


def say_hardware(hardware_name: str | None, hardware: Hardware, gpu: int) -> None:
    """Report the hardware that arena chose because --hardware was not given. Call it when no error can follow."""
    if hardware_name is None:
        why = "no GPU was found here" if hardware.profile == "cpu" else f"GPU {gpu} is {safe(hardware.title)}"
        tell(f"hardware {hardware.name}: {why} (--hardware chooses another)")


def say_caps(caps: Caps | None) -> None:
    """Print what ends a run early, defaults among it."""
    if caps is not None:
        tokens = f", {caps.tokens} tokens" if caps.tokens is not None else ""
        usd = f", {caps.cost_usd:g} USD" if caps.cost_usd is not None else ""
        tell(f"caps: {caps.requests} requests{tokens}{usd} (--max-requests, --max-tokens, --max-cost)")
