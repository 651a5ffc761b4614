"""Write docs/tables/problems.md from what `arena check --all --json > FILE` found: `scripts/problem_tables.py FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "problems.md"
HEAD = """\
# What every solution gets

Written by `scripts/problem_tables.py` from `arena check --all --hardware cpu --json`.
[problems.md](../problems.md#what-every-solution-gets) says how to read it.
"""


def table(report: Mapping[str, Any], tolerance: Mapping[str, float]) -> Iterator[str]:
    """One problem's solutions: verdict, the input class that each was rejected on, errors, fraction."""
    yield f"## {report['problem']} on {report['hardware']}"
    yield ""
    yield f"Tolerance: {', '.join(f'{metric} {most:g}' for metric, most in tolerance.items())}."
    yield ""
    yield "| solution | verdict | rejected on | error | peak_fraction |"
    yield "|---|---|---|---|---|"
    for finding in report["findings"]:
        if finding["kind"] != "solution":
            continue
        error = ", ".join(f"{metric} {value:.2g}" for metric, value in (finding["error"] or {}).items())
        fraction = "" if finding["peak_fraction"] is None else f"{finding['peak_fraction']:.3f}"
        yield f"| {finding['name']} | {finding['got']} | {finding['input_class'] or ''} | {error} | {fraction} |"
    others = [f"{f['name']} {f['got']}" for f in report["findings"] if f["kind"] in ("order", "repeat")]
    degenerate = [f["name"] for f in report["findings"] if f["kind"] == "degenerate"]
    rejected = [name.removeprefix("degenerate: ") for name in degenerate if name.startswith("degenerate: ")]
    yield ""
    yield f"{'; '.join(others)}. Degenerate answers, all rejected: {', '.join(rejected)}."


def main() -> None:
    """Write the page anew; a report with a failed check is not kept."""
    from arena import catalog

    reports = json.loads(Path(sys.argv[1]).read_text())
    if wrong := [f"{report['problem']}: {f['name']}" for report in reports for f in report["findings"] if not f["ok"]]:
        sys.exit(f"{PAGE} is unchanged, because checks failed: {', '.join(wrong)}")
    parts = ["\n".join(table(report, catalog.problem(report["problem"]).tolerance)) for report in reports]
    PAGE.write_text("\n".join([HEAD, *(f"{part}\n" for part in parts)]))


if __name__ == "__main__":
    main()
