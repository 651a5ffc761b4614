"""`arena import kernelbench`: tasks of KernelBench's form, each a module with its inputs, become problems.

The text of a task is read here; it runs in a sandbox alone. Who judges with an imported problem runs its reference in the
judge's process, as that of every problem: read it first.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

import arena
from arena import paths
from arena.errors import UsageError
from arena.files.text import plain, render
from arena.importing import folder, sandboxed
from arena.importing.folder import Facts
from arena.importing.records import LEAST_GAP, MOST_TOLERANCE, Arithmetic, Given, Imported, Measured, Probed
from arena.importing.task import Task, Unfit, parse
from arena.sandboxes import Sandbox

MOST_BYTES = 1_000_000_000
"""Of one call on a GPU: inputs, fp64 reference, and the judge's and the worker's share must fit its memory."""
SMALL_BYTES, SMALL_FLOPS = 4_000_000, 100_000_000
"""Of one call on a CPU."""
LEAST_SIZE = 8
"""Numbers below it are kernel sizes, strides and dimensions rather than sizes, except for a batch."""
PROBE_S, MEASURE_S = 180.0, 300.0
LEAST_ERROR = 2.0**-24
"""A gate is never measured from less: what eager computes exactly, another honest kernel may round."""
WHY = (Unfit, ValidationError, RecursionError, MemoryError)
"""What says that a task is unfit. The last two are Python's own, for a text that is nested too deeply to be written again."""
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
LICENCE_LINES, LICENCE_CHARACTERS = 3, 160


def files(source: str) -> list[Path]:
    """The tasks of a path: a file, a folder, or a folder and a task's number (`KernelBench/level2/80`). UsageError."""
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(path.glob("*.py"), key=lambda each: (_number(each), each.name))
    else:
        found = sorted(path.parent.glob(f"{path.name}_*.py")) if path.name.isdigit() else []
    if not found:
        raise UsageError(f"{source}: no task there: give a file, a folder of tasks, or a folder and a number such as level2/80")
    return found


def problem_name(path: Path, arithmetic: Arithmetic) -> str:
    """`kb_l1_023`, or `kb_<file>` where the path names no level. Another arithmetic than fp32 is part of the name."""
    level = re.fullmatch(r"level(\d+)", path.parent.name)
    stem = re.sub(r"[^a-z0-9]+", "_", path.stem.lower()).strip("_")[:40] or "task"
    name = f"kb_l{level[1]}_{_number(path):03d}" if level and _number(path) < 10**6 else f"kb_{stem}"
    return name if arithmetic == "fp32" else f"{name}_{arithmetic}"


def licence(path: Path) -> tuple[str, ...]:
    """The first lines of the licence above a file, for comments."""
    for above in path.resolve().parents:
        for name in LICENCES:
            if (above / name).is_file():
                lines = (plain(line, LICENCE_CHARACTERS) for line in (above / name).read_text(errors="replace").splitlines())
                return tuple(line for line in lines if line)[:LICENCE_LINES]
    return ()


@dataclass(frozen=True)
class Choices:
    """What a user chooses of an import."""

    arithmetic: Arithmetic = "fp32"
    rules: bool = False
    given: Mapping[str, Given] = field(default_factory=dict)
    """Sizes, by problem."""


def head(path: Path, choices: Choices) -> Imported:
    """The record of a task that is not converted yet: its file and what was chosen for it."""
    name = problem_name(path, choices.arithmetic)
    return Imported(
        source=f"{path.resolve().parent.name}/{path.name}",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        arithmetic=choices.arithmetic,
        rules=choices.rules,
        given=choices.given.get(name, {}),
        commit=commit(path),
        licence=licence(path),
        arena_version=arena.__version__,
    )


def convert(
    path: Path, out: Path, sandbox: Sandbox, choices: Choices = Choices(), note: Callable[[str], None] = lambda _: None
) -> Imported:
    """Convert one task into the new folder `out`. The record says why where it is unfit; then there is no folder."""
    known, name = head(path, choices), problem_name(path, choices.arithmetic)
    try:
        note(f"{name}: tracing")
        task = parse(path.read_bytes())
        facts = _probed(task, path, name, sandbox, choices)
        note(f"{name}: measuring its gate")
        measured = measure(facts, sandbox)
        folder.write(out, facts, measured)
    except WHY as reason:
        return known.model_copy(update={"unfit": why(reason)})
    return recorded(known, facts, measured)


def why(reason: Exception) -> str:
    """Why a task is unfit, in a few words, from one of `WHY`."""
    if isinstance(reason, RecursionError | MemoryError):
        return "its text is nested too deeply"
    if isinstance(reason, Unfit):
        return str(reason)
    assert isinstance(reason, ValidationError)
    first = reason.errors()[0]
    return f"its report is out of bounds: {'.'.join(map(str, first['loc']))}: {first['msg'][:160]}"


