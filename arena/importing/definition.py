"""`arena import definition`: an operator of FlashInfer-Bench or SOL-ExecBench becomes a problem, with its workloads as shapes.

Its text is made a task of the other import's form: its sizes become numbers of a module, its `run` the module's forward. What
reads, runs, measures and writes such a task is the same. Tensors are drawn anew for each call, so values out of files do not fit.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import arena
from arena.errors import UsageError
from arena.files.text import plain, render
from arena.importing import folder, kernelbench, sandboxed
from arena.importing.definition_format import (
    Const,
    Definition,
    Safetensors,
    Spec,
    Workload,
    read_definition,
    read_workloads,
)
from arena.importing.definition_text import OWN_NAMES, module, scalars
from arena.importing.folder import CLASSES, Facts
from arena.importing.records import WIDTHS, Arithmetic, Imported, Measured, Probed
from arena.importing.task import Unfit, parse
from arena.sandboxes import Sandbox
from arena.schema import DType

MOST_SHAPES, MOST_EXTRA = 5, 8
"""Of the workloads: timed ones, the largest; and further ones, only checked."""
SMALL_FLOPS = 1_000_000_000
"""Of one call on a CPU. Constant sizes are part of an operator and stay, so this is more than for KernelBench's tasks."""
MOST_LEAST = 200_000_000
"""Bytes of a call in which every variable size is 1: measuring keeps several, also in fp64."""
BYTES = {"int16": 2} | WIDTHS


@dataclass(frozen=True)
class Chosen:
    """The workloads that become shapes."""

    timed: tuple[Workload, ...]
    """The largest first."""
    extra: tuple[Workload, ...]
    left: tuple[str, ...]
    """Why others are none, each in a few words."""


def problem_name(definition: Definition, arithmetic: Arithmetic) -> str:
    """`def_<name>`; another arithmetic than fp32 is part of the name."""
    stem = re.sub(r"[^a-z0-9]+", "_", definition.name.lower()).strip("_")[:50].strip("_") or "operator"
    return f"def_{stem}" if arithmetic == "fp32" else f"def_{stem}_{arithmetic}"


def head(path: Path, workloads: Path, choices: kernelbench.Choices, definition: Definition) -> Imported:
    """The record of a definition that is not converted yet."""
    name = problem_name(definition, choices.arithmetic)
    digest = hashlib.sha256(path.read_bytes() + b"\0" + workloads.read_bytes()).hexdigest()
    return Imported(
        source=f"{path.resolve().parent.name}/{path.name} ({plain(definition.name, 200)})",
        sha256=digest,
        arithmetic=choices.arithmetic,
        rules=choices.rules,
        given=choices.given.get(name, {}),
        commit=kernelbench.commit(path),
        licence=kernelbench.licence(path),
        arena_version=arena.__version__,
    )


