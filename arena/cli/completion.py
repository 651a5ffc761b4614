"""`arena completion`: what a shell needs to complete commands, options, models, problems, hardware and runs."""

from __future__ import annotations

import rich_click as click
from click.shell_completion import get_completion_class

from arena.cli.console import answering, safe, tell

VARIABLE = "_ARENA_COMPLETE"
"""In which a shell asks for completions: click's own name for a program called arena."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion for a SHELL: `source <(arena completion bash)`, or for fish `arena completion fish | source`."""
    found = get_completion_class(shell)
    assert found is not None
    with answering():
        tell(safe(found(context.find_root().command, {}, "arena", VARIABLE).source()))
