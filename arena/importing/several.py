"""Import several tasks at once so that an interrupt loses nothing, and the same command goes on where it ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Queue
from threading import Thread

from arena.errors import UsageError
from arena.files import documents
from arena.importing.records import Import, Imported

RECORD = "import.yaml"
STAGED = ".import"
"""Where folders are written before they are moved to their place. No problem is looked for in it."""
Convert = Callable[[Path, Path], Imported]
"""Converts a task into a folder."""


class Record:
    """The record of a folder of imports, written again after each task."""

    def __init__(self, out: Path, head: Import) -> None:
        """`head` has no tasks: those of earlier imports into `out` are kept. DataError when its record cannot be read, UsageError
        when it is of another benchmark."""
        self.out, self.head = out, head
        before = documents.read_yaml(out / RECORD, Import) if (out / RECORD).is_file() else head
        if before.benchmark != head.benchmark:
            raise UsageError(f"{out / RECORD} is of imports of the form {before.benchmark}: choose another --out")
        self.tasks = {(task.source, task.arithmetic): task for task in before.tasks}

    def done(self, heads: Mapping[Path, Imported], names: Mapping[Path, str]) -> dict[Path, Imported]:
        """Those of the tasks that need no work. UsageError when a folder is there that is none of theirs."""
        found, strange = dict[Path, Imported](), list[str]()
        for path, head in heads.items():
            known, there = self.tasks.get((head.source, head.arithmetic)), (self.out / names[path]).exists()
            if known and known.same(head) and there == bool(known.problem):
                found[path] = known
            elif there and known and known.same(head.model_copy(update={"arena_version": known.arena_version})):
                found[path] = known  # by another version of arena: a problem does not change unless it is removed
            elif there:
                strange.append(names[path])
        if strange:
            listed = ", ".join(strange[:8]) + (f" and {len(strange) - 8} more" if strange[8:] else "")
            raise UsageError(
                f"{self.out}: {listed} {'is' if len(strange) == 1 else 'are'} there already, of another file or with other"
                " options; remove what is there, or choose another --out"
            )
        return found

    def add(self, task: Imported, staged: Path) -> None:
        """Write the record with this task, and then move its folder to its place.

        In this order: a folder without a record is never an import's, and a record without its folder is converted again.
        """
        self.tasks[task.source, task.arithmetic] = task
        self.write()
        if task.problem:
            staged.rename(self.out / task.problem)

    def write(self) -> None:
        """Write import.yaml, its tasks in the order of their sources."""
        ordered = sorted(self.tasks.values(), key=lambda task: (natural(task.source), task.arithmetic))
        documents.write_yaml(self.out / RECORD, self.head.model_copy(update={"tasks": tuple(ordered)}))


def natural(source: str) -> list[tuple[int, str]]:
    """A key by which `level1/9_a` comes before `level1/10_b`."""
    return [(int(part.partition("_")[0]) if part.partition("_")[0].isdigit() else 0, part) for part in source.split("/")]


def convert_all(paths: Sequence[Path], convert: Convert, record: Record, at_once: int) -> Iterator[tuple[Path, Imported]]:
    """Convert the tasks, `at_once` at a time, and yield each when it is recorded.

    After an interrupt arena does not wait for the threads: their sandboxes end with it.
    """
    record.out.mkdir(parents=True, exist_ok=True)
    staging = record.out / STAGED
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    waiting, ended = Queue[Path | None](), Queue[tuple[Path, Path, Imported | BaseException]]()
    for path in paths:
        waiting.put(path)

    def work() -> None:
        while (path := waiting.get()) is not None:
            staged = staging / f"{paths.index(path)}"
            try:
                ended.put((path, staged, convert(path, staged)))
            except BaseException as error:
                ended.put((path, staged, error))
                return

    threads = [Thread(target=work, daemon=True) for _ in range(min(at_once, len(paths)))]
    for thread in threads:
        waiting.put(None)
        thread.start()
    for _ in paths:
        path, staged, found = ended.get()
        if isinstance(found, BaseException):
            raise found
        record.add(found, staged)
        yield path, found
    shutil.rmtree(staging, ignore_errors=True)
