"""`arena doctor`: check that this machine can run agents and score what they leave."""

from __future__ import annotations

import importlib.metadata
import itertools
import shutil
from collections.abc import Callable, Iterator

import rich_click as click

from arena import catalog, paths
from arena.agents.install import installed
from arena.agents.select import SelectedModel, select_model
from arena.cli import options, settings
from arena.cli.console import Display, data, safe, tell
from arena.doctor import Check
from arena.doctor.found import inspect_machine
from arena.doctor.gpu import Gpu, gpus
from arena.doctor.gpu import checks as checks_of
from arena.errors import ArenaError, SandboxError, UsageError
from arena.plan import home
from arena.sandboxes import docker, native
from arena.sandboxes.backends import backend
from arena.system.provenance import machine

MARKS = {"ok": "[green]ok     [/]", "missing": "[bold red]missing[/]", "note": "[yellow]note   [/]"}


@click.command()
@click.option("--score", "scoring", is_flag=True, help="Score canary kernels on this machine, end to end.")
@click.option(
    "--model",
    "-m",
    metavar="M",
    shell_complete=options.models_complete,
    help="Try this model: its CLI, its key, a request, a task in the sandbox.",
)
@click.option("--models", is_flag=True, help="Say which models the price list and their routes know.")
@click.option("--effort", metavar="E", help="With --model: ask for this effort instead of the one in its harness.")
@options.provider
@options.gpu
@options.sandbox
@options.as_json
@click.pass_context
def doctor(
    context: click.Context,
    scoring: bool,
    model: str | None,
    models: bool,
    effort: str | None,
    provider: tuple[str, ...],
    unpinned: bool,
    gpu: int,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Check that this machine can run agents and score what they leave. Report how to repair what is missing."""
    checks = []
    selected = select_model(model, effort=effort, providers=provider, unpinned=unpinned) if model else None
    model_checks = _model(selected, sandbox_name) if selected else ()
    for check in itertools.chain(_checks(sandbox_name, scoring, gpu), _models() if models else (), model_checks):
        checks.append(check)
        if not as_json:
            tell(f"{MARKS[check.state]} {check.name:18} {safe(check.detail)}")  # `canary load_inline` is the longest name
    if as_json:
        data([check._asdict() for check in checks])
    elif not scoring and model is None:
        tell("`arena doctor --score` also scores canary kernels on this machine, through the real sandbox and judge")
    if any(check.state == "missing" for check in checks):
        context.exit(2)


def _checks(sandbox_name: str, scoring: bool, gpu: int) -> Iterator[Check]:
    yield Check("machine", "ok", machine())
    sandbox, torch = _check("sandbox", lambda: _sandbox(sandbox_name)), _torch()
    yield sandbox
    slow = native.why_not()
    yield Check(
        "sandbox start", "note" if slow else "ok", f"25 ms slower, by Python programs: {slow}" if slow else "compiled programs"
    )
    yield _docker()
    yield _check("catalogue", _catalogue)
    yield _agents()
    yield torch
    compiler = shutil.which("cc")
    install = "no cc: install gcc, which C solutions on hardware cpu need"
    yield Check("compiler", "ok" if compiler else "missing", compiler or install)
    found = inspect_machine()
    yield from checks_of(found)
    yield from _settings()
    yield _check("home", lambda: f"{home()} (workspaces, annotations and leaderboard; $ARENA_HOME moves them)")
    if scoring and (absent := [check.name for check in (sandbox, torch) if check.state == "missing"]):
        yield Check("canary", "missing", f"nothing can be scored without {' and '.join(absent)}")
    elif scoring:
        yield from _canaries(sandbox_name, gpus(found), gpu)


def _settings() -> Iterator[Check]:
    """Each of the user's own defaults, with its origin."""
    made = settings.settings()
    for each in made:
        yield Check(each.name, "ok", f"{each.value}, from {each.origin}")
    others = "the others are arena's own defaults" if made else "arena's own defaults"
    yield Check("settings", "ok", f"{others} ({settings.FILE} here or in {paths.config()} changes them)")


def _models() -> Iterator[Check]:
    from arena.doctor import models  # the price list takes a tenth of a second to import

    yield from models.checks()


def _model(selected: SelectedModel, sandbox_name: str) -> Iterator[Check]:
    from arena.doctor import model  # its HTTP library takes half a second to import

    with Display() as display:
        found = list(model.checks(selected, sandbox_name, display.show))
    yield from found


def _canaries(sandbox_name: str, found: list[Gpu], number: int) -> Iterator[Check]:
    """Score the canaries on GPU `number` if it is usable, else on the CPU."""
    if number and number >= len(found):
        raise UsageError(f"there is no GPU {number}: {len(found)} were found, counted from 0")
    chosen = found[number] if found else None
    hardware = chosen.hardware if chosen and chosen.usable and chosen.hardware else catalog.hardware("cpu")
    sandbox = backend(sandbox_name)
    from arena.doctor import canaries

    for name in canaries.SCORED[hardware.profile]:
        with Display() as display:
            check = canaries.score(name, hardware, sandbox, gpu=number, report=display.judging)
        yield check


def _check(name: str, describe: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", describe())
    except ArenaError as error:
        return Check(name, "missing", str(error))


def _sandbox(name: str) -> str:
    backend(name)
    return f"{name}: it starts, and a program inside finds it sealed (privileges, filter, namespaces, network, planted lures)"


def _docker() -> Check:
    """The engine of the other, optional backend."""
    try:
        return Check("docker", "ok", f"{docker.describe()}: test it with `arena doctor --sandbox docker`")
    except SandboxError as error:
        return Check("docker", "note", f"optional, and not available: {' '.join(str(error).split())}")


def _catalogue() -> str:
    problems, harnesses, hardware = catalog.problems(), catalog.harnesses(), catalog.hardwares()
    return f"{len(problems)} problems, {len(harnesses)} harnesses, {len(hardware)} hardware files"


def _agents() -> Check:
    """The agent CLIs: no score needs one, and a run needs its own."""
    try:
        known = {name: harness for name, harness in catalog.harnesses().items() if harness.cli}
    except ArenaError:
        return Check("agents", "note", "unknown: a harness file is broken")
    absent = [name for name, harness in known.items() if _check(name, lambda each=harness: str(installed(each))).state != "ok"]  # type: ignore[misc]
    if not absent:
        return Check("agents", "ok", f"installed: {', '.join(known)}")
    return Check("agents", "note", f"not installed: {', '.join(absent)}; `arena install NAME` installs one")


def _torch() -> Check:
    try:
        return Check("torch", "ok", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", "missing", "not installed, and the judge needs it: `pip install torch`")
