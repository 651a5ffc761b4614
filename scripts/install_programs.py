"""The part of scripts/cli that reads the harnesses: which programs are missing or of another version, and npm for those."""

from __future__ import annotations

import json
import subprocess
import sys

from arena import catalog
from arena.agents import install as program
from arena.errors import ArenaError
from arena.files.documents import unknown
from arena.schema import Harness

LIMIT_S = 1800


def main(words: list[str]) -> int:
    """The exit status."""
    try:
        known = {name: harness for name, harness in catalog.harnesses().items() if harness.cli}
        names = sorted(known) if words == ["--all"] else words
        if not names or any(name.startswith("-") for name in names):
            print(f"usage: scripts/cli HARNESS...|--all (known: {', '.join(sorted(known))})", file=sys.stderr)
            return 2
        for name in names:
            if name not in known:
                print(f"scripts/cli: {unknown('harness with a program', name, known)}", file=sys.stderr)
                return 2
        return max([install(known[name]) for name in names])
    except ArenaError as error:
        print(f"scripts/cli: {error}", file=sys.stderr)
        return 2


def install(harness: Harness) -> int:
    """npm's exit status, or 0 when all is there."""
    if all(there(harness, package) for package in harness.cli.packages if harness.cli):
        return 0
    print(f"Installing {harness.title} in {program.folder(harness.name)}.", file=sys.stderr)
    program.folder(harness.name).mkdir(parents=True, exist_ok=True)
    return subprocess.run([*program.install(harness), "--loglevel=error"], stdin=subprocess.DEVNULL, timeout=LIMIT_S).returncode


def there(harness: Harness, package: str) -> bool:
    """Whether that package is installed in that very version."""
    name, version = program.split(package)
    try:
        found = json.loads((program.folder(harness.name) / "node_modules" / name / "package.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(found["version"] == version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
