"""Options that several commands share, read the same way everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import get_args

import rich_click as click

from arena.cli.console import safe, tell
from arena.gateway import network as network_
from arena.gateway.config import Caps
from arena.schema import Hardware

problem = click.option(
    "--problem", "-p", "problem_name", required=True, metavar="P", help="A folder under problems/ (`arena list problems`)."
)
hardware = click.option(
    "--hardware",
    "hardware_name",
    metavar="H",
    help="What to measure on (`arena list hardware`); without it the GPU that is here, or else `cpu`.",
)
gpu = click.option("--gpu", default=0, show_default=True, type=click.IntRange(0), metavar="N", help="Which GPU, as CUDA counts.")
sandbox = click.option("--sandbox", "sandbox_name", default="bwrap", show_default=True, metavar="S", help="bwrap or docker.")
_network = click.option(
    "--network",
    "mode",
    default="none",
    show_default=True,
    type=click.Choice(get_args(network_.Mode)),
    help="What the agent may reach besides its model: nothing, the hosts of --allow, or (unsealed!) what this machine can.",
)
_allow = click.option("--allow", multiple=True, metavar="HOST", help="With --network allow: name, *.name or name:port (443).")
_allow_private = click.option(
    "--allow-private", is_flag=True, help="Allowed names may resolve to private addresses, as a company's mirror does."
)
_provider = click.option("--provider", multiple=True, metavar="P", help="Who may answer, by a route that is a broker; in order.")
_unpinned = click.option("--unpinned", is_flag=True, help="Let a broker choose who answers: shown on the leaderboard.")
_requests = click.option("--max-requests", default=2000, show_default=True, type=click.IntRange(1), help="To the model, per run.")
_tokens = click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Of all kinds together, per run.")
_cost = click.option("--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="Per run, as far as it is known.")
_patience = click.option(
    "--patience", default="5m", show_default=True, metavar="T", help="So long without a good answer, and the provider has failed."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")


def network(command: Callable[..., None]) -> Callable[..., None]:
    """The three options about the network; the command gets one `network_.Network` for them."""

    @functools.wraps(command)
    def with_network(*words: object, mode: network_.Mode, allow: tuple[str, ...], allow_private: bool, **options: object) -> None:
        command(*words, network=network_.network(mode, allow, allow_private), **options)

    return _network(_allow(_allow_private(with_network)))


def provider(command: Callable[..., None]) -> Callable[..., None]:
    """Who may answer: the command gets `provider` and `unpinned`."""
    return _provider(_unpinned(command))


def means(command: Callable[..., None]) -> Callable[..., None]:
    """What the model may use up: the command gets `caps` and `patience`."""

    @functools.wraps(command)
    def with_means(
        *words: object, max_requests: int, max_tokens: int | None, max_cost: float | None, patience: str, **options: object
    ) -> None:
        command(*words, caps=Caps(max_requests, max_tokens, max_cost), patience=patience, **options)

    return _requests(_tokens(_cost(_patience(with_means))))


def say_hardware(hardware_name: str | None, hardware: Hardware, gpu: int) -> None:
    """Say what was chosen where nothing was asked for; after all that may still be refused."""
    if hardware_name is None:
        why = "torch finds no GPU here" if hardware.profile == "cpu" else f"GPU {gpu} is {safe(hardware.title)}"
        tell(f"hardware {hardware.name}: {why} (--hardware chooses another)")
