"""Print what `arena import` made of each task as Markdown: `python scripts/import_table.py FOLDER/import.yaml`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from arena.files import documents
from arena.importing.records import Import


def main() -> None:
    """Print the totals by folder of tasks, then a row for each task."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    record = documents.read_yaml(Path(sys.argv[1]), Import)
    ended = Counter((task.source.partition("/")[0], bool(task.problem)) for task in record.tasks)
    print("| level | tasks | converted | refused |\n|---|---|---|---|")
    for level in dict.fromkeys(level for level, _ in ended):
        fit, unfit = ended[level, True], ended[level, False]
        print(f"| {level} | {fit + unfit} | {fit} | {unfit} |")
    print("\n| task | gap | smaller by | or refused, because |\n|---|---|---|---|")
    for task in record.tasks:
        name = task.source.removesuffix(".py")
        if task.problem and task.original_bytes and task.bytes:
            print(f"| {name} | {max(task.gap.values()):.0f} | {task.original_bytes / task.bytes:.3g} | |")
        else:
            print(f"| {name} | | | {task.unfit} |")


if __name__ == "__main__":
    main()
