"""Write a problem's folder from a parsed task and what was measured of it. Pure but for the writing."""

from __future__ import annotations

import keyword
import pprint
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.files import documents
from arena.files.text import plain, render
from arena.importing.records import Arithmetic, Measured, Probed, Trace
from arena.importing.task import Task
from arena.schema import Problem

TEMPLATES = Path(__file__).with_name("templates")
CLASSES = {
    "scaled": "the first input eight times as large",
    "signed": "the first input with both signs: twice as large, less one",
    "weights": "weights other than a new module's, those of norms too",
}
OUTPUT = "out"
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
MODEL_NEW = "model_new.py.part"
"""What `arena score --as kernelbench` appends to a ModelNew."""


@dataclass(frozen=True)
class Facts:
    """All that the files of a problem are rendered from."""

    task: Task
    name: str
    title: str
    origin: str
    licence: tuple[str, ...]
    arithmetic: Arithmetic
    probed: Probed
    rules: bool
    exact: bool = False
    """Whether the task's text chooses types of its own, which the reference widens to fp64."""

    @property
    def half(self) -> bool:
        """Whether some of the task's own tensors are of 16 bits or less."""
        return any(dtype in NARROW for dtype, _ in (*self.probed.cpu.inputs, *self.probed.cpu.outputs))

    @property
    def coarser(self) -> str:
        """The next coarser arithmetic that differs enough: bf16 is only 8 times as coarse as tf32."""
        return "tf32" if self.arithmetic == "fp32" and not self.half else "fp8"

    def arguments(self) -> list[str]:
        """The names of the inputs: forward's arguments that are tensors, then the parameters."""
        scalars = {place for place, _ in self.probed.scalars}
        given = [name for place, name in enumerate(self.task.arguments) if place not in scalars][: self.probed.forward]
        given += [f"input_{number}" for number in range(len(given), self.probed.forward)]
        named: list[str] = []
        for name in (*given, *(parameter.replace(".", "_") for parameter in self.probed.parameters)):
            word = (
                f"{name}_" if keyword.iskeyword(name) or name in (OUTPUT, "inputs", "torch", "forward", "task", "self") else name
            )
            while word in named:
                word += "_"
            named.append(word)
        return named


