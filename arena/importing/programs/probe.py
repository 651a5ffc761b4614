"""Find a task's tensors, sizes and work, on fake tensors that take no memory. Runs in a sandbox; standard library and torch.

Input: {"sizes": {name: number}, "most_bytes", "small_bytes", "small_flops", "least", "given": {profile: {name: number}}}; core.py
lies beside it, and numbers below `least` are no sizes. Output: {"sizes": {name: [tensor, dimension]}, "gpu", "cpu", "original",
"parameters", ...}, or {"unfit": reason}.
"""

import json
import math
import os
import sys

OUT = os.fdopen(os.dup(1), "w")
os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
sys.path.insert(0, "/opt/task")

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

LEAST = 8
"""No size but the batch is halved to less."""
HALVES = 40


class Unfit(Exception):
    pass


def trace(core, shape, count=True):
    """The tensors of one call at this shape, its operations and bytes."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), core.Drawn(None, "cpu"):
        Model, get_inputs, get_init_inputs = core.task(shape)
        given = get_inputs()
        model = Model(*get_init_inputs())
        tensors = [t for t in given if isinstance(t, torch.Tensor)]
        scalars = [[i, v] for i, v in enumerate(given) if not isinstance(v, torch.Tensor)]
        parameters = [(name, p) for name, p in model.named_parameters()]
        flops, outputs = 0, []
        if count:
            with FlopCounterMode(display=False) as counter:
                result = model(*given)
            flops = counter.get_total_flops()
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            if not all(isinstance(t, torch.Tensor) for t in outputs):
                raise Unfit("does not trace: forward returns something else than tensors")
    inputs = [*tensors, *(p for _, p in parameters)]
    return {
        "shape": shape,
        "inputs": [[str(t.dtype)[6:], list(t.shape)] for t in inputs],
        "outputs": [[str(t.dtype)[6:], list(t.shape)] for t in outputs],
        "flops": flops,
        "bytes": sum(t.numel() * t.element_size() for t in (*inputs, *outputs)),
        "forward": len(tensors),
        "scalars": scalars,
        "parameters": [name for name, _ in parameters],
    }


def attempt(core, shape, **options):
    try:
        return trace(core, shape, **options)
    except Unfit:
        raise
    except Exception:
        return None


def visible(core, sizes, base, least):
    """The sizes that a tensor shows: twice the number gives one of its dimensions twice the size. Where, and of which tensor."""
    found = {}
    for name, value in sizes.items():
        if value < least and "batch" not in name:
            continue
        other = attempt(core, {**sizes, name: 2 * value}, count=False)
        for number, ((_, before), (_, after)) in enumerate(zip(base["inputs"], other["inputs"]) if other else ()):
            places = [d for d, (a, b) in enumerate(zip(before, after)) if (a, b) == (value, 2 * value)]
            if len(before) == len(after) and places:
                found[name] = [number, places[0]]
                break
    return found


def smaller(core, sizes, names, fits, least_batch):
    """Halve sizes until `fits`: the batch first, then the largest. None where that is not possible."""
    shape, fixed = dict(sizes), set()
    found = attempt(core, shape)
    batch = next((name for name, place in names.items() if place == [0, 0]), None)
    for _ in range(HALVES * 4):
        if found is None or fits(found):
            return found
        if batch and batch not in fixed and shape[batch] // 2 >= least_batch:
            name = batch
        else:
            left = [n for n in names if n not in fixed and n != batch and shape[n] >= 2 * LEAST]
            left = left or [n for n in (batch,) if n and n not in fixed and shape[n] >= 2]
            if not left:
                return None
            name = max(left, key=lambda n: shape[n])
        next_shape = {**shape, name: shape[name] // 2}
        next_found = attempt(core, next_shape)
        if next_found is None:  # a square, or two sizes that belong together
            alike = [other for other in names if shape[other] == shape[name]]
            for together in (alike, *([name, other] for other in names if other not in alike and shape[other] >= 2 * LEAST)):
                next_shape = {**shape, **{each: shape[each] // 2 for each in together}}
                next_found = attempt(core, next_shape) if len(together) > 1 else None
                if next_found is not None:
                    break
        if next_found is None or next_found["bytes"] >= found["bytes"]:
            fixed.add(name)
        else:
            shape, found = next_shape, next_found
    return None


def main():
    order = json.load(sys.stdin)
    import core

    sizes = order["sizes"]
    try:
        base = trace(core, sizes)
    except Unfit:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise Unfit(
            "does not trace: it reads values of its tensors (such as by `assert` or .item()), or sizes depend on them"
        ) from None
    except Exception as error:
        raise Unfit(f"does not trace: {type(error).__name__}: {str(error)[:200]}") from None
    if len(base["outputs"]) != 1:
        raise Unfit(f"{len(base['outputs'])} outputs: the import knows tasks with one")
    if not base["outputs"][0][0].startswith(("float", "bfloat")):
        raise Unfit(
            f"an output of {base['outputs'][0][0]}: equal values have several right answers, and the kit's metrics do not fit"
        )
    names = visible(core, sizes, base, order["least"])
    if not names:
        raise Unfit("no size: none of the module's numbers is a dimension of an input")
    given = order["given"]
    most, small, flops = order["most_bytes"], order["small_bytes"], order["small_flops"]
    gpu = smaller(core, {**sizes, **given.get("gpu", {})}, names, lambda t: t["bytes"] <= most, 16)
    if gpu is None:
        raise Unfit(f"too large: {base['bytes'] / 1e9:.1f} GB a call, and no smaller sizes trace (--sizes chooses some)")
    cpu = smaller(core, {**sizes, **given.get("cpu", {})}, names, lambda t: t["bytes"] <= small and t["flops"] <= flops, 4)
    if cpu is None:
        raise Unfit("too large for a CPU: no sizes that are small enough trace (--sizes chooses some)")
    if not all(v is None or isinstance(v, (int, float, bool, str)) for _, v in base["scalars"]):
        raise Unfit("an argument of forward is neither a tensor nor a number")
    kept = ("shape", "inputs", "outputs", "flops", "bytes")
    profiles = {key: {k: found[k] for k in kept} for key, found in (("gpu", gpu), ("cpu", cpu), ("original", base))}
    return {"sizes": names, **profiles, **{k: base[k] for k in ("parameters", "forward", "scalars")}}


if __name__ == "__main__":
    try:
        said = main()
    except Unfit as unfit:
        said = {"unfit": str(unfit)}
    except Exception as error:
        said = {"unfit": f"does not trace: {type(error).__name__}: {str(error)[:200]}"}
    assert not isinstance(said, float) or math.isfinite(said)
    OUT.write(json.dumps(said))
    OUT.flush()
    os._exit(0)
