"""Write docs/tables/check_<hardware>.md from what `arena check --json > FILE` found: `scripts/check_table.py FILE ...`.

Several files of one kind of hardware become one page, as where two GPUs shared the problems. A failed check is shown as such.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "docs" / "tables"
Outcome = Mapping[str, Any]


def page(reports: Sequence[Outcome]) -> Iterator[str]:
    """The lines of one hardware's page."""
    solutions = [finding for report in reports for finding in report["findings"] if finding["kind"] == "solution"]
    failed = [f"{report['problem']}: {each['name']}" for report in reports for each in report["findings"] if not each["ok"]]
    total_s = sum(report["seconds"] or 0 for report in reports)
    yield f"# What `arena check` found on {reports[0]['hardware']}"
    yield ""
    yield f"Written by `scripts/check_table.py` from `arena check --hardware {reports[0]['hardware']} --json`."
    for where in sorted({where_from(report) for report in reports}):
        yield f"{where}."
    yield f"{len(reports)} problems, {len(solutions)} solutions, {total_s / 60:.1f} minutes, the problems' own added up."
    yield f"**Failed: {', '.join(failed)}.**" if failed else "Every check passed."
    yield ""
    yield "`seconds` is how long a solution's score took; checks run side by side, so they overlap."
    for report in reports:
        yield ""
        yield from table(report)


def where_from(report: Outcome) -> str:
    """The device and the versions that a report records."""
    device, versions = report["device"], report["environment"]
    if device is None:
        return f"{report['problem']}: no solution passed, so no device is recorded"
    parts = [device["name"], *([f"driver {device['driver']}"] if device["driver"] else [])]
    return ", ".join([*parts, *(f"{name} {version}" for name, version in versions.items())])


def table(report: Outcome) -> Iterator[str]:
    """One problem's solutions, and its checks of order and repetition."""
    seconds = "" if report["seconds"] is None else f", {report['seconds']:.0f} s"
    version = "" if report["version"] is None else f" {report['version']}"
    yield f"## {report['problem']}{version}{seconds}"
    yield ""
    yield "| solution | expected | verdict | peak_fraction | seconds |"
    yield "|---|---|---|---|---|"
    for each in report["findings"]:
        if each["kind"] == "solution":
            verdict = each["got"] if each["ok"] else f"**{each['got']}**"
            fraction = "" if each["peak_fraction"] is None else f"{each['peak_fraction']:.4f}"
            took = "" if each["seconds"] is None else f"{each['seconds']:.1f}"
            yield f"| {each['name']} | {each['expected']} | {verdict} | {fraction} | {took} |"
    others = [each for each in report["findings"] if each["kind"] in ("order", "repeat")]
    if others:
        yield ""
        yield f"{'; '.join(' '.join([each['name'], each['got'], each['detail']]) for each in others)}."


def main() -> None:
    """Write a page for each kind of hardware."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    reports = [report for path in sys.argv[1:] for report in json.loads(Path(path).read_text())]
    for hardware in sorted({report["hardware"] for report in reports}):
        mine = sorted((each for each in reports if each["hardware"] == hardware), key=lambda each: str(each["problem"]))
        path = TABLES / f"check_{hardware}.md"
        path.write_text("\n".join(page(mine)) + "\n")
        print(path)


if __name__ == "__main__":
    main()
