"""`arena import kernelbench`: tasks of KernelBench's form, each a module with its inputs, become problems.

The text of a task is read here; it runs in a sandbox alone. Who judges with an imported problem runs its reference in the
judge's process, as that of every problem: read it first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arena import paths
from arena.errors import UsageError
from arena.files.text import plain, render
from arena.importing import folder, sandboxed
from arena.importing.folder import Facts
from arena.importing.records import Arithmetic, Imported, Measured, Probed, Trace
from arena.importing.task import Task, Unfit, parse
from arena.sandboxes import Sandbox

MOST_BYTES = 1_000_000_000
"""Of one call on a GPU: inputs, fp64 reference, and the judge's and the worker's share must fit its memory."""
SMALL_BYTES, SMALL_FLOPS = 4_000_000, 100_000_000
"""Of one call on a CPU."""
PROBE_S, MEASURE_S = 180.0, 300.0
LEAST_GAP = 16.0
"""The next coarser arithmetic must be so many times as far off as the allowed one, by one metric at least."""
LEAST_ERROR = 2.0**-24
"""A gate is never measured from less: what eager computes exactly, another honest kernel may round."""
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
LICENCE_LINES, LICENCE_CHARACTERS = 3, 160
Given = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Sizes that a user chose: problem, profile, name."""


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


def convert(
    path: Path, out: Path, sandbox: Sandbox, *, arithmetic: Arithmetic, rules: bool, given: Given, note: Callable[[str], None]
) -> Imported:
    """Convert one task into a folder below `out`; a record with the reason where it is unfit."""
    source = path.read_bytes()
    name = problem_name(path, arithmetic)
    head: dict[str, Any] = {"source": path.name, "sha256": hashlib.sha256(source).hexdigest(), "arithmetic": arithmetic}
    if (out / name).exists():
        raise UsageError(f"{out / name}: is there already; remove it, or choose another --out")
    try:
        note(f"{name}: tracing")
        task = parse(source)
        facts = _probed(task, path, name, sandbox, arithmetic, rules, given.get(name, {}))
        note(f"{name}: measuring its gate")
        measured = _measured(facts, sandbox)
        folder.write(out / name, facts, measured)
    except Unfit as unfit:
        return Imported(**head, unfit=str(unfit))
    except ValidationError as error:
        first = error.errors()[0]
        return Imported(**head, unfit=f"its report is out of bounds: {'.'.join(map(str, first['loc']))}: {first['msg'][:120]}")
    original, gpu = facts.probed.original, facts.probed.gpu
    return Imported(
        **head,
        problem=name,
        original_bytes=original.bytes,
        bytes=gpu.bytes,
        original={size: original.shape[size] for size in facts.probed.sizes},
        shape={size: gpu.shape[size] for size in facts.probed.sizes},
        tolerance=measured.tolerance,
        gap=measured.gap,
        classes=measured.classes,
    )


def _probed(
    task: Task,
    path: Path,
    name: str,
    sandbox: Sandbox,
    arithmetic: Arithmetic,
    rules: bool,
    given: Mapping[str, Mapping[str, int]],
) -> Facts:
    """The facts of a task whose tensors and sizes are known."""
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
    }
    unknown = Trace(shape={}, inputs=(("float32", ()),), outputs=(("float32", ()),), flops=0, bytes=1)
    empty = Probed(sizes={}, gpu=unknown, cpu=unknown, original=unknown, parameters=(), forward=1, scalars=())
    facts = Facts(task, name, title, f"{path.parent.name}/{path.name}", licence(path), arithmetic, empty, rules)
    text = _every_size(facts)
    probed = Probed.model_validate(sandboxed.report(sandbox, "probe", {"core.py": text.encode()}, order, PROBE_S))
    if any(size not in task.numbers for size in probed.sizes):
        raise Unfit("its report names sizes that its module does not have")
    return Facts(task, name, title, facts.origin, facts.licence, arithmetic, probed, rules)


def _every_size(facts: Facts) -> str:
    """reference.py in which every number of the module comes from the shape, for the probe."""
    variables: dict[str, Any] = folder.core(facts, dict.fromkeys(facts.task.numbers, (0, 0)))
    return render(folder.TEMPLATES / "reference.py.j2", **variables)


def _measured(facts: Facts, sandbox: Sandbox) -> Measured:
    """The gate of a task."""
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
        "dtype": facts.probed.cpu.outputs[0][0],
        "coarser": facts.coarser,
        "allowed": "allowed.py" in texts,
        "least_gap": LEAST_GAP,
        "least_error": LEAST_ERROR,
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