def convert(
    path: Path,
    workloads: Path,
    out: Path,
    sandbox: Sandbox,
    choices: kernelbench.Choices,
    note: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Convert a definition into the new folder `out`. The record says why where it is unfit; DataError for a broken file."""
    definition = read_definition(path)
    given = read_workloads(workloads, definition)
    name = problem_name(definition, choices.arithmetic)
    known = head(path, workloads, choices, definition)
    try:
        _check_tensors(definition)
        chosen = choose(definition, given)
        note(f"{name}: tracing")
        facts = _probed(definition, chosen, name, path, sandbox, choices)
        note(f"{name}: measuring its gate")
        measured = kernelbench.measure(facts, sandbox)
        found = problem(definition, chosen, facts, measured)
        folder.write(out, facts, measured, found, [_shape(definition, facts, workload) for workload in chosen.extra])
    except kernelbench.WHY as reason:
        return known.model_copy(update={"unfit": kernelbench.why(reason)})
    theirs = {key: value for key, value in (chosen.timed[0].tolerance or {}).items() if type(value) in (int, float)}
    dropped = {"workloads": "; ".join(chosen.left)[:2000]} if chosen.left else {}
    record = kernelbench.recorded(known, facts, measured)
    return record.model_copy(update={"dropped": {**record.dropped, **dropped}, "theirs": theirs})


def _check_tensors(definition: Definition) -> None:
    """Unfit for what the import does not know, or what has several right answers."""
    known = get_args(DType)
    for name, spec in (*definition.inputs.items(), *definition.outputs.items()):
        if spec.dtype not in known and spec.shape is not None:
            raise Unfit(f"{name} is {spec.dtype}, which arena does not know")
    if len(definition.outputs) != 1:
        raise Unfit(f"{len(definition.outputs)} outputs: the import knows operators with one")
    [(name, output)] = definition.outputs.items()
    if output.shape is None:
        raise Unfit(f"the output {name} is a Python number, not a tensor")
    if not output.dtype.startswith(("float", "bfloat")):
        raise Unfit(f"an output of {output.dtype}: equal values have several right answers, and the kit's metrics do not fit")
    shown = {axis for spec in definition.inputs.values() for axis in spec.shape or ()}
    if hidden := [axis for axis in output.shape if axis not in shown and not isinstance(definition.axes[axis], Const)]:
        raise Unfit(f"the size {hidden[0]} of the output is a dimension of no input")
    if own := sorted({*definition.axes, *definition.inputs} & OWN_NAMES):
        raise Unfit(f"something of it is called {own[0]}, a name that the import needs itself")


def size_bytes(definition: Definition, sizes: Mapping[str, int]) -> int:
    """Of one call's tensors, at these values of the axes."""
    tensors = [spec for spec in (*definition.inputs.values(), *definition.outputs.values()) if spec.shape is not None]
    return sum(BYTES.get(spec.dtype, 1) * math.prod(sizes[axis] for axis in spec.shape or ()) for spec in tensors)


def choose(definition: Definition, given: Sequence[Workload]) -> Chosen:
    """The workloads that become timed and further shapes. Unfit when none can: for all of them the reason is in the text."""
    fit, left = list[Workload](), list[str]()
    for workload in given:
        files = [name for name, source in workload.inputs.items() if isinstance(source, Safetensors)]
        if files:
            left.append(f"{workload.uuid}: {files[0]} comes out of a file, and every call needs new values")
        else:
            fit.append(workload)
    if not fit:
        raise Unfit(f"no workload fits: {left[0]}")
    numbers = scalars(fit[0])
    left += [f"{one.uuid}: has other numbers ({scalars(one)})" for one in fit if scalars(one) != numbers]
    distinct = {tuple(sorted(one.axes.items())): one for one in reversed(fit) if scalars(one) == numbers}
    ordered = sorted(distinct.values(), key=lambda one: (-_bytes(definition, one), one.uuid))
    small = [one for one in ordered if _bytes(definition, one) <= kernelbench.MOST_BYTES]
    large = [one for one in ordered if _bytes(definition, one) > kernelbench.MOST_BYTES]
    if not small:  # the smallest of them, at sizes that the probe halves
        small = [large.pop()]
    left += [f"{one.uuid}: {_bytes(definition, one) / 1e9:.1f} GB a call" for one in large]
    left += [f"{one.uuid}: one of more than {MOST_SHAPES + MOST_EXTRA} sizes" for one in small[MOST_SHAPES + MOST_EXTRA :]]
    return Chosen(tuple(small[:MOST_SHAPES]), tuple(small[MOST_SHAPES : MOST_SHAPES + MOST_EXTRA]), tuple(left))


def _bytes(definition: Definition, workload: Workload) -> int:
    return size_bytes(definition, definition.sizes(workload.axes))


def _probed(
    definition: Definition, chosen: Chosen, name: str, path: Path, sandbox: Sandbox, choices: kernelbench.Choices
) -> Facts:
    """The facts of a definition, traced at its largest workload. Its tensors must be those that it declares."""
    task = parse(module(definition, chosen.timed[0]).encode())
    variable = {axis for axis, each in definition.axes.items() if not isinstance(each, Const)}
    numbers = {axis: value for axis, value in task.numbers.items() if axis in variable}
    given = choices.given.get(name, {})
    for sizes in given.values():
        if wrong := [size for size in sizes if size not in numbers]:
            raise UsageError(f"--sizes: {name}: {wrong[0]!r} is no variable size of it (it has {', '.join(numbers)})")
    title, terms = plain(definition.name, 100), kernelbench.licence(path)
    least = size_bytes(definition, _constants(definition) | dict.fromkeys(variable, 1))
    if least > MOST_LEAST:
        raise Unfit(f"its constant sizes alone take {least / 1e6:.0f} MB a call, and its gate is measured on a CPU")
    order = {
        "sizes": numbers,
        "given": given,
        "most_bytes": kernelbench.MOST_BYTES,
        "small_bytes": max(kernelbench.SMALL_BYTES, 2 * least),
        "small_flops": SMALL_FLOPS,
        "least": 1,
    }
    origin = f"{path.parent.name}/{path.name}"
    text = render(
        folder.TEMPLATES / "reference.py.j2", **folder.unprobed(task, title, origin, terms, dict.fromkeys(numbers, (0, 0)))
    )
    report = sandboxed.report(sandbox, "probe", {"core.py": text.encode()}, order, kernelbench.PROBE_S)
    probed = Probed.model_validate(report)
    if probed.parameters or any(size not in numbers for size in probed.sizes):
        raise Unfit("its report names sizes or parameters that it does not have")
    shown = {axis for spec in definition.inputs.values() for axis in spec.shape or ()}
    if left := sorted((variable & shown) - probed.sizes.keys()):
        raise Unfit(f"its inputs do not follow the size {left[0]}")
    for trace in (probed.cpu, probed.gpu):
        _check_declared(definition, trace.shape, trace.inputs, trace.outputs)
        if broken := definition.broken(_constants(definition) | dict(trace.shape)):
            raise Unfit(f"smaller sizes break its constraint {broken!r} (--sizes chooses some)")
    return Facts(task, name, title, origin, terms, choices.arithmetic, probed, choices.rules, exact=True)


def _constants(definition: Definition) -> dict[str, int]:
    return {axis: each.value for axis, each in definition.axes.items() if isinstance(each, Const)}


def _check_declared(
    definition: Definition,
    shape: Mapping[str, int],
    inputs: Sequence[tuple[str, Sequence[int]]],
    outputs: Sequence[tuple[str, Sequence[int]]],
) -> None:
    """Unfit when a call's tensors are others than those that the definition declares."""
    sizes = _constants(definition) | dict(shape)
    tensors = {name: spec for name, spec in definition.inputs.items() if spec.shape is not None}
    if len(tensors) != len(inputs):
        raise Unfit(f"{len(inputs)} of its inputs are tensors, and it declares {len(tensors)}")
    for (name, spec), (dtype, found) in zip((*tensors.items(), *definition.outputs.items()), (*inputs, *outputs), strict=True):
        wanted = [sizes.get(axis) for axis in spec.shape or ()]
        if (spec.dtype, wanted) != (dtype, list(found)):
            raise Unfit(f"{name} is {dtype} {list(found)}, and it declares {spec.dtype} {wanted}")


def _shape(definition: Definition, facts: Facts, workload: Workload) -> dict[str, int]:
    """The sizes of a workload that a problem's shape names."""
    sizes = definition.sizes(workload.axes)
    return {axis: sizes[axis] for axis in facts.probed.sizes}


def problem(definition: Definition, chosen: Chosen, facts: Facts, measured: Measured) -> dict[str, Any]:
    """problem.yaml."""
    gpu = {axis: facts.probed.gpu.shape[axis] for axis in facts.probed.sizes}
    cpu = {axis: facts.probed.cpu.shape[axis] for axis in facts.probed.sizes}
    larger = [_shape(definition, facts, workload) for workload in chosen.timed]
    timed = [gpu, *(shape for shape in larger[1:] if shape != gpu)]
    constants = _constants(definition)
    tensors = {name: spec for name, spec in definition.inputs.items() if spec.shape is not None}

    def declared(name: str, spec: Spec) -> dict[str, Any]:
        sizes = [axis if axis in facts.probed.sizes else constants[axis] for axis in spec.shape or ()]
        note = {"note": plain(spec.description, 200)} if spec.description else {}
        return {"name": name, "shape": sizes, "dtype": spec.dtype} | note

    inputs = [declared(name, spec) for name, (_, spec) in zip(facts.arguments(), tensors.items(), strict=True)]
    [(_, output)] = definition.outputs.items()
    own = ", ".join(f"{name} = {value!r}" for name, value in scalars(chosen.timed[0]).items())
    described = f"{plain(definition.description, 500)}\n\n" if definition.description else ""
    # As Python writes it: without comments, and with every character that a terminal would not show escaped.
    text = textwrap.indent(ast.unparse(ast.parse(definition.reference)), "    ")
    return {
        "schema_version": 2,
        "version": 1,
        "imported": True,
        "title": facts.title,
        "operator": f"{described}`run` of the text below, computed in fp64{f', with {own}' if own else ''}.\n\n{text}\n",
        "inputs": inputs,
        "outputs": [declared(folder.OUTPUT, output)],
        "shapes": {"cpu": [cpu], "gpu": timed},
        "tolerance": dict(measured.tolerance),
        "work": {
            "counted": {
                "cpu": [{"flops": 0, "bytes": size_bytes(definition, constants | cpu)}],
                "gpu": [{"flops": 0, "bytes": size_bytes(definition, constants | shape)} for shape in timed],
            }
        },
        "distribution": "As the definition's own function draws them."
        if definition.custom_inputs_entrypoint
        else "Fractions are standard normal, those of 8 bits cut at 2; whole numbers are uniform.",
        "stress": [CLASSES[name] for name in measured.classes],
        **({"forbidden": ["@torch-compute"]} if facts.rules else {}),
    }
