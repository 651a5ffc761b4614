"""Plan a run: resolve every name and option into one RunSpec, or refuse with all faults at once."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from arena import catalog, paths
from arena.agents import replay
from arena.agents.launch import resolve_launch
from arena.agents.model_access import login_network, model_access
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import select_model
from arena.catalog import SelectedModel
from arena.errors import ArenaError, Faults, UsageError
from arena.gateway.config import PATIENCE_S, Caps
from arena.gateway.network import Network
from arena.results import annotations, baselines
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Problem

SILENCE_S = 900.0
"""An agent with a model may be silent this long: a build may take ten minutes without output."""
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def plan(
    problem: str,
    model: str = "oracle",
    *,
    hardware: str | None = None,
    gpu: int = 0,
    effort: str | None = None,
    budget: str | float = "45m",
    sandbox: str = "bwrap",
    network: Network = Network(),  # noqa: B008  frozen
    caps: Caps = Caps(),  # noqa: B008
    patience: str | float = PATIENCE_S,
    providers: Sequence[str] = (),
    unpinned: bool = False,
    login: bool = False,
    exclude_backoff: bool = False,
) -> RunSpec:
    """Resolve everything that a run needs. Nothing has been started when this raises.

    Args:
        problem: a folder under problems/.
        model: a model, `harness/model`, or `harness/route/id`.
        hardware: the hardware to score on; without it the GPU `gpu`, or `cpu` where there is none.
        gpu: index of the GPU, as CUDA counts.
        effort: asked of the model instead of its own.
        budget: the agent's wall clock, such as `45m`, or seconds.
        sandbox: `bwrap` or `docker`.
        network: what the agent may reach besides its model.
        caps: requests, tokens and USD that the run may use.
        patience: end the run after this long without a successful response of the provider, such as `5m`, or seconds.
        providers: on a route that is a broker, the providers that may answer, in this order.
        unpinned: on such a route, let the broker choose.
        login: use the subscription of the person who runs arena, without a gateway.
        exclude_backoff: add the time for which the provider failed to the budget.

    Raises:
        ArenaError: a name does not exist, an option means nothing here, or this machine lacks something; every fault at once.
    """
    faults = Faults()
    target = faults.collect(lambda: problem_on(problem, hardware, gpu))
    selected = faults.collect(lambda: select_model(model, effort=effort, providers=providers, unpinned=unpinned))
    budget_s = faults.collect(lambda: seconds(budget, "--budget"))
    patience_s = faults.collect(lambda: seconds(patience, "--patience"))
    chosen_backend = faults.collect(lambda: backend(sandbox))
    faults.collect(ready)
    if selected is None or patience_s is None:  # the steps below need both
        faults.raise_all()
    assert selected is not None and patience_s is not None
    if login:
        metered = caps != Caps() or patience_s != PATIENCE_S or exclude_backoff
        joined = faults.collect(lambda: _login_network(network, selected, metered))
    access = None if login else faults.collect(lambda: model_access(selected, caps, patience_s))
    steps = faults.collect(lambda: _replay(selected, *target)) if target else None
    launch = faults.collect(lambda: resolve_launch(selected, paths.harnesses(), login=login, replay=steps))
    faults.raise_all()
    assert target and budget_s and chosen_backend and launch
    silence_s = SILENCE_S if selected.model.route else None
    return RunSpec(
        selected=selected,
        launch=launch,
        problem=target[0],
        hardware=target[1],
        gpu=gpu,
        times=TimeLimits(budget_s, silence_s=silence_s, without_backoff=exclude_backoff),
        sandbox_name=sandbox,
        sandbox=chosen_backend,
        network=joined or network if login else network,
        access=access,
        login=login,
    )


def problem_on(problem: str, hardware: str | None, gpu: int) -> tuple[Problem, Hardware]:
    """The problem, and the hardware by name or by detection. UsageError when the problem has no shapes for it."""
    faults = Faults()
    asked = faults.collect(lambda: catalog.problem(problem))
    found = faults.collect(lambda: hardware_on(hardware, gpu))
    faults.raise_all()
    assert asked is not None and found is not None
    if found.profile not in asked.shapes:
        raise UsageError(f"{problem} has no shapes for profile {found.profile!r} (it has {', '.join(asked.shapes)})")
    return asked, found


def hardware_on(hardware: str | None, gpu: int) -> Hardware:
    """The hardware of that name; without a name that of GPU number `gpu`, or `cpu` where there is no GPU."""
    if hardware is not None:
        return catalog.hardware(hardware)
    from arena.judge.device.detect import hardware_here  # torch takes a second to import

    return hardware_here(gpu)


def seconds(duration: str | float, option: str) -> float:
    """Seconds of `45m`, `90s`, `1.5h` or a number of seconds. UsageError, which names the option."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(duration).strip())
    if match is None or not float(match[1]):
        raise UsageError(f"{option} {duration!r}: give a time above zero such as 45m, 90s or 1.5h")
    return float(match[1]) * UNITS_S[match[2] or "s"]


def home() -> Path:
    """The folder of all results, made if there is none. ArenaError when it cannot be written."""
    folder = paths.home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ArenaError(f"{folder}: cannot be written ({error.strerror}); set ARENA_HOME to a folder that can") from None


def ready() -> None:
    """Check that results can be kept, and that those that exist can be read. ArenaError."""
    home()
    annotations.settle(paths.workspaces(), paths.annotations())
    annotations.read_all(paths.annotations())
    baselines.read_all(paths.baselines())


def _login_network(network: Network, selected: SelectedModel, metered: bool) -> Network:
    if metered:
        raise UsageError("with --login nothing is metered: leave --max-..., --patience and --exclude-backoff out")
    return login_network(network, selected.harness)


def _replay(selected: SelectedModel, problem: Problem, hardware: Hardware) -> bytes | None:
    """The steps of a built-in model; None for an agent."""
    return replay.steps(selected, paths.problems() / problem.name, hardware.profile, paths.workspaces())
