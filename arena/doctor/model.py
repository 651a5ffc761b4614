"""Can this model be run here? Its program, its key, one small request, and the agent itself at a task that nobody can fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp

from arena.agents import install, session
from arena.agents.model_access import asked
from arena.agents.supervisor import Progress, Terms
from arena.catalog import SelectedModel
from arena.doctor import Check
from arena.errors import ArenaError
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.model.server import serve
from arena.results import run_folder
from arena.sandboxes import Sandbox
from arena.schema import Api, Cell
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
WORDS = "Answer with one word."


def checks(chosen: SelectedModel, sandbox: Sandbox, report: Callable[[Progress], None] = lambda _: None) -> Iterator[Check]:
    """What a run of this model needs, one after the other; the first that is missing is the last that is looked at."""
    try:
        found = install.found(chosen.harness)
    except ArenaError as error:
        yield Check("program", "missing", str(error))
        return
    yield Check("program", "ok", f"{found.package} {found.version} in {found.folder}" if found else "none needed")
    try:
        to = asked(chosen, CAPS)
    except ArenaError as error:
        yield Check("route and key", "missing", str(error))
        return
    if to is None:
        yield Check("model", "ok", f"{chosen.model_name} needs no provider")
        return
    yield Check("route and key", "ok", f"{to.route.title}: {f'{to.route.key} is there' if to.route.key else 'no key is needed'}")
    probe = asyncio.run(_probe(to))
    yield probe
    if probe.state == "ok":
        yield _agent(chosen, to, sandbox, report)


def request(api: Api, model: str, provider: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Path and body of the smallest request of an interface: one short answer."""
    turn = {"role": "user", "content": WORDS}
    if api == "anthropic":
        return "/v1/messages", {"model": model, "max_tokens": 1, "messages": [turn]}
    if api == "responses":
        return "/v1/responses", {"model": model, "max_output_tokens": 16, "input": WORDS, "store": False}
    if api == "chat":
        pin = {"provider": {"order": list(provider), "allow_fallbacks": False}} if provider else {}
        # No bound on the answer: models that reason refuse the one name of it, older servers the other.
        return "/v1/chat/completions", {"model": model, "messages": [turn], **pin}
    body = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}], "generationConfig": {"maxOutputTokens": 1}}
    return f"/v1beta/models/{model}:generateContent", body


async def _probe(to: ModelAccess) -> Check:
    """One request through a gateway of its own, as an agent's would go."""
    path, body = request(to.api, to.model, to.provider)
    with tempdirs.folder() as folder, serve(folder / "model", folder / "ledger.jsonl", to) as gateway:
        keys = {"Authorization": f"Bearer {gateway.key}", "x-api-key": gateway.key, "x-goog-api-key": gateway.key}
        headers = keys | {"anthropic-version": "2023-06-01"}
        began_s = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(folder / "model")), timeout=aiohttp.ClientTimeout(PROBE_S)
                ) as client,
                client.post(f"http://model{path}", json=body, headers=headers) as answer,
            ):
                text, status = await answer.text(), answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return Check("request", "missing", f"{to.route.base_url}: no answer ({error or type(error).__name__})")
        took_s, used = time.monotonic() - began_s, gateway.usage()
        stop = gateway.stop
    if status != 200 or stop:
        why = stop.message if stop else " ".join(text[:400].split())
        return Check("request", "missing", f"{to.route.base_url} answered {status} for {to.model}: {why}")
    who = ", ".join((*used.models, *(f"by {name}" for name in used.providers))) or to.model
    cost = "unknown" if used.cost_usd is None else f"{used.cost_usd:.6f} USD"
    return Check("request", "ok", f"{who} answered in {took_s:.1f} s, cost {cost}")


def _agent(chosen: SelectedModel, to: ModelAccess, sandbox: Sandbox, report: Callable[[Progress], None]) -> Check:
    """The agent in its box, behind the gateway: it writes a file, runs a command, and says that it is done."""
    cell = Cell(
        problem="doctor",
        problem_version=1,
        problem_digest="",
        harness=chosen.harness.name,
        harness_digest="",
        model=chosen.model_name,
        hardware="cpu",
        budget_s=AGENT_S,
    )
    with tempdirs.folder() as root, run_folder.create(cell, manifest={}, root=root) as run:
        (run.work / "check.py").write_bytes(CHECK)
        played = session.play(chosen, run, terms=Terms(AGENT_S), sandbox=sandbox, prompt=TASK, asked=to, report=report)
        solution = run.work / "solution.py"
        wrote = solution.is_file() and not solution.is_symlink() and solution.read_bytes().strip() == b"x = 1"
        ran = any(
            "PASS" in str(step.get("output", ""))
            for line in run.trajectory.read_bytes().splitlines()
            if (step := json.loads(line)).get("kind") == "result"
        )
    used = played.usage
    told = f"{played.agent_status} after {played.elapsed_s:.1f} s and {used.requests if used else 0} requests"
    if played.agent_status == "complete" and wrote and ran:
        return Check("agent", "ok", f"wrote a file, ran a command, {told}")
    lacking = "" if wrote else "did not write `x = 1` into solution.py; "
    lacking += "" if ran else "was not seen to run check.py; "
    return Check("agent", "missing", f"{lacking}{told}: {played.message}")
