"""Runs every agent's program against a provider that fails in every way, prints the table, and with --write puts it into
docs/harnesses.md. Names of harnesses run only those, and write nothing.

From the checkout: `PYTHONPATH=.:tests:tests/agent_clis python scripts/failure_table.py [--write | HARNESS...]`.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agents import AGENTS, missing
from failing import BUDGET_S, BUDGETS_S, PATIENCE_S, WAYS, Outcome, attempt

from arena import catalog

PAGE = Path(__file__).resolve().parents[1] / "docs" / "harnesses.md"
START, END = "<!-- failures -->\n", "<!-- end of failures -->"
AT_ONCE = 4
"""Most of a run is waiting."""


def outcomes(harnesses: list[str]) -> dict[tuple[str, str], Outcome]:
    """All runs, by way and harness."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        asked = {
            (way, harness): pool.submit(attempt, Path(folder, harness, way), harness, way)
            for way in WAYS
            for harness in harnesses
        }
        return {key: future.result() for key, future in asked.items()}


def table(found: dict[tuple[str, str], Outcome], harnesses: list[str]) -> str:
    """As Markdown."""
    programs = [cli.packages[0].rpartition("/")[2] for name in harnesses if (cli := catalog.harness(name).cli)]
    lines = [f"| the provider | {' | '.join(programs)} |", "|" + "---|" * (len(harnesses) + 1)]
    for way, text in WAYS.items():
        cells = (found[way, harness].cell() for harness in harnesses)
        lines.append(f"| **{way.replace('_', ' ')}**: {text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary() -> str:
    """When, and under which terms."""
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, `--patience {PATIENCE_S}s`, `--budget {BUDGET_S}s` "
        f"({', '.join(f'{way} {seconds}s' for way, seconds in BUDGETS_S.items())}). Each cell: how the session ended, "
        "the program's exit, seconds until arena knew, requests that reached the provider.\n\n"
    )


def main(words: list[str]) -> int:
    """Run, print, write."""
    harnesses = [word for word in words if word != "--write"] or list(AGENTS)
    if reasons := [reason for harness in harnesses if (reason := missing(harness))]:
        print("\n".join(reasons), file=sys.stderr)
        return 2
    found = outcomes(harnesses)
    text = summary() + table(found, harnesses)
    print(text)
    for (way, harness), outcome in found.items():
        print(f"{way} {harness}: {outcome.message}", file=sys.stderr)
    if "--write" in words:
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
