"""The contract that every problem keeps: its inputs, its reference, its hidden shapes, and what its tolerance must reject.

Needs no sandbox and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Literal

import torch

from arena.judge import problem_code
from arena.judge.problem_code import Inputs, ProblemCode
from arena.judge.verify import within_tolerance
from arena.schema import Errors, Problem, Profile, Record, Tensor

RULES = {
    "hidden shapes": "they have the sizes that problem.yaml names, and none is timed",
    "seeds": "each gives other inputs",
    "repeat": "a seed gives the same inputs again",
    "generator": "torch's global generator is not used",
    "threads": "two that draw at once get what each gets alone",
    "sizes": "those of the inputs, and their dtypes, depend on shape and input class alone",
    "inputs": "as problem.yaml declares them",
    "outputs": "the reference's are as problem.yaml declares them",
}
SEEDS = (1, 1 + 2**32)
"""For every input class. They differ above the low 32 bits, which are all that torch's CPU generator keeps of a seed."""
PUBLIC_SEEDS = (2, 1 + 2**62, 1 + 2**100)
"""Further seeds, for the public inputs."""
ROUNDS = 3
"""Times that two threads draw at once."""

Fault = tuple[str, str]
"""The name of a broken rule, and how it is broken."""

DEGENERATE_SEED = 20
ROUNDED = "reference rounded"


class Finding(Record):
    """One thing that was checked."""

    kind: Literal["contract", "degenerate", "solution", "order", "repeat"]
    name: str
    ok: bool
    got: str
    detail: str = ""
    peak_fraction: float | None = None
    error: Errors | None = None
    """Worst error seen, where an answer was compared with the reference."""
    disturbed: tuple[str, ...] = ()
    """Why shapes were timed again."""
    input_class: str | None = None
    """The input class on which a solution was rejected."""
    expected: str = ""
    """The verdict that a solution's first line names."""
    seconds: float | None = None
    """How long a solution's score took, or all further ones of the oracle. Checks side by side overlap."""


def check(problem: Problem, folder: Path | None = None) -> Iterator[Finding]:
    """Check the rules on the smallest timed and the smallest hidden shape. `folder` holds a problem that is not in problems/.

    The shapes are those for the CPU; a problem that has none is checked on a GPU. Hidden shapes are checked for both.
    """
    profile: Profile = "cpu" if "cpu" in problem.shapes else "gpu"
    device = "cuda" if profile == "gpu" else "cpu"
    faults = [
        fault for each in problem.shapes for fault in hidden_shape_faults(problem, each, problem_code.load(problem, each, folder))
    ]
    code = problem_code.load(problem, profile, folder)
    hidden = () if faults else code.extra_shapes  # a hidden shape of other sizes cannot be drawn
    for shape in [min(shapes, key=problem.bytes) for shapes in (problem.timed(profile), hidden) if shapes]:
        faults += shape_faults(problem, code, shape, device)
        faults += thread_faults(code, shape, device)
    for name, rule in RULES.items():
        texts = [text for broken, text in faults if broken == name]
        got = "broken" if texts else "kept"
        yield Finding(kind="contract", name=f"contract: {name}", ok=not texts, got=got, detail="; ".join(texts) or rule)


def hidden_shape_faults(problem: Problem, profile: Profile, code: ProblemCode) -> Iterator[Fault]:
    """Hidden shapes that are timed ones, or have other sizes than those."""
    timed = [dict(shape) for shape in problem.timed(profile)]
    for shape in code.extra_shapes:
        if shape.keys() != timed[0].keys():
            yield "hidden shapes", f"{profile}: {dict(shape)} lacks one of {', '.join(timed[0])}, or has more"
        elif dict(shape) in timed:
            yield "hidden shapes", f"{profile}: {dict(shape)} is a timed shape"


def shape_faults(problem: Problem, code: ProblemCode, shape: Mapping[str, int], device: str) -> Iterator[Fault]:
    """Rules that the input sets of one shape break, or the reference's answers to them."""
    for input_class in ("public", *code.input_classes):
        for rule, text in _class_faults(problem, code, shape, input_class, device):
            yield rule, f"input class {input_class!r}, shape {dict(shape)}: {text}"


def _class_faults(
    problem: Problem, code: ProblemCode, shape: Mapping[str, int], input_class: str, device: str
) -> Iterator[Fault]:
    first_seed, *seeds = (*SEEDS, *PUBLIC_SEEDS) if input_class == "public" else SEEDS
    with torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else []):  # it gives the state back afterwards
        torch.manual_seed(7)
        before = _generator_state(device)
        first = code.make_inputs(shape, first_seed, input_class, device)
        if not torch.equal(before, _generator_state(device)):
            yield "generator", "its state has changed"
        torch.manual_seed(8)
        if not same(first, code.make_inputs(shape, first_seed, input_class, device)):
            yield "repeat", f"seed {first_seed} gave two different sets"
    for seed in seeds:
        other = code.make_inputs(shape, seed, input_class, device)
        if [(t.shape, t.dtype) for t in other] != [(t.shape, t.dtype) for t in first]:
            yield "sizes", f"seeds {first_seed} and {seed} give different ones"
        elif same(first, other):
            yield "seeds", f"{first_seed} and {seed} give the same set"
    for text in _undeclared(problem.inputs, first, shape):
        yield "inputs", text
    if input_class == "public":  # a reference in fp64 takes seconds, and further classes change values rather than sizes
        for text in _undeclared(problem.outputs, code.outputs(first), shape, exact=False):
            yield "outputs", text


