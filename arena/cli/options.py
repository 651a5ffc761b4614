"""Options that several commands share, read the same way everywhere."""

from __future__ import annotations

import re

import rich_click as click

from arena import catalog
from arena.errors import UsageError
from arena.schema import Hardware, Problem

problem = click.option(
    "--problem", "-p", "problem_name", required=True, metavar="P", help="A folder under problems/ (`arena list problems`)."
)
hardware = click.option(
    "--hardware", "hardware_name", default="cpu", show_default=True, metavar="H", help="What to score on (`arena list hardware`)."
)
gpu = click.option("--gpu", default=0, show_default=True, type=click.IntRange(0), metavar="N", help="Which GPU, as CUDA counts.")
sandbox = click.option("--sandbox", "sandbox_name", default="bwrap", show_default=True, metavar="S", help="The wall's backend.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """`45m`, `90s`, `1.5h` or a plain number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--budget {text!r}: give a time above zero such as 45m, 90s or 1.5h")
    return float(match[1]) * UNITS_S[match[2] or "s"]


def problem_on(problem_name: str, hardware_name: str) -> tuple[Problem, Hardware]:
    """The problem and the hardware, refused when the problem has no shapes for it."""
    problem, hardware = catalog.problem(problem_name), catalog.hardware(hardware_name)
    if hardware.profile not in problem.shapes:
        raise UsageError(f"{problem_name} has no shapes for profile {hardware.profile!r} (it has {', '.join(problem.shapes)})")
    return problem, hardware
