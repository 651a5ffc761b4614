"""The `arena` command, one module per subcommand. Data goes to stdout, everything for people to stderr.

Exit codes: 0 success, whatever the verdict; 1 a run does not count, since its provider, the judge or the machine failed, or a
check of a problem failed;
2 wrong usage or environment; 130 interrupted (`arena list runs` lists the interrupted run).
"""

from __future__ import annotations

import ast
import errno
import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import rich_click as click

from arena.cli import console, settings
from arena.cli.console import note, people, safe
from arena.errors import ArenaError, UsageError

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
NO_ACCESS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}
"""Errors on a named file that the machine causes. Any other OSError is a bug and shows its traceback."""
JUDGE_PACKAGES = {"torch": "`pip install torch`", "cuda": "install a build of torch for CUDA, which brings it"}
"""Packages that only the judge needs, and how to install them."""


STARTS = ("click.command(", "click.group(")
"""A decorator of the one function in a module that is the command itself."""
COMMANDS = (
    "annotate",
    "baseline",
    "calibrate",
    "check",
    "clean",
    "compare",
    "completion",
    "curve",
    "doctor",
    "export",
    "import",
    "install",
    "judge",
    "leaderboard",
    "list",
    "new-problem",
    "open",
    "review",
    "run",
    "sandbox",
    "schema",
    "score",
    "show",
    "site",
    "sweep",
)
"""Each in a module of its name, with `_` for `-`. It is imported when the command is used: all of them together take 0.6 s of
processor time."""


class Commands(click.RichGroup):
    """A group that imports a command when it is used, and answers an unknown one with a list of all, the nearest first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command for the list of all: its name and its help, read from its module without importing it."""
        return click.RichCommand(name=cmd_name, help=_summary(cmd_name)) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        name = args[0]
        if name in COMMANDS:
            module = importlib.import_module(f"arena.cli.{_module(name)}")
            [command] = [each for each in vars(module).values() if isinstance(each, click.Command) and each.name == name]
            return name, command, args[1:]
        if name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from arena.files.documents import unknown  # its libraries take a tenth of a second to import

        raise UsageError(unknown("command", name, COMMANDS))


def _module(name: str) -> str:
    """The module of a command; no module's name may hold a hyphen."""
    return name.replace("-", "_")


def _summary(name: str) -> str:
    """The first paragraph of a command's help."""
    tree = ast.parse((Path(__file__).parent / f"{_module(name)}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    [function] = [each for each in functions if any(ast.unparse(line).startswith(STARTS) for line in each.decorator_list)]
    return (ast.get_docstring(function) or "").partition("\n\n")[0]


def _print_version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        from arena.cli import versions

        with console.answering():
            console.tell(safe(versions.text()))
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the versions that a bug report needs, and exit.",
)
@click.option("--verbose", "-v", is_flag=True, help="Print each step of an agent and of the judge as a line.")
@click.option("--quiet", "-q", is_flag=True, help="Print results on stdout and errors, and nothing else.")
@click.option(
    "--problems",
    "folders",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Add the problems of this folder to the shipped ones, as $ARENA_PROBLEMS does; give it before the command.",
)
@click.option("--log-file", metavar="FILE", type=click.Path(path_type=Path), help="Append all text for people to this file.")
@click.pass_context
def cli(context: click.Context, verbose: bool, quiet: bool, folders: tuple[Path, ...], log_file: Path | None) -> None:
    """Run coding agents on GPU-kernel problems in a sealed sandbox, and score the kernel they leave. No agent can forge a score.

    Try `arena run --problem paged_attention`: it runs the built-in oracle and needs no key.
    """
    if verbose and quiet:
        raise UsageError("--verbose and --quiet exclude each other")
    if folders:  # in the environment, so that the processes of a sweep have them too
        named = (*(str(folder.resolve()) for folder in folders), os.environ.get("ARENA_PROBLEMS", ""))
        os.environ["ARENA_PROBLEMS"] = ":".join(filter(None, named))
    console.set_up(quiet=quiet, more=verbose, log_file=log_file)
    name = context.invoked_subcommand
    if name in settings.USED:
        context.default_map = {name: settings.defaults(name, settings.settings())}


def main() -> None:
    """Run the command line and exit."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        code = cli.main(standalone_mode=False, prog_name="arena")
    except ArenaError as error:
        code = _report(safe(error))
    except click.UsageError as error:
        message = " ".join(error.format_message().split())
        code = _report(f"{safe(message)} (`{error.ctx.command_path if error.ctx else 'arena'} -h` shows how)")
    except OSError as error:
        if error.errno not in FULL_DISK and not (error.errno in NO_ACCESS and error.filename):
            raise
        code = _report(safe(f"{error.filename or 'cannot write'}: {error.strerror}"))
    except ImportError as error:
        if interrupts:  # numpy, imported by torch, reports an interrupt as a module that cannot be imported
            code = _report_interrupt()
        elif not isinstance(error, ModuleNotFoundError) or (name := (error.name or "").partition(".")[0]) not in JUDGE_PACKAGES:
            raise
        else:
            code = _report(f"the judge needs the package {name}, which is not installed: {JUDGE_PACKAGES[name]}")
    except (KeyboardInterrupt, click.Abort):
        code = _report_interrupt()
    sys.exit(code if isinstance(code, int) else 0)


def _report_interrupt() -> int:
    people.print(
        "arena: interrupted; `arena list runs` shows what was left",
        soft_wrap=True,
    )
    return 130


def _report(markup: str) -> int:
    people.quiet = False
    people.print(f"[bold red]arena:[/] {markup}", soft_wrap=True)
    note(f"arena: {markup}")
    return 2
