"""Plan a run: resolve every name and option into one RunSpec, or refuse with all faults at once."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from arena import catalog, paths
from arena.agents import replay
from arena.agents.gpu_commands import OwnTurns
from arena.agents.launch import resolve_launch
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import SelectedModel, login_network, model_access, select_model
from arena.errors import ArenaError, Faults, UsageError
from arena.files.blanks import JUDGED, refuse_blanks
from arena.files.documents import unknown
from arena.gateway.config import PATIENCE_S, Caps, ModelAccess
from arena.gateway.network import Network
from arena.results import annotations, baselines
from arena.sandboxes.backends import backend
from arena.sandboxes.host import NVIDIA_NODE
from arena.schema import GpuAccess, Hardware, Problem, SweepPlace

SILENCE_S = 900.0
"""An agent with a model may be silent this long: a build may take ten minutes without output."""
UNASKED_S = 180.0
"""Every agent CLI asks its model within seconds of its start. One that never does calls another address."""
DEFAULT_USD = 100.0
"""What a run may cost when no cap is given and the price is known. Without it a loop reached 533 USD in two minutes."""
LEASE_S = 120.0
"""The longest turn on a shared GPU. Agents' tools end a command after 120 s anyway."""
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


class RunOptions(TypedDict, total=False):
    """What a run may be given besides its problem and model. Another name is an error."""

    hardware: str | None
    """The hardware to score on; without it the GPU `gpu`, or `cpu` where there is none."""
    gpu: int
    """Index of the GPU, as CUDA counts. Default 0."""
    effort: str | None
    """Asked of the model instead of its own."""
    turns: int | None
    """Answers that a harness such as `loop` asks of its model, at most, instead of its own number."""
    profile: bool
    """Let such a harness show its model a profile of each kernel that passed its check."""
    budget: str | float
    """The agent's wall clock, such as `45m` (the default), or seconds."""
    sandbox: str
    """`bwrap` (the default) or `docker`."""
    network: Network
    """What the agent may reach besides its model. Default: nothing."""
    caps: Caps
    """Requests, tokens and USD that the run may use. Default: 2000 requests, and 100 USD where the price is known."""
    patience: str | float
    """End the run after this long without a successful response of the provider. Default `5m`."""
    providers: Sequence[str]
    """On a route that is a broker, the providers that may answer, in this order."""
    unpinned: bool
    """On such a route, let the broker choose."""
    login: bool
    """Use the subscription of the person who runs arena, without a gateway."""
    exclude_backoff: bool
    """Add the time for which the provider failed to the budget."""
    parallel: int
    """Sessions at once that share this machine's memory. Default 1."""
    gpu_access: GpuAccess
    """`exclusive` (the default), or `leased`: the agent runs its programs on the GPU by turns, through the command `gpu`."""
    lease: str | float
    """The longest turn, such as `120s` (the default), or seconds."""
    sweep: SweepPlace | None
    """The sweep that the run belongs to."""


def plan(problem: str, model: str = "oracle", **options: Unpack[RunOptions]) -> RunSpec:
    """Resolve everything that a run of this problem and model needs, before anything is started.

    Raises:
        ArenaError: a name does not exist, an option means nothing here, or this machine lacks something; every fault at once.
    """
    gpu, sandbox, network = options.get("gpu", 0), options.get("sandbox", "bwrap"), options.get("network", Network())
    caps, login, exclude_backoff = options.get("caps", Caps()), options.get("login", False), options.get("exclude_backoff", False)
    effort, providers, unpinned = options.get("effort"), options.get("providers", ()), options.get("unpinned", False)
    turns, profiled = options.get("turns"), options.get("profile", False)
    faults = Faults()
    for name in sorted(options.keys() - RunOptions.__annotations__.keys()):
        faults.add(UsageError(unknown("option", name, RunOptions.__annotations__)))
    target = faults.collect(lambda: problem_on(problem, options.get("hardware"), gpu))
    selected = faults.collect(
        lambda: select_model(model, effort=effort, providers=providers, unpinned=unpinned, turns=turns, profile=profiled)
    )
    budget_s = faults.collect(lambda: seconds(options.get("budget", "45m"), "--budget"))
    patience_s = faults.collect(lambda: seconds(options.get("patience", PATIENCE_S), "--patience"))
    chosen_backend = faults.collect(lambda: backend(sandbox))
    lease_s = faults.collect(lambda: seconds(options.get("lease", LEASE_S), "--lease"))
    leased = options.get("gpu_access") == "leased"
    if leased and sandbox != "bwrap":
        faults.add(UsageError(f"gpu_access leased needs --sandbox bwrap: {sandbox} starts no sandbox beside another"))
    faults.collect(ready)
    if selected is None or patience_s is None:  # the steps below need both
        faults.raise_all()
    assert selected is not None and patience_s is not None
    if login:
        metered = caps != Caps() or patience_s != PATIENCE_S or exclude_backoff
        joined = faults.collect(lambda: _login_network(network, selected, metered))
    access = None if login else faults.collect(lambda: _with_default_cap(model_access(selected, caps, patience_s)))
    steps = None
    if target is not None:
        folder, profile = catalog.problem_folder(target[0].name), target[1].profile
        steps = faults.collect(lambda: replay.steps(selected, folder, profile, paths.workspaces()))
    launch = faults.collect(
        lambda: resolve_launch(selected, paths.harnesses(), login=login, replay=steps, parallel=options.get("parallel", 1))
    )
    faults.raise_all()
    assert target and budget_s and chosen_backend and launch and lease_s
    silence_s, unasked_s = (SILENCE_S, UNASKED_S if access else None) if selected.model.route else (None, None)
    return RunSpec(
        selected=selected,
        launch=launch,
        problem=target[0],
        hardware=target[1],
        gpu=gpu,
        times=TimeLimits(budget_s, silence_s=silence_s, unasked_s=unasked_s, without_backoff=exclude_backoff),
        sandbox_name=sandbox,
        sandbox=chosen_backend,
        network=joined or network if login else network,
        access=access,
        login=login,
        leased=OwnTurns(gpu, lease_s) if leased else None,
        lease_s=lease_s,
        sweep=options.get("sweep"),
    )


