"""How much of a GPU's memory sets may take: half, and less where the judge needs much to verify an answer."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena import catalog  # noqa: E402
from arena.errors import JudgeError  # noqa: E402
from arena.judge import buffers, problem_code  # noqa: E402
from arena.judge.context import ScoringContext  # noqa: E402
from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.sampling import GPU  # noqa: E402
from arena.judge.verify import verify_own  # noqa: E402
from arena.schema import Device  # noqa: E402

DEVICE = Device(name="a GPU", bandwidth_gb_s=1000.0, tflops={"bf16": 100.0}, ceilings="datasheet")
UNUSED: Any = None
GB = 10**9


def planned(free_gb: float, verifying_gb: float, monkeypatch: pytest.MonkeyPatch, inputs_gb: float = 0.8) -> ScoringContext:
    """A context for sets with such inputs and with outputs of 0.2 GB, each of which the judge holds twice."""
    shapes = ({"N": 1}, {"N": 2})
    problem: Any = SimpleNamespace(name="made_up", timed=lambda profile: shapes)
    code: Any = SimpleNamespace(extra_shapes=())
    # The second shape is the one that needs so much.
    needs = iter((0, int(verifying_gb * GB)))
    memory: Any = SimpleNamespace(free_bytes=lambda: int(free_gb * GB), peak_bytes=lambda work: next(needs))
    monkeypatch.setattr(ScoringContext, "input_layout", lambda *_: layout([((int(inputs_gb * GB),), torch.uint8)]))
    monkeypatch.setattr(ScoringContext, "output_layout", lambda *_: layout([((GB // 5,), torch.uint8)]))
    return ScoringContext(problem, code, DEVICE, memory=memory, sampling=GPU, seeds=UNUSED, stopwatch=UNUSED)


@pytest.mark.parametrize(
    ("free_gb", "verifying_gb", "count"),
    [(80.0, 1.0, 20), (80.0, 19.9, 20), (24.0, 1.0, 6), (24.0, 8.0, 5), (24.0, 12.0, 3), (12.0, 1.0, 3)],
    ids=["80 GB card", "as much as is left beside half", "24 GB card", "one set less", "much to verify", "just enough"],
)
def test_the_number_of_sets_follows_from_the_memory(
    free_gb: float, verifying_gb: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = planned(free_gb, verifying_gb, monkeypatch)
    assert context.room({"N": 1}) == context.room({"N": 2}) == count


@pytest.mark.parametrize(("free_gb", "verifying_gb", "for_sets"), [(11.8, 1.0, "5.9"), (24.0, 14.0, "4.0"), (24.0, 20.0, "0.0")])
def test_a_shape_that_cannot_fit_is_refused_in_words(
    free_gb: float, verifying_gb: float, for_sets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = planned(free_gb, verifying_gb, monkeypatch)
    text = (
        f"made_up at N=1 does not fit on this device: 3 sets take 6.0 GB, and {for_sets} GB of the {free_gb} that are free are "
        f"for them (verifying one answer takes {verifying_gb} GB); free its memory or choose a larger device"
    )
    with pytest.raises(JudgeError) as caught:
        context.room({"N": 1})
    assert str(caught.value) == text


def test_a_device_on_which_no_answer_can_be_verified_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(work: Any) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    context = planned(24.0, 1.0, monkeypatch)
    context = replace(context, memory=SimpleNamespace(free_bytes=context.memory.free_bytes, peak_bytes=short))
    with pytest.raises(JudgeError, match="made_up at N=1 does not fit on this device: there is not the memory to verify one"):
        context.room({"N": 2})


def test_verifying_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement follows no submission: a second one, beside workers that hold memory, would raise StopIteration."""
    context = planned(24.0, 8.0, monkeypatch)
    assert [context.room({"N": 1}) for _ in range(3)] == [5] * 3


class Mapped:
    """A worker and a memory that note what is mapped, in GB."""

    def __init__(self, context: ScoringContext) -> None:
        self.sizes: list[tuple[float, ...]] = []
        self.staging_kept = True
        self.buffers: Any = None
        memory = SimpleNamespace(
            free_bytes=context.memory.free_bytes,
            peak_bytes=context.memory.peak_bytes,
            buffer=lambda size: SimpleNamespace(bytes=range(size), fd=0, close=lambda: None),
            release_staging=lambda: setattr(self, "staging_kept", False),
        )
        self.context = replace(context, memory=memory)

    def resume(self) -> None: ...

    def order(self, name: str, *, limit_s: float, fds: Any = (), bytes: Any = ()) -> None:
        if bytes:
            self.sizes.append(tuple(round(size / GB, 1) for size in bytes))

    def close_buffers(self) -> None:
        self.buffers = None


def test_buffers_that_suit_all_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = Mapped(planned(80.0, 1.0, monkeypatch))
    buffers.reserve(worker.context, worker, 4 * GB, GB)
    buffers.reserve(worker.context, worker, GB, 3 * GB)
    buffers.reserve(worker.context, worker, 2 * GB, 2 * GB)
    assert worker.sizes == [(4.0, 1.0), (4.0, 3.0)] and worker.staging_kept


def test_buffers_that_do_not_fit_together_are_mapped_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shape with large inputs and one with large outputs: together 16 GB with copies, where 10 are for both."""
    worker: Any = Mapped(planned(24.0, 8.0, monkeypatch))
    buffers.reserve(worker.context, worker, 4 * GB, GB)
    buffers.reserve(worker.context, worker, GB, 4 * GB)
    assert worker.sizes == [(4.0, 1.0), (1.0, 4.0)] and not worker.staging_kept
    buffers.reserve(worker.context, worker, GB // 2, GB)
    assert len(worker.sizes) == 2  # those that are there suffice


@pytest.mark.parametrize(("free_gb", "sizes"), [(80.0, (2.0, 5.0)), (24.0, (0.2, 5.0))], ids=["both", "the largest alone"])
def test_what_is_reserved_for_several_shapes(free_gb: float, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = Mapped(planned(free_gb, 10.0, monkeypatch))
    layouts = {1: (1.0, 0.0), 2: (0.1, 2.5)}  # GB of inputs and outputs; two sets of each take 4.0 and 5.4 GB, and 9.0 together
    for number, name in enumerate(("input_layout", "output_layout")):
        found = {N: SimpleNamespace(set_bytes=int(pair[number] * GB)) for N, pair in layouts.items()}
        monkeypatch.setattr(ScoringContext, name, lambda _, shape, *names, found=found: found[shape["N"]])
    buffers.reserve_for(worker.context, worker, [({"N": 1}, 2), ({"N": 2}, 2)])
    assert worker.sizes == [sizes]


@pytest.mark.parametrize("name", catalog.problem_names())
def test_the_reference_can_be_verified_against_itself(name: str) -> None:
    """As the judge does on a GPU, to see what that takes."""
    problem = catalog.problem(name)
    code = problem_code.load(problem, "cpu")
    for shape in (*problem.shapes["cpu"], *code.extra_shapes):
        verify_own(code, problem, shape, "cpu")


def test_a_processor_bounds_sets_by_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    context = replace(planned(1.0, 99.0, monkeypatch, inputs_gb=0.02), memory=HostMemory(), sampling=replace(GPU, min_calls=2))
    assert context.fits(10**15, 10**15)
    assert context.room({"N": 1}) == 2
