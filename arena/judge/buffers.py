"""The buffers of a worker: mapped on both sides, made larger where a shape needs more, with the sets of one shape in them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing

from arena.judge.context import CHECKED_CALLS, ScoringContext, held_bytes
from arena.judge.problem_code import Shape
from arena.judge.sets import Sets
from arena.judge.worker_client import Worker


def place(context: ScoringContext, worker: Worker, shape: Shape, input_class: str, count: int) -> Sets:
    """`count` sets of this shape in the worker's buffers, which are made larger where they are too small."""
    memory, input_layout, output_layout = context.memory, context.input_layout(shape, input_class), context.output_layout(shape)
    reserve(context, worker, count * input_layout.set_bytes, count * output_layout.set_bytes)
    memory.trim()  # now, and not between windows
    assert worker.buffers is not None
    inputs, outputs = worker.buffers
    sets = Sets(memory, memory.staging(inputs), inputs, outputs, input_layout, output_layout, count)
    worker.resume()
    worker.order(
        "shape", limit_s=context.sampling.call_limit_s, sets=count, inputs=input_layout.message(), outputs=output_layout.message()
    )
    return sets


def reserve(context: ScoringContext, worker: Worker, *sizes_bytes: int) -> None:
    """Map buffers of at least these sizes for inputs and outputs into the worker. They stay until others are needed."""
    mapped_bytes = [len(buffer.bytes) for buffer in worker.buffers or ()] or [0, 0]
    wanted_bytes = [max(pair) for pair in zip(mapped_bytes, sizes_bytes, strict=True)]
    if not context.fits(*wanted_bytes):
        wanted_bytes = list(sizes_bytes)  # without what another shape needed
        context.memory.release_staging()
    if worker.buffers and wanted_bytes == mapped_bytes:
        return
    release(context, worker)  # before the larger ones come, so that both need not fit
    worker.resume()
    with ExitStack() as stack:  # the first is not kept where there is no memory for the second
        inputs, outputs = (stack.enter_context(closing(context.memory.buffer(size_bytes))) for size_bytes in wanted_bytes)
        stack.pop_all()
    worker.buffers = inputs, outputs
    worker.order("map", fds=[inputs.fd, outputs.fd], limit_s=context.sampling.call_limit_s, bytes=wanted_bytes)


def release(context: ScoringContext, worker: Worker) -> None:
    """Unmap the worker's buffers on both sides."""
    if worker.buffers:
        worker.resume()
        worker.order("map", limit_s=context.sampling.call_limit_s, bytes=[])
        worker.close_buffers()


def reserve_for(context: ScoringContext, worker: Worker, counts: Iterable[tuple[Shape, int]], *, hidden: bool = False) -> None:
    """Buffers for that many sets of each shape; with `hidden`, also for a check of every hidden input class.

    Where the memory is too short for buffers that suit all, they are the largest's, and others take their place when needed.
    """
    sizes = []
    for shape, count in counts:
        sizes.append((count * context.input_layout(shape, "public").set_bytes, count * context.output_layout(shape).set_bytes))
        if hidden:
            checked = [CHECKED_CALLS * context.input_layout(shape, name).set_bytes for name in context.code.input_classes]
            sizes.append((max(checked, default=0), CHECKED_CALLS * context.output_layout(shape).set_bytes))
    inputs_bytes, outputs_bytes = (max(each) for each in zip(*sizes, strict=True))
    if not context.fits(inputs_bytes, outputs_bytes):
        inputs_bytes, outputs_bytes = max(sizes, key=lambda size: held_bytes(*size))
    reserve(context, worker, inputs_bytes, outputs_bytes)
