"""`arena list`: the catalogue, the routes and the runs."""

from collections.abc import Callable
from typing import Any

import rich_click as click
from rich.table import Table

from arena import catalog, paths
from arena.agents.install import packages
from arena.cli import options
from arena.cli.console import answering, data, safe, tell, tell_table, verdict
from arena.cli.render import uncounted
from arena.errors import DataError, UsageError
from arena.files.documents import unknown
from arena.gateway.routes import routes
from arena.results import annotations, run_folder
from arena.schema import Passed

Rows = list[dict[str, Any]]


def _problems() -> Rows:
    return [
        {"name": p.name, "version": p.version, "title": p.title, "shapes": {k: len(v) for k, v in p.shapes.items()}}
        for p in catalog.problems().values()
    ]


def _models() -> Rows:
    return [
        {
            "name": name,
            "harness": harness.name,
            "effort": model.effort,
            "route": model.route,
            "provider": ", ".join(model.provider) or None,
            "title": model.title,
        }
        for harness in catalog.harnesses().values()
        for name, model in harness.models.items()
    ]


def _prices() -> Rows:
    """The models that a provider is paid for, with the prices that the list knows."""
    from arena.gateway.model.usage import ListPrice, list_price  # the price list takes a tenth of a second to import

    known = routes()
    rows: Rows = []
    for harness in catalog.harnesses().values():
        for name, model in harness.models.items():
            if model.route is None:
                continue
            if model.route not in known:
                raise DataError(f"model {name} of harness {harness.name}: {unknown('route', model.route, known)}")
            listed = list_price(known[model.route].prices, model.id or name)
            usd = {f"{kind}_usd": listed and getattr(listed, kind) for kind in ListPrice._fields}
            rows.append({"name": name, "harness": harness.name, "id": model.id or name, "route": model.route} | usd)
    return rows


def _harnesses() -> Rows:
    return [
        {"name": h.name, "title": h.title, "models": len(h.models), "program": packages(h.cli)[0].title if h.cli else None}
        for h in catalog.harnesses().values()
    ]


def _routes() -> Rows:
    return [
        {"name": name, "title": r.title, "apis": ", ".join(r.apis), "base_url": r.base_url, "key": r.key}
        for name, r in routes().items()
    ]


def _hardware() -> Rows:
    return [
        {
            "name": h.name,
            "title": h.title,
            "memory_gb": h.memory_gb.value if h.memory_gb else None,
            "bandwidth_gb_s": h.bandwidth_gb_s.value if h.bandwidth_gb_s else "measured",
            "tflops": {rate: figure.value for rate, figure in h.tflops.items()} or "measured",
            "unmeasured": h.unmeasured,
        }
        for h in catalog.hardwares().values()
    ]


def _runs() -> Rows:
    """The runs of this machine, and those known only by their annotation, as in a fresh clone."""
    states: dict[str, str] = {entry.run.run_id: entry.state for entry in run_folder.list_runs(paths.workspaces())}
    annotated = {path.stem: path for path in paths.annotations().glob("*.yaml")}
    rows = []
    for run_id in sorted(states.keys() | annotated.keys()):
        annotation = annotations.read(annotated[run_id]) if run_id in annotated else None
        score = annotation.score if annotation else None
        reason = uncounted(annotation) if annotation else ""
        rows.append(
            {
                "run": run_id,
                "state": states.get(run_id, "committed"),
                "verdict": score.verdict if score else None,
                "peak_fraction": score.peak_fraction if isinstance(score, Passed) else None,
                "counts": None if annotation is None else f"no: {reason}" if reason else "yes",
            }
        )
    return rows


LISTS: dict[str, Callable[[], Rows]] = {
    "problems": _problems,
    "models": _models,
    "harnesses": _harnesses,
    "routes": _routes,
    "hardware": _hardware,
    "runs": _runs,
}


@click.command("list")
@click.argument("what", metavar="WHAT", type=click.Choice(list(LISTS)))
@click.option("--prices", is_flag=True, help="With models: add the listed USD for a million tokens.")
@options.as_json
def list_(what: str, prices: bool, as_json: bool) -> None:
    """List the problems, models, harnesses, routes, hardware or runs."""
    if prices and what != "models":
        raise UsageError(f"--prices is for models: `arena list models --prices`, not {what}")
    rows = _prices() if prices else LISTS[what]()
    if as_json:
        data(rows)
    elif not rows:
        tell(f"no {what}")
    else:
        table = Table(*rows[0], box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(_cell(key, value) for key, value in row.items()))
        with answering():
            tell_table(table)


def _cell(key: str, value: object) -> str:
    if isinstance(value, dict):
        return safe(" ".join(f"{name} {entry:g}" for name, entry in value.items()))
    if isinstance(value, float):
        return f"{value:.4f}" if key == "peak_fraction" else f"{value:g}"
    if key == "verdict" and value:
        return verdict(str(value))
    return "" if value is None else safe(value)
