"""Measure a converted task's gate and try its solutions. Runs in a sandbox; standard library and torch.

Input: {"shape", "gpu_rows", "dtype", "coarser", "least_gap", "least_error", "most"}; beside it lie problem/reference.py,
problem/hidden.py, kit_check.py and the solutions. Output: {"tolerance", "gap", "low", "classes", "dropped", "weights_vary"} or
{"unfit"}.
"""

import importlib.util
import json
import math
import os
import sys

OUT = os.fdopen(os.dup(1), "w")
os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
sys.path.insert(0, "/opt/task")

import torch

SEEDS = (1, 2, 3, 4, 5, 6)
SHORT = 16
"""Rows of fewer elements may come near zero as a whole, and the more rows there are, the nearer."""
LONGER = 8
"""Sums are longer at a GPU's sizes: there eager's worst short row was 10 to 24 times the estimate of `rare` (H100, level2/18)."""
METRICS = ("rel_fro", "row", "el")
SLICES = 8
"""Of each dimension of an input: so many are overwritten, one at a time."""


class Unfit(Exception):
    pass


def main():
    order = json.load(sys.stdin)
    import kit_check
    from problem import hidden, reference

    shape, solution = (
        order["shape"],
        {name: load(name) for name in ("oracle", "naive", "wrong_coarser", *(["allowed"] if order["allowed"] else []))},
    )

    def answer(name, inputs, like):
        out = torch.full(like.shape, math.nan, dtype=getattr(torch, order["dtype"]))
        given = [t.clone() for t in inputs]
        solution[name](*given, out)
        if changed := [number for number, t in enumerate(given) if not same(t, inputs[number])]:
            raise Unfit(f"changes its input {changed[0]} in place, which a solution may not")
        return out

    def errors(out, ref):
        return kit_check.errors(out, ref)

    sets = {seed: reference.make_inputs(shape, seed) for seed in SEEDS}
    refs = {seed: reference.reference(*inputs) for seed, inputs in sets.items()}
    for seed, inputs in sets.items():
        if not torch.equal(refs[seed], reference.reference(*inputs)) and refs[seed].isfinite().all():
            raise Unfit("random: two calls on the same inputs give different answers (dropout?)")
        if not refs[seed].isfinite().all():
            raise Unfit("not finite: the answer to its own inputs holds infinities or NaN")
    if errors(refs[SEEDS[1]], refs[SEEDS[0]])["rel_fro"] < order["least_error"]:
        raise Unfit("constant: other inputs and other weights give the same answer")
    if order["whole"]:
        check_inputs(reference, sets)

    low = {m: order["least_error"] for m in METRICS}
    high = {m: math.inf for m in METRICS}
    for seed, inputs in sets.items():
        for m, value in errors(answer("oracle", inputs, refs[seed]), refs[seed]).items():
            low[m] = max(low[m], value)
        for m, value in errors(answer("allowed", inputs, refs[seed]), refs[seed]).items() if order["allowed"] else ():
            low[m] = max(low[m], value)
        for m, value in errors(answer("wrong_coarser", inputs, refs[seed]), refs[seed]).items():
            high[m] = min(high[m], value)
    if not all(math.isfinite(value) for value in (*low.values(), *high.values())):
        raise Unfit("not finite: eager's own answer holds infinities or NaN")
    gap = {m: high[m] / low[m] for m in METRICS}
    seldom = rare(sets, refs, low, answer, order["gpu_rows"])
    if max(low.values()) > 1e4:
        raise Unfit(f"constant: its answer is nothing but rounding, eager's being {max(low.values()):.1g} times as large")
    if max(low.values()) > 0.05:
        raise Unfit(
            f"eager's answer is {max(low.values()):.2g} off its own in fp64: it depends on something besides its arguments"
        )
    if max(gap.values()) < order["least_gap"]:
        if not any(high.values()):
            raise Unfit(f"no gap: with some weights {order['coarser']} gives the very same answer as the allowed arithmetic")
        found = ", ".join(f"{m} {value:.2g}" for m, value in gap.items())
        raise Unfit(f"no gap: {order['coarser']} is only so many times as far off as the allowed arithmetic: {found}")
    least = math.sqrt(order["least_gap"])
    low |= seldom
    # One metric refuses the coarser arithmetic. The worst row and the worst element grow with their number, so at the sizes of a
    # GPU eager's are up to ten times those seen here: they may come as near as the coarser arithmetic does here.
    refusing = "rel_fro" if gap["rel_fro"] >= order["least_gap"] else max(METRICS, key=gap.__getitem__)
    between = {m: math.sqrt(low[m] * high[m]) if m == refusing else high[m] for m in METRICS}
    room = {m: 2 * least * (LONGER if m in seldom else 1) for m in METRICS}
    tolerance = {m: min(float(f"{max(between[m], low[m] * room[m]):.2g}"), order["most"]) for m in METRICS}

    for seed, inputs in sets.items():
        for name, fake in degenerate(refs[seed]):
            if all(value <= tolerance[m] for m, value in errors(fake, refs[seed]).items()):
                raise Unfit(f"constant: {name} passes as the answer")
        found = errors(answer("naive", inputs, refs[seed]), refs[seed])
        if not all(value <= tolerance[m] for m, value in found.items()):
            raise Unfit("eager in fp64 differs from the reference: it depends on something besides its arguments")

    classes, dropped = [], {}
    for name in ("scaled", "signed", "weights"):
        if reason := unusable(name, reference, hidden, shape, answer, errors, tolerance):
            dropped[name] = reason
        else:
            classes.append(name)
    first, second = (sets[seed][reference.FORWARD :] for seed in SEEDS[:2])
    vary = any(not torch.equal(a, b) for a, b in zip(first, second))
    return {"tolerance": tolerance, "gap": gap, "low": low, "classes": classes, "dropped": dropped, "weights_vary": vary}


