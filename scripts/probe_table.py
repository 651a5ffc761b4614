"""Runs the escape suite, best as root, and writes its table into docs/sandbox.md.

From the checkout: `PYTHONPATH=.:tests python scripts/probe_table.py`.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path
from typing import Any

from escape import suite
from escape.weaker import PLACES

from arena.system import process

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sandbox.md"
START, END = "<!-- probes -->\n", "<!-- end of probes -->"
COLUMNS = [(user, profile) for user in suite.USERS for profile in suite.PROFILES]


def cell(results: dict[str, Any], entry: suite.Entry, user: str, profile: str) -> str:
    """One outcome in a word."""
    if "unable" in results[user]:
        return "not run"
    if profile not in entry.profiles:
        return ""
    state: str = results[user]["found"][profile][entry.name][0]
    return {"untried": "n/a", "open": "**open**"}.get(state, state)


def shown(results: dict[str, Any], entry: suite.Entry) -> str:
    """Where the probe opened, or why it did not."""
    if entry.opens is None:
        return "–"
    controls = next(results[user]["controls"] for user in suite.USERS if results[user].get("controls"))
    state = controls[entry.name][1]
    return entry.opens if state == "open" else f"({entry.opens})"


def table(results: dict[str, Any]) -> str:
    """The table, its legend, and where it comes from."""
    heads = ["probe", "tries", *(f"{user}, {profile}" for user, profile in COLUMNS), "opens"]
    lines = [" | ".join(["", *heads, ""]).strip(), "|" + "---|" * len(heads)]
    for entry in suite.entries():
        source = f" ({entry.source})" if entry.source else ""
        outcomes = [cell(results, entry, user, profile) for user, profile in COLUMNS]
        words = [f"`{entry.name}`", (entry.text + source).replace("|", "\\|"), *outcomes, shown(results, entry)]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def summary(results: dict[str, Any]) -> str:
    """Machine, day, counts."""
    bwrap = process.run(["bwrap", "--version"], limit_s=10).stdout.decode().strip()
    ran = {user: results[user]["seconds"] for user in suite.USERS if "seconds" in results[user]}
    outcomes = [cell(results, entry, user, profile) for entry in suite.entries() for user, profile in COLUMNS]
    opened = [entry for entry in suite.entries() if entry.opens]
    proven = [entry for entry in opened if not shown(results, entry).startswith("(")]
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, Linux {platform.release()} {platform.machine()}, {bwrap}, "
        f"Python {platform.python_version()}: {len(suite.entries())} probes, {outcomes.count('held')} outcomes held, "
        f"{outcomes.count('**open**')} open, {outcomes.count('n/a')} with nothing to try it on; "
        f"{len(proven)} probes opened where a fence was missing, {len(opened) - len(proven)} would on other machines. "
        f"Took {' and '.join(f'{seconds} s as {user}' for user, seconds in ran.items())}.\n\n"
    )


def main() -> None:
    """Run, write, and tell what is open without an argument for it."""
    results = suite.everything()
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    places = "".join(f"- `{place}`: {text}\n" for place, text in PLACES.items())
    PAGE.write_text(f"{before}{START}\n{summary(results)}{table(results)}\nWhere a probe opens:\n\n{places}\n{END}{after}")
    for user in suite.USERS:
        if "unable" in results[user]:
            print(f"{user}: not run: {results[user]['unable']}", file=sys.stderr)
            continue
        for profile, found in results[user]["found"].items():
            for name, (state, detail) in found.items():
                argued = name in suite.ARGUED and user in suite.ARGUED[name].users
                if state == "broken" or (state == "open" and not argued):
                    print(f"{user} {profile} {name}: {state}: {detail}", file=sys.stderr)
    print(
        f"{PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE} written as user {os.geteuid()}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