def _undeclared(declared: tuple[Tensor, ...], tensors: Inputs, shape: Mapping[str, int], exact: bool = True) -> Iterator[str]:
    """Tensors that are not as declared. Unless `exact`, any float type may stand for another, and any integer type.

    A size that the shape does not name is one that a note explains: it has one value throughout a set.
    """
    if len(declared) != len(tensors):
        yield f"{len(tensors)} tensors, and problem.yaml declares {len(declared)}"
        return
    sizes = dict(shape)
    for stated, tensor in zip(declared, tensors, strict=True):
        dtype = getattr(torch, stated.dtype)
        if tensor.dtype != dtype if exact else tensor.is_floating_point() != dtype.is_floating_point:
            yield f"{stated.name} is {tensor.dtype}, and declared as {stated.dtype}"
        if exact and not tensor.is_contiguous():
            yield f"{stated.name} is not contiguous"
        wanted = [
            sizes.setdefault(size, got) if isinstance(size, str) else size
            for size, got in zip(stated.shape, tensor.shape, strict=False)
        ]
        if len(stated.shape) != tensor.dim() or wanted != list(tensor.shape):
            yield f"{stated.name} has the sizes {list(tensor.shape)}, and is declared as {list(stated.shape)}"


def thread_faults(code: ProblemCode, shape: Mapping[str, int], device: str) -> Iterator[Fault]:
    """Draw two public sets at once, and compare each with what its seed gives alone."""
    alone = {seed: code.make_inputs(shape, seed, "public", device) for seed in SEEDS}
    start = Barrier(len(SEEDS))
    gpu = torch.cuda.current_device() if device == "cuda" else None

    def draw(seed: int) -> list[Inputs]:
        if gpu is not None:
            torch.cuda.set_device(gpu)  # a new thread is on GPU 0
        start.wait()
        return [code.make_inputs(shape, seed, "public", device) for _ in range(ROUNDS)]

    with ThreadPoolExecutor(len(SEEDS)) as threads:
        together = dict(zip(SEEDS, threads.map(draw, SEEDS), strict=True))
    if not all(same(alone[seed], each) for seed in SEEDS for each in together[seed]):
        yield "threads", f"public inputs of shape {dict(shape)} were mixed up"


def same(first: Inputs, second: Inputs) -> bool:
    """Whether two input sets are the same bit by bit, so that NaN equals itself."""
    return len(first) == len(second) and all(
        (a.shape, a.dtype) == (b.shape, b.dtype) and torch.equal(_bytes(a), _bytes(b)) for a, b in zip(first, second, strict=True)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _generator_state(device: str) -> torch.Tensor:
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def check_degenerate(problem: Problem, profile: Profile, folder: Path | None = None) -> Iterator[Finding]:
    """Compare degenerate answers, and the rounded reference, with the reference on every scored shape.

    The tolerance must accept the rounded reference and reject the others. `folder` holds a problem that is not in problems/.
    """
    code = problem_code.load(problem, profile, folder)
    found: dict[str, list[dict[str, float]]] = {}
    device = "cuda" if profile == "gpu" else "cpu"
    for shape in problem.shapes[profile]:
        inputs = code.make_inputs(shape, DEGENERATE_SEED, "public", device)
        refs = code.outputs(inputs)
        for name, outs in _answers(problem, refs, inputs):
            measured = [errors for _, errors, _ in code.measure(outs, refs, inputs)]
            worst = {metric: max(errors[metric] for errors in measured) for metric in problem.tolerance}
            found.setdefault(name, []).append(worst)
    for name, answers in found.items():
        honest = name == ROUNDED
        accepted = [within_tolerance(errors, problem.tolerance) for errors in answers]
        extreme = max if honest else min
        errors = " ".join(f"{metric} {extreme(answer[metric] for answer in answers):.1e}" for metric in problem.tolerance)
        count = f"accepted {sum(accepted)}" if honest else f"rejected {accepted.count(False)}"
        yield Finding(
            kind="degenerate",
            name=f"degenerate: {name}" if not honest else ROUNDED,
            ok=all(accepted) if honest else not any(accepted),
            got="accepted" if any(accepted) else "rejected",
            detail=f"{count} of {len(answers)} answers; {errors}",
        )


def _answers(problem: Problem, refs: Inputs, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """The reference's answer as a kernel rounds it, and the same with one output replaced by a degenerate one."""
    dtypes = [getattr(torch, tensor.dtype) for tensor in problem.outputs]
    rounded = tuple(ref.to(dtype) for ref, dtype in zip(refs, dtypes, strict=True))
    yield ROUNDED, rounded
    for number, (ref, dtype) in enumerate(zip(refs, dtypes, strict=True)):
        for name, answer in _degenerate(ref.double(), inputs):
            yield name, (*rounded[:number], answer.to(dtype), *rounded[number + 1 :])


def _degenerate(ref: torch.Tensor, inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
    """What a kernel may write that has computed little. An output, or a row, of one element is its own mean."""
    columns = ref.shape[-1] if ref.dim() else 1
    yield "zeros", torch.zeros_like(ref)
    if columns > 1:
        yield "row mean", ref.mean(-1, keepdim=True).expand_as(ref)
    if ref.numel() > 1:
        yield "constant", torch.full_like(ref, ref.mean().item())
    if ref.numel() > columns:  # of a single row there is no other order
        yield "rows permuted", ref.reshape(-1, columns).roll(1, 0).reshape(ref.shape)
    for number, tensor in enumerate(inputs):
        if tensor.shape == ref.shape and tensor.is_floating_point():
            yield f"copy of input {number}", tensor.double()