def check_inputs(reference, sets):
    """Unfit for an input that is the same for two seeds, or of which a quarter or more is never read. Whole numbers of more than
    8 bits are places and lengths: they are not looked at."""
    first, second = (sets[seed][: reference.FORWARD] for seed in SEEDS[:2])
    answer = reference.reference(*first)
    for number, t in enumerate(first):
        if not t.is_floating_point() and t.dtype not in (torch.int8, torch.uint8):
            continue
        if same(t, second[number]):
            raise Unfit(f"its input {number} is the same for two seeds, and every call needs new values")
        for dimension, size in enumerate(t.shape):
            places = torch.randperm(size, generator=torch.Generator().manual_seed(size)).tolist()[:SLICES] if size > 1 else []
            unread = sum(not reads(reference, first, number, dimension, place, answer) for place in places)
            if unread and 4 * unread >= len(places):
                raise Unfit(f"the operator reads only a part of its input {number}, so the input's bytes are no bound")


def reads(reference, inputs, number, dimension, place, answer):
    """Whether some value of a slice of an input changes the answer, or is refused."""
    t = inputs[number]
    fractions = t.is_floating_point()
    info = torch.finfo(t.dtype) if fractions else torch.iinfo(t.dtype)
    for value in (*((math.nan,) if fractions else ()), info.max, info.min):
        changed = t.clone()
        changed.select(dimension, place).fill_(value)
        try:
            if not same(reference.reference(*inputs[:number], changed, *inputs[number + 1 :]), answer):
                return True
        except (RuntimeError, IndexError, ValueError):
            return True
    return False


def rare(sets, refs, low, answer, gpu_rows):
    """What eager's error of the worst row grows to on a GPU, where there are more rows; of short rows only.

    Of n rows of k normal elements the smallest norm is about n^(-1/k) of the usual one, and the kit divides by that norm, though
    never by less than a thousandth of the usual.
    """
    like = refs[SEEDS[0]]
    length = like.shape[-1] if like.dim() else 1
    seen = like.numel() // max(length, 1) * len(SEEDS)
    if length >= SHORT or gpu_rows <= seen:
        return {}
    most = 0.0
    for seed, inputs in sets.items():
        off = (answer("oracle", inputs, refs[seed]).double() - refs[seed]).abs().max() / refs[seed].double().pow(2).mean().sqrt()
        most = max(most, 1e3 * float(off))
    return {m: max(low[m], min(low[m] * (gpu_rows / seen) ** (1 / length), most)) for m in ("row", "el")}


def unusable(name, reference, hidden, shape, answer, errors, tolerance):
    """Why an input class cannot be judged; empty when it can."""
    if name == "weights" and not reference.PARAMETERS:
        return "there are none"
    for seed in SEEDS:
        if name != "weights" and not reference.make_inputs(shape, seed)[0].is_floating_point():
            return "the first input holds no fractions"
        try:
            inputs = hidden.make_inputs(shape, seed, name)
            ref = reference.reference(*inputs)
        except (RuntimeError, IndexError, ValueError) as error:
            return f"{type(error).__name__}"
        if not ref.isfinite().all():
            return "the answer is not finite"
        if not all(value <= tolerance[m] / 2 for m, value in errors(answer("oracle", inputs, ref), ref).items()):
            return "the allowed arithmetic itself comes too near the tolerance"
    return ""


def degenerate(ref):
    yield "zeros", torch.zeros_like(ref)
    if ref.numel() > 1:
        yield "a constant", torch.full_like(ref, ref.mean().item())
    if ref.dim() and ref.shape[-1] > 1:
        yield "the row's mean", ref.mean(-1, keepdim=True).expand_as(ref)


def same(one, other):
    """Bit by bit, so that NaN equals itself."""
    return torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))


def load(name):
    spec = importlib.util.spec_from_file_location(name, f"/opt/task/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.solution


if __name__ == "__main__":
    try:
        said = main()
    except Unfit as unfit:
        said = {"unfit": str(unfit)}
    except MemoryError:
        said = {"unfit": "too large for this machine's memory"}
    except Exception as error:
        said = {"unfit": f"does not run: {type(error).__name__}: {str(error)[:200]}"}
    OUT.write(json.dumps(said))
    OUT.flush()
    os._exit(0)