def recorded(known: Imported, facts: Facts, measured: Measured) -> Imported:
    """The record of a task that became a problem."""
    name, original, gpu = facts.name, facts.probed.original, facts.probed.gpu
    found = {
        "problem": name,
        "original_bytes": original.bytes,
        "bytes": gpu.bytes,
        "original": {size: original.shape[size] for size in facts.probed.sizes},
        "shape": {size: gpu.shape[size] for size in facts.probed.sizes},
        "tolerance": measured.tolerance,
        "gap": {metric: float(f"{value:.4g}") for metric, value in measured.gap.items()},
        "classes": measured.classes,
        "dropped": measured.dropped,
    }
    return Imported.model_validate(known.model_dump(exclude=set(found)) | found)


def _probed(task: Task, path: Path, name: str, sandbox: Sandbox, choices: Choices) -> Facts:
    """The facts of a task whose tensors and sizes are known."""
    given = choices.given.get(name, {})
    for chosen in given.values():
        if wrong := [size for size in chosen if size not in task.numbers]:
            raise UsageError(f"--sizes: {name}: {wrong[0]!r} is no number of its module (it has {', '.join(task.numbers)})")
    title = plain(f"KernelBench {path.parent.name} {path.stem.replace('_', ' ')}", 100)
    order = {
        "sizes": task.numbers,
        "given": given,
        "most_bytes": MOST_BYTES,
        "small_bytes": SMALL_BYTES,
        "small_flops": SMALL_FLOPS,
        "least": LEAST_SIZE,
    }
    origin, terms = f"{path.parent.name}/{path.name}", licence(path)
    every = folder.unprobed(task, title, origin, terms, dict.fromkeys(task.numbers, (0, 0)))
    text = render(folder.TEMPLATES / "reference.py.j2", **every)
    probed = Probed.model_validate(sandboxed.report(sandbox, "probe", {"core.py": text.encode()}, order, PROBE_S))
    if any(size not in task.numbers for size in probed.sizes):
        raise Unfit("its report names sizes that its module does not have")
    return Facts(task, name, title, origin, terms, choices.arithmetic, probed, choices.rules)


def measure(facts: Facts, sandbox: Sandbox) -> Measured:
    """The gate of a task, measured in the sandbox."""
    texts = {
        "problem/__init__.py": "",
        "problem/reference.py": folder.reference(facts),
        "problem/hidden.py": folder.hidden(facts, ()),
        **{f"{name}.py": text for name, text in folder.solutions(facts, weights_vary=False)},
        "kit_check.py": (paths.problems() / "kit" / "check.py").read_text(),
    }
    if facts.arithmetic == "tf32" and not facts.half:  # no CPU multiplies tf32: what it would leave is rounded by hand
        texts["allowed.py"] = folder.solution(facts, "wrong_coarser", "#", "The allowed arithmetic.", coarser="tf32")
    order = {
        "shape": dict(facts.probed.cpu.shape),
        "gpu_rows": math.prod(facts.probed.gpu.outputs[0][1][:-1]),
        "dtype": facts.probed.cpu.outputs[0][0],
        "coarser": facts.coarser,
        "allowed": "allowed.py" in texts,
        "least_gap": LEAST_GAP,
        "most": MOST_TOLERANCE,
        "least_error": LEAST_ERROR,
        "whole": facts.exact,  # KernelBench's own inputs are drawn and read as a whole
    }
    data = {name: text.encode() for name, text in texts.items()}
    return Measured.model_validate(sandboxed.report(sandbox, "measure", data, order, MEASURE_S))


def _number(path: Path) -> int:
    found = re.match(r"(\d+)_", path.name)
    return int(found[1]) if found else 10**9


def commit(path: Path) -> str:
    """The commit of the git repository around a path; empty without one."""
    for above in path.resolve().parents:
        head = above / ".git" / "HEAD"
        if head.is_file():
            text = head.read_text().strip()
            if not text.startswith("ref: "):
                return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else ""
            ref = above / ".git" / text.removeprefix("ref: ")
            name = text.removeprefix("ref: ")
            packed = above / ".git" / "packed-refs"
            lines: Iterator[str] = iter(packed.read_text().splitlines() if packed.is_file() else ())
            found = ref.read_text().strip() if ref.is_file() else next((line[:40] for line in lines if line.endswith(name)), "")
            return found if re.fullmatch(r"[0-9a-f]{40,64}", found) else ""
    return ""


def sources(given: Sequence[str]) -> list[Path]:
    """The tasks of all paths, each once."""
    return list(dict.fromkeys(path for source in given for path in files(source)))
