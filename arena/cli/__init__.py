"""The `arena` command, one module per subcommand. Data goes to stdout, everything for people to stderr.

Exit codes: 0 success, whatever the verdict; 1 the judge or the machine failed, or a check of a problem failed;
2 wrong usage or environment; 130 interrupted (`arena list runs` lists the interrupted run).
"""

from __future__ import annotations

import errno
import signal
import sys
from types import FrameType

import rich_click as click

from arena import __version__
from arena.cli import (
    annotate,
    baseline,
    calibrate,
    check,
    compare,
    curve,
    doctor,
    install,
    judge,
    leaderboard,
    review,
    run,
    sandbox,
    schema,
    score,
    show,
    site,
    sweep,
)
from arena.cli import list as list_
from arena.cli.console import people, safe
from arena.errors import ArenaError, UsageError
from arena.files.documents import unknown

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
NO_ACCESS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}
"""Errors on a named file that the machine causes. Any other OSError is a bug and shows its traceback."""
JUDGE_PACKAGES = {"torch": "`pip install torch`", "cuda": "install a build of torch for CUDA, which brings it"}
"""Packages that only the judge needs, and how to install them."""


class Commands(click.RichGroup):
    """A group that answers an unknown command with a list of all commands, the nearest first."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise UsageError(unknown("command", args[0], self.commands))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="arena")
def cli() -> None:
    """Run coding agents on GPU-kernel problems in a sealed sandbox, and score the kernel they leave. No agent can forge a score.

    Try `arena run --problem paged_attention`: it runs the built-in oracle and needs no key.
    """


for command in (
    annotate.annotate,
    baseline.baseline_,
    calibrate.calibrate,
    check.check,
    compare.compare_,
    curve.curve_,
    doctor.doctor,
    install.install,
    judge.judge,
    leaderboard.leaderboard_,
    list_.list_,
    review.review,
    run.run,
    sandbox.sandbox,
    schema.schema,
    score.score,
    show.show,
    site.site,
    site.open_,
    sweep.sweep,
):
    cli.add_command(command)


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
    people.print(f"[bold red]arena:[/] {markup}", soft_wrap=True)
    return 2