def unprobed(
    task: Task, title: str, origin: str, licence: Sequence[str], places: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """The variables of reference.py for a task of which only the text is known, with these numbers as sizes."""
    return {
        "title": title.replace('"', "'").replace("\\", "/"),
        "origin": origin.replace('"', "'").replace("\\", "/"),
        "licence": licence,
        "imports": task.imports,
        "task": task.function(places),
        "forward": 1,
        "parameters": "()",
        "scalars": (),
        "places": pprint.pformat(dict(places), width=110, compact=True, sort_dicts=False),
        "exact": "",
    }


def core(facts: Facts) -> dict[str, Any]:
    """The variables that all templates share."""
    places = {name: (number, place) for name, (number, place) in facts.probed.sizes.items()}
    return unprobed(facts.task, facts.title, facts.origin, facts.licence, places) | {
        "forward": facts.probed.forward,
        "parameters": pprint.pformat(tuple(facts.probed.parameters), width=110, compact=True),
        "scalars": tuple(facts.probed.scalars),
        "exact": (TEMPLATES / "exact.py.part").read_text(encoding="utf-8") if facts.exact else "",
    }


def reference(facts: Facts) -> str:
    """reference.py."""
    return render(TEMPLATES / "reference.py.j2", **core(facts))


def hidden(facts: Facts, classes: Sequence[str], extra: Sequence[Mapping[str, int]] = ()) -> str:
    """hidden.py. `extra` are shapes for a GPU that are never timed."""
    written = "(" + "".join(f'"{name}", ' for name in classes).rstrip(" ") + ")" if classes else "()"
    return render(TEMPLATES / "hidden.py.j2", **core(facts), classes=written, extra=tuple(map(dict, extra)))


def solution(facts: Facts, kind: str, first: str, what: str, *, tf32: bool | None = None, coarser: str | None = None) -> str:
    """A file of solutions/ or baselines/."""
    return render(
        TEMPLATES / "solution.py.j2",
        **core(facts),
        kind=kind,
        first=first,
        what=what,
        arguments=facts.arguments(),
        output=OUTPUT,
        coarser=coarser or facts.coarser,
        bf16=facts.arithmetic == "bf16" and not facts.half,
        tf32=facts.arithmetic != "fp32" if tf32 is None else tf32,
    )


def solutions(facts: Facts, *, weights_vary: bool) -> Iterator[tuple[str, str]]:
    """Name and text of each solution. With rules, what calls torch's kernels is forbidden rather than passed."""
    ruled = "# verdict: forbidden" if facts.rules else ""
    passed, incorrect = ruled or "# verdict: passed", ruled or "# verdict: incorrect"
    yield "oracle", solution(facts, "eager", passed, f"torch eager, in {facts.arithmetic}.")
    yield "naive", solution(facts, "naive", passed, "torch eager, in fp64.")
    yield "wrong_zeros", solution(facts, "wrong_zeros", "# verdict: incorrect", "Zeros.")
    yield "wrong_coarser", solution(facts, "wrong_coarser", incorrect, f"Inputs, weights and result rounded to {facts.coarser}.")
    yield "cheat_first_answer", solution(facts, "cheat_first_answer", incorrect, "Gives its first answer at every call.")
    if weights_vary:
        what = "Takes weights at a known address for known weights."
        yield "cheat_weights_by_pointer", solution(facts, "cheat_weights_by_pointer", incorrect, what)


def baselines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Name and text of each baseline."""
    yield "eager", solution(facts, "eager", f"# baseline: torch eager, {facts.arithmetic}", "The module as it is.")
    yield "compiled_gpu", solution(facts, "compiled", f"# baseline: torch.compile, {facts.arithmetic}", "The module, compiled.")
    if facts.arithmetic == "fp32" and not facts.half:
        title = "# baseline: torch eager, tf32 allowed"
        yield "eager_tf32_gpu", solution(facts, "eager", title, "The module as it is, with tf32 in products.", tf32=True)


def model_new(facts: Facts) -> str:
    """What turns a file with a ModelNew into a submission."""
    known = core(facts)
    # Neither the module nor what it imports: they would be uses of the submission's.
    known["task"] = facts.task.function(facts.probed.sizes, ("get_init_inputs",))
    return render(TEMPLATES / "model_new.py.j2", **known, arguments=facts.arguments(), output=OUTPUT)


def problem(facts: Facts, measured: Measured) -> dict[str, Any]:
    """problem.yaml."""
    shapes: dict[str, dict[str, int]] = {"cpu": {}, "gpu": {}}
    for name in facts.probed.sizes:
        shapes["cpu"][name], shapes["gpu"][name] = facts.probed.cpu.shape[name], facts.probed.gpu.shape[name]
    traces = {"cpu": facts.probed.cpu, "gpu": facts.probed.gpu}
    arguments = facts.arguments()
    inputs = [
        {"name": name, "shape": _named(name, number, "inputs", traces, shapes), "dtype": traces["cpu"].inputs[number][0]}
        | (
            {"note": f"parameter {facts.probed.parameters[number - facts.probed.forward]}"}
            if number >= facts.probed.forward
            else {}
        )
        for number, name in enumerate(arguments)
    ]
    output = {"name": OUTPUT, "shape": _named(OUTPUT, 0, "outputs", traces, shapes), "dtype": traces["cpu"].outputs[0][0]}
    own = " ".join(f"{name} = {value!r};" for name, value in _scalars(facts))
    return {
        "schema_version": 2,
        "version": 1,
        "imported": True,
        "title": plain(facts.title),
        "operator": "The forward of the module below, in training mode. All of its parameters are arguments, in their order"
        f"{f'; {own}' if own else ''}.\n\n" + textwrap.indent(facts.task.model(), "    ") + "\n",
        "inputs": inputs,
        "outputs": [output],
        "shapes": {profile: [shape] for profile, shape in shapes.items()},
        "tolerance": dict(measured.tolerance),
        # What torch's own kernels multiply is no bound for another algorithm, or for another arithmetic within the tolerance: a
        # kernel that multiplies by a diagonal needs a thousandth of it. So memory alone bounds an import.
        "work": {"counted": {p: [{"flops": 0, "bytes": trace.bytes}] for p, trace in traces.items()}},
        "distribution": "As get_inputs() draws the inputs, and the module's own initialisation its parameters, new each time.",
        "stress": [CLASSES[name] for name in measured.classes],
        **({"forbidden": ["@torch-compute"]} if facts.rules else {}),
    }


def _scalars(facts: Facts) -> Iterator[tuple[str, object]]:
    for place, value in facts.probed.scalars:
        yield (facts.task.arguments[place] if place < len(facts.task.arguments) else f"argument {place}"), value


def _named(name: str, number: int, side: str, traces: Mapping[str, Trace], shapes: dict[str, dict[str, int]]) -> list[str | int]:
    """A tensor's sizes: names of the shape, or numbers where they are the same on both profiles. New names join the shape."""
    named: list[str | int] = []
    cpu, gpu = (getattr(traces[profile], side)[number][1] for profile in ("cpu", "gpu"))
    for place, (small, large) in enumerate(zip(cpu, gpu, strict=True)):
        same = [size for size in shapes["cpu"] if (shapes["cpu"][size], shapes["gpu"][size]) == (small, large)]
        if small == large and not same:
            named.append(small)
            continue
        if not same:
            shapes["cpu"][f"{name}_{place}"], shapes["gpu"][f"{name}_{place}"] = small, large
            same = [f"{name}_{place}"]
        named.append(same[0])
    return named


def write(
    folder: Path,
    facts: Facts,
    measured: Measured,
    found: Mapping[str, Any] | None = None,
    extra: Sequence[Mapping[str, int]] = (),
) -> None:
    """Write all files. The caller has made sure that the folder is new.

    Args:
        folder: where to.
        facts: of the task.
        measured: its gate.
        found: problem.yaml of a task that is no module; it takes no ModelNew.
        extra: further shapes for a GPU, which are never timed.
    """
    model, found = found is None, found or problem(facts, measured)
    Problem.model_validate({**found, "name": facts.name})
    folder.mkdir(parents=True)
    for place, files in (("solutions", solutions(facts, weights_vary=measured.weights_vary)), ("baselines", baselines(facts))):
        (folder / place).mkdir()
        for name, text in files:
            documents.write_text(folder / place / f"{name}.py", text)
    documents.write_text(folder / "reference.py", reference(facts))
    documents.write_text(folder / "hidden.py", hidden(facts, measured.classes, extra))
    if model:
        documents.write_text(folder / MODEL_NEW, model_new(facts))
    documents.write_yaml(folder / "problem.yaml", found)
