"""The `arena` command. Data goes to stdout, everything for people to stderr.

Exit codes: 0 done and scored, whatever the verdict; 1 some cell failed for our own or the machine's reason;
2 wrong usage or environment; 130 interrupted, and what was running is listed as such by `arena list runs`.
"""

from __future__ import annotations

import sys

import rich_click as click

from arena import __version__
from arena.cli import judging, machine, records, running
from arena.cli.output import people
from arena.errors import ArenaError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="arena")
def cli() -> None:
    """Run coding agents on GPU-kernel problems in a sealed sandbox, and score what they leave so that it cannot be forged.

    Try `arena run --problem paged_attention`: the built-in oracle, no key needed.
    """


for module in (running, judging, records, machine):
    for command in module.COMMANDS:
        cli.add_command(command)


def main() -> None:
    """Run the command line and exit."""
    try:
        code = cli.main(standalone_mode=False)
    except ArenaError as error:
        people.print(f"[bold red]arena:[/] {click_escape(str(error))}", soft_wrap=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        people.print("arena: interrupted; `arena list runs` shows what was left", soft_wrap=True)
        code = 130
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def click_escape(text: str) -> str:
    """Text as it stands, with nothing in it read as rich markup."""
    from rich.markup import escape

    return escape(text)
