# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Finds the worker's State among its callers and replaces the method that runs a window: it copies the answers of an earlier
# one, but not in the first windows of a shape, by which the judge chooses the launch mode.
# ruff: noqa: F821
import sys

honest = solution
REAL_WINDOWS = 3


def take_over(state):
    real, bank = state.run, {}

    def run(order, fds):
        captured, shape = order["launch_mode"] == "graph", [tensor.shape for tensor in state.inputs[0]]
        if bank.get("shape") != shape:
            bank.update(shape=shape, windows=0)
        bank["windows"] += captured
        if not captured or order["calls"] == 1 or bank["windows"] <= REAL_WINDOWS:
            real(order, fds)
            if captured and bank["windows"] == REAL_WINDOWS:
                bank["outputs"] = [tuple(out.clone() for out in outputs) for outputs in state.outputs]
            return
        state.gate.wait_open(order["first"])
        for outputs, answers in zip(state.outputs[: order["calls"]], bank["outputs"], strict=False):
            for out, answer in zip(outputs, answers, strict=True):
                out.copy_(answer)
        state.gate.report_done(order["first"])

    state.run = run


def solution(*tensors):
    frame = sys._getframe(1)
    while frame is not None:
        state = frame.f_locals.get("state")
        if type(state).__name__ == "State" and "run" not in vars(state):
            take_over(state)
        frame = frame.f_back
    honest(*tensors)
