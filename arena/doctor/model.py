"""Try a model on this machine: its CLI, its route and key, one small request, and the agent itself at a trivial task."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator

import aiohttp

from arena import catalog, paths
from arena.agents import install, session
from arena.agents.launch import resolve_launch
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import SelectedModel, model_access
from arena.agents.supervisor import Progress
from arena.doctor import Check
from arena.errors import ArenaError, message_of
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.model.apis import smallest_request
from arena.gateway.model.server import serve
from arena.gateway.network import Network
from arena.results import run_folder
from arena.sandboxes.backends import backend
from arena.schema import Cell
from arena.system import tempdirs

PROBE_S = 120.0
AGENT_S = 600.0
CAPS = Caps(requests=40)
TASK = """Write the file solution.py with this one line:

    x = 1

Then run `python check.py`. When it prints PASS you are done: say so, and do nothing else.
"""
CHECK = b"""import solution
print("PASS" if solution.x == 1 else "FAIL")
"""


def checks(selected: SelectedModel, sandbox_name: str, report: Callable[[Progress], None] = lambda _: None) -> Iterator[Check]:
    """Check what a run of this model needs, in order, up to the first thing that is missing."""
    try:
        cli = install.installed(selected.harness)
    except ArenaError as error:
        yield Check("program", "missing", str(error))
        return
    yield Check("program", "ok", f"{cli.package} {cli.version} in {cli.folder}" if cli else "none needed")
    try:
        access = model_access(selected, CAPS)
    except ArenaError as error:
        yield Check("route and key", "missing", str(error))
        return
    if access is None:
        yield Check("model", "ok", f"{selected.model_name} needs no provider")
        return
    route = access.route
    yield Check("route and key", "ok", f"{route.title}: {f'{route.key} is there' if route.key else 'no key is needed'}")
    try:
        spec = _spec(selected, access, sandbox_name)  # before the request, which costs money
    except ArenaError as error:
        yield Check("agent", "missing", str(error))
        return
    probe = asyncio.run(_probe(access))
    yield probe
    if probe.state == "ok":
        yield _agent(spec, report)


async def _probe(access: ModelAccess) -> Check:
    """Send one request through a gateway of its own, on the way that an agent's requests take."""
    path, body = smallest_request(access.api, access.model, access.provider)
    version = "v1beta" if access.api == "gemini" else "v1"
    with tempdirs.folder() as folder, serve(folder / "model", folder / "ledger.jsonl", access) as gateway:
        keys = {"Authorization": f"Bearer {gateway.key}", "x-api-key": gateway.key, "x-goog-api-key": gateway.key}
        headers = keys | {"anthropic-version": "2023-06-01"}
        began_s = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(folder / "model")), timeout=aiohttp.ClientTimeout(PROBE_S)
                ) as client,
                client.post(f"http://model/{version}/{path}", json=body, headers=headers) as answer,
            ):
                text, status = await answer.text(), answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return Check("request", "missing", f"{access.route.base_url}: no answer ({message_of(error)})")
        took_s, used = time.monotonic() - began_s, gateway.usage()
        stop = gateway.stop
    if status != 200 or stop:
        why = stop.message if stop else " ".join(text[:400].split())
        return Check("request", "missing", f"{access.route.base_url} answered {status} for {access.model}: {why}")
    answered_by = ", ".join((*used.models, *(f"by {name}" for name in used.providers))) or access.model
    cost = "unknown" if used.cost_usd is None else f"{used.cost_usd:.6f} USD"
    return Check("request", "ok", f"{answered_by} answered in {took_s:.1f} s, cost {cost}")


def _spec(selected: SelectedModel, access: ModelAccess, sandbox_name: str) -> RunSpec:
    """A run of the trivial task: the canary problem stands for it, and no judge takes part."""
    return RunSpec(
        selected=selected,
        launch=resolve_launch(selected, paths.harnesses()),
        problem=catalog.problem("canary", paths.canary().parent),
        hardware=catalog.hardware("cpu"),
        gpu=0,
        times=TimeLimits(AGENT_S),
        sandbox_name=sandbox_name,
        sandbox=backend(sandbox_name),
        network=Network(),
        access=access,
    )


def _agent(spec: RunSpec, report: Callable[[Progress], None]) -> Check:
    """Let the agent write a file, run a command and report that it is done, in its sandbox and behind the gateway."""
    cell = Cell(
        problem="doctor",
        problem_version=1,
        problem_digest="",
        harness=spec.selected.harness.name,
        harness_digest="",
        model=spec.selected.model_name,
        hardware="cpu",
        budget_s=AGENT_S,
    )
    with tempdirs.folder() as root, run_folder.create(cell, manifest={}, root=root) as run:
        (run.work / "check.py").write_bytes(CHECK)
        played = session.play(spec, run, TASK, report=report).session
        solution = run.work / "solution.py"
        wrote = solution.is_file() and not solution.is_symlink() and solution.read_bytes().strip() == b"x = 1"
        ran = not spec.selected.harness.events or any(  # without events nothing shows the command
            "PASS" in str(step.get("output", ""))
            for line in run.trajectory.read_bytes().splitlines()
            if (step := json.loads(line)).get("kind") == "result"
        )
    used = played.usage
    outcome = f"{played.agent_status} after {played.elapsed_s:.1f} s and {used.requests if used else 0} requests"
    if played.agent_status == "complete" and wrote and ran:
        return Check("agent", "ok", f"wrote a file, ran a command, {outcome}")
    lacking = "" if wrote else "did not write `x = 1` into solution.py; "
    lacking += "" if ran else "did not run check.py; "
    return Check("agent", "missing", f"{lacking}{outcome}: {played.message}")
