"""Checks solution.py against reference.py: `python check.py [SOLUTION] [--seeds N] [--seed S]`.

Ends with PASS (exit 0) or FAIL (exit 1). The function `errors` defines the errors: the one in reference.py where it has one,
else the one here. Their limits are `tolerance` in problem.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
WIDENED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TINY = 1e-300
"""Avoids 0 / 0 where the reference is all zeros: no error then gives 0, any error a huge number."""


def measure(
    reference: ModuleType,
    limits: Mapping[str, float],
    names: Sequence[str],
    outs: tuple[Tensor, ...],
    refs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
) -> list[tuple[str, dict[str, float], Callable[[], str]]]:
    """(what was measured, the worst error of each metric in `limits`, the place of the worst in words), one for each output.

    Where reference.py defines `errors(outs, refs, inputs)` and `worst(outs, refs, inputs)`, those give one for all outputs
    together. An output that is not finite where `refs` is counts as infinitely wrong, and they are not called.
    """
    if not hasattr(reference, "errors"):
        return [
            (name, errors(out, ref), partial(place, name, out, ref)) for name, out, ref in zip(names, outs, refs, strict=True)
        ]
    for name, out, ref in zip(names, outs, refs, strict=True):
        if not finite(out) and bool((ref.isfinite() & ~out.isfinite()).any()):
            return [(name, dict.fromkeys(limits, float("inf")), partial(place, name, out, ref))]
    found = {key: float(value) for key, value in reference.errors(outs, refs, inputs).items()}
    return [(", ".join(names), found, partial(reference.worst, outs, refs, inputs))]


def finite(values: Tensor) -> bool:
    """Whether all are finite, in one pass: a sum is finite only if all its numbers are. False where the sum overflows."""
    if not values.is_floating_point():
        return True
    wide = values.detach().float() if values.itemsize == 1 else values.detach()
    return bool(wide.sum(dtype=torch.promote_types(wide.dtype, torch.float32)).isfinite())


def inside(found: Mapping[str, float], limits: Mapping[str, float]) -> bool:
    """Whether every error is within its limit; NaN never is."""
    return all(found[key] <= most for key, most in limits.items())


def place(name: str, out: Tensor, ref: Tensor) -> str:
    """The worst element of an output, in words."""
    at = worst(out, ref)
    return f"{name}{list(at) or ''} is {out[at].item():.6g} and should be {ref[at].item():.6g}"


def errors(out: Tensor, ref: Tensor) -> dict[str, float]:
    """Three relative errors of `out` against `ref`, in fp64, with e = out - ref and rows along the last dimension.

    rel_fro: ||e|| / ||ref||, over everything;
    row: the largest over all rows r of ||e_r|| / max(||ref_r||, 0.001 * rms of the rows' norms);
    el: the largest over all elements of |e| / (max(rms(ref_r), 0.001 * rms(ref)) + |ref|), r being the element's row.

    All three are infinite where `out` is not finite although `ref` is, or differs from a `ref` that is not finite.
    """
    o, r = _rows(out), _rows(ref).double()
    e = o - r
    if not finite(e):
        wanted = r.isfinite()
        if not bool(torch.where(wanted, o.isfinite(), (o == r) | (o.isnan() & r.isnan())).all()):
            return {"rel_fro": float("inf"), "row": float("inf"), "el": float("inf")}
        e, r = torch.where(wanted, e, 0), torch.where(wanted, r, 0)
    off, norm = e.norm(dim=-1), r.norm(dim=-1)
    return {
        "rel_fro": float(off.norm() / (norm.norm() + TINY)),
        "row": float((off / norm.clamp_min(1e-3 * norm.pow(2).mean().sqrt() + TINY)).max()),
        "el": float(_element_errors(e, r).max()),
    }


def worst(out: Tensor, ref: Tensor) -> tuple[int, ...]:
    """Index of the element with the largest `el`, or of the first that is not finite where it should be."""
    o, r = _rows(out), _rows(ref).double()
    wanted = r.isfinite()
    bad = torch.where(wanted, ~o.isfinite(), (o != r) & ~(o.isnan() & r.isnan()))
    error = torch.where(bad, torch.inf, _element_errors(torch.where(wanted, o - r, 0), torch.where(wanted, r, 0)))
    rest, at = int(error.argmax()), list[int]()
    for size in reversed(ref.shape):  # torch.unravel_index imports sympy, which takes half a second
        rest, index = divmod(rest, size)
        at.insert(0, index)
    return tuple(at)


def _rows(t: Tensor) -> Tensor:
    """As (rows, columns); a scalar is one row of one. What subtraction does not widen to fp64 by itself is in fp64."""
    rows = t.detach().reshape(-1, t.shape[-1] if t.dim() else 1)
    return rows if rows.dtype in WIDENED else rows.double()


def _element_errors(e: Tensor, r: Tensor) -> Tensor:
    rms = r.norm(dim=-1, keepdim=True) / math.sqrt(r.shape[1])
    return e.abs() / r.abs().add_(rms.clamp_min(1e-3 * rms.pow(2).mean().sqrt() + TINY))


def main() -> int:
    """Check every shape with a few seeds; print a line for each."""
    parser = argparse.ArgumentParser(description="Check solution.py against reference.py on the shapes of problem.json.")
    parser.add_argument("solution", type=Path, nargs="?", default=Path("solution.py"))
    parser.add_argument("--seeds", type=int, default=3, help="input sets per shape (default 3)")
    parser.add_argument("--seed", type=int, help="first seed, to repeat a failure (default: from the system's randomness)")
    options = parser.parse_args()
    # Not at the top: `errors` and `worst` are also used from copies of this file that lie alone.
    from benchmark import BadOutput, BadSolution, load_module, load_solution

    facts = json.loads((HERE / "problem.json").read_text())
    device = "cuda" if facts["profile"] == "gpu" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        print("these shapes are for a GPU, and torch finds none here\nFAIL")
        return 1
    reference = load_module(HERE / "reference.py", "reference")
    first_seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(6), "little")
    passed = False
    try:
        solution = load_solution(options.solution)
        sets = [
            check_set(solution, reference, facts, shape, seed, device)
            for shape in facts["shapes"] + facts["latency"]
            for seed in range(first_seed, first_seed + options.seeds)
        ]
        passed = all([*sets, taken_as_it_is(options.solution, facts["forbidden"])])
    except (BadOutput, BadSolution) as error:
        print(error)
    finally:  # Python shows any other exception of the solution below this line
        print("PASS" if passed else "FAIL", flush=True)
    return 0 if passed else 1


def taken_as_it_is(solution: Path, names: Sequence[str]) -> bool:
    """Print why the file would be refused, or where it uses one of `names`, and say whether it does neither.

    It reads the source, not what calls do.
    """
    from rules.acceptable import Unacceptable, require_regular, source_of
    from rules.forbidden import forbidden

    try:
        require_regular(str(solution), solution.lstat())
        source = source_of(str(solution), solution.read_bytes())
    except Unacceptable as reason:
        print(f"FAIL  {reason}", flush=True)
        return False
    uses = forbidden(source.decode(), names)
    for use in uses:
        print(f"FAIL  {solution}:{use.line} uses {use.name}, which may not be used", flush=True)
    return not uses


def check_set(
    solution: Callable[..., object],
    reference: ModuleType,
    facts: Mapping[str, Any],
    shape: Mapping[str, int],
    seed: int,
    device: str,
) -> bool:
    """Check one input set, print its line, and say whether it passed."""
    from benchmark import fill, output_buffers

    inputs = reference.make_inputs(shape, seed, device=device)
    kept = tuple(t.clone() for t in inputs)

    def call() -> tuple[Tensor, ...]:
        outputs = output_buffers(facts, shape, device)
        fill(solution, inputs, outputs)
        return outputs

    with torch.no_grad():
        outs, again, answer = call(), call(), reference.reference(*kept)
    refs = answer if isinstance(answer, tuple) else (answer,)
    faults = [
        f"input {facts['inputs'][i]['name']} was changed"
        for i, (t, old) in enumerate(zip(inputs, kept, strict=True))
        if not same(t, old)
    ]
    limits, names, found_errors = facts["tolerance"], [output["name"] for output in facts["outputs"]], []
    first, second = (measure(reference, limits, names, each, refs, kept) for each in (outs, again))
    for (name, found, where), (_, repeated, _) in zip(first, second, strict=True):
        found_errors.append(f"{name} " + ", ".join(f"{key} {found[key]:.2e} (limit {most:g})" for key, most in limits.items()))
        if not inside(found, limits):
            faults.append(where())
        elif not inside(repeated, limits):
            faults.append(f"{name} is right at the first call and wrong at the second, with the same inputs")
    name = " ".join(f"{key}={value}" for key, value in shape.items())
    print(f"{'FAIL' if faults else 'ok'}  {name}  seed {seed}: {'; '.join(found_errors)}", flush=True)
    for fault in faults:
        print(f"      {fault}", flush=True)
    return not faults


def same(a: Tensor, b: Tensor) -> bool:
    """Bit by bit, so that NaN equals itself."""
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


if __name__ == "__main__":
    sys.exit(main())
