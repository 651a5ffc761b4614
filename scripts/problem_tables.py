"""Puts what `arena check --all --json` found into the tables of docs/problems.md: `... --json > F`, then this with F."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "problems.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"


def table(report: Mapping[str, Any], tolerance: Mapping[str, float]) -> Iterator[str]:
    """One problem's solutions: verdict, the class of inputs that refused it, errors against the gate, fraction."""
    gate = ", ".join(f"{metric} {most:g}" for metric, most in tolerance.items())
    yield f"### {report['problem']} on {report['hardware']}"
    yield ""
    yield f"The gate: {gate}."
    yield ""
    yield "| solution | verdict | refused on | error | peak_fraction |"
    yield "|---|---|---|---|---|"
    for finding in report["findings"]:
        if finding["kind"] != "solution":
            continue
        error = ", ".join(f"{metric} {value:.2g}" for metric, value in (finding["error"] or {}).items())
        fraction = "" if finding["peak_fraction"] is None else f"{finding['peak_fraction']:.3f}"
        yield f"| {finding['name']} | {finding['got']} | {finding['input_class'] or ''} | {error} | {fraction} |"
    others = [f"{f['name']} {f['got']}" for f in report["findings"] if f["kind"] in ("order", "repeat")]
    yield ""
    yield f"{'; '.join(others)}. Self-test: {', '.join(f['name'] for f in report['findings'] if f['kind'] == 'degenerate')}."
    yield ""


def main() -> None:
    """Rewrite the part of the page between the marks."""
    from arena import catalog

    reports = json.loads(Path(sys.argv[1]).read_text())
    if wrong := [f"{report['problem']}: {f['name']}" for report in reports for f in report["findings"] if not f["ok"]]:
        sys.exit(f"not every check passed, and such a table is not kept: {', '.join(wrong)}")
    lines = [line for report in reports for line in table(report, catalog.problem(report["problem"]).tolerance)]
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    assert mark, f"{PAGE} has no line {BEGIN}"
    PAGE.write_text("\n".join([f"{before}{BEGIN}", "", *lines, f"{END}{rest.partition(END)[2]}"]))


if __name__ == "__main__":
    main()