def problem_on(problem: str, hardware: str | None, gpu: int) -> tuple[Problem, Hardware]:
    """The problem, and the hardware by name or by detection. UsageError when no score of the one can be taken on the other."""
    faults = Faults()
    asked = faults.collect(lambda: catalog.problem(problem))
    found = faults.collect(lambda: hardware_on(hardware, gpu))
    faults.raise_all()
    assert asked is not None and found is not None
    if reason := unscorable(asked, found):
        raise UsageError(reason)
    return asked, found


def unscorable(problem: Problem, hardware: Hardware) -> str:
    """Why no score of the problem can be taken on that hardware, in one sentence; empty where one can.

    DataError when a blank of the reference is left, or a GPU is asked for and the problem's own Python breaks the contract.
    """
    refuse_blanks(catalog.problem_folder(problem.name), *JUDGED)
    if hardware.profile not in problem.shapes:
        return f"{problem.name} has no shapes for profile {hardware.profile!r} (it has {', '.join(problem.shapes)})"
    if hardware.profile == "cpu":  # its peaks are measured while scoring
        return ""
    from arena.judge import problem_code  # torch takes a second to import

    return problem_code.lacking(problem, problem_code.load(problem, hardware.profile).rate, hardware, hardware.tflops)


def hardware_on(hardware: str | None, gpu: int) -> Hardware:
    """The hardware of that name; without a name that of GPU number `gpu`, or `cpu` where there is no GPU."""
    if hardware is not None:
        return catalog.hardware(hardware)
    if not NVIDIA_NODE.exists():  # told without torch, which takes a second to import
        return catalog.hardware("cpu")
    from arena.judge.device.detect import hardware_here

    return hardware_here(gpu)


def seconds(duration: str | float, option: str) -> float:
    """Seconds of the text `45m`, `90s` or `1.5h`, or of a number of seconds. UsageError, which names the option."""
    text = f"{duration}s" if isinstance(duration, int | float) else duration.strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or not float(match[1]):
        raise UsageError(f"{option} {duration!r}: give a time above zero such as 45m, 90s or 1.5h")
    if not match[2]:
        raise UsageError(f"{option} {duration!r}: give its unit, {text}m for minutes or {text}s for seconds")
    return float(match[1]) * UNITS_S[match[2]]


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


def _with_default_cap(access: ModelAccess | None) -> ModelAccess | None:
    """The access with a cap in USD, unless the user caps tokens or USD, or the cost of some answer may stay unknown."""
    if access is None or access.caps.metered or (access.api == "chat" and not access.route.broker):
        return access
    from arena.gateway.model.usage import list_price  # the price list takes a tenth of a second to import

    if list_price(access.route.prices, access.model) is None:
        return access
    return replace(access, caps=replace(access.caps, cost_usd=DEFAULT_USD))


def _login_network(network: Network, selected: SelectedModel, metered: bool) -> Network:
    if metered:
        raise UsageError("with --login nothing is metered: leave --max-..., --patience and --exclude-backoff out")
    return login_network(network, selected.harness)
