"""A window on a GPU, step by step on a processor: what the judge queues, and what the worker launches for it."""

import os
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge import gpu_window, kernels  # noqa: E402
from arena.judge.device.memory import HostBuffer, HostMemory, layout  # noqa: E402
from arena.judge.gpu_window import Unqueued  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.sets import InputSpec, Sets  # noqa: E402
from arena.judge.window import WindowSpec  # noqa: E402
from arena.judge.worker import main  # noqa: E402

SETS, SEEDS = 4, (3.0, 5.0, 7.0, 9.0)


class Event:
    """In the place of a CUDA event: everything has happened as soon as it is queued."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return 2.0


class Played:
    """A worker that doubles its input. The judge's stream runs at once, and the worker's call where the judge waits for it."""

    def __init__(self, sets: Sets, alone: int | None) -> None:
        self.sets, self.alone, self.gate, self.frozen, self.orders = sets, alone, self, True, list[dict[str, Any]]()
        self.overdue = False

    def next(self, rounds: int) -> int:
        return 1

    @contextmanager
    def queued(self):
        yield

    def open(self, number: int) -> None: ...

    def passed(self) -> None: ...

    def wait_done(self, number: int) -> None:
        for index in range(self.orders[-1]["calls"]) if self.alone is None else [self.alone]:
            (out,), (given,) = self.sets.output(index), self.sets.input(index)
            assert out.isnan().all(), "an earlier call could have left the answer there"
            out.copy_(2 * given)

    def send(self, op: str, **fields: Any) -> None:
        self.orders.append(fields)

    def reply(self, op: str, limit_s: float) -> None: ...

    resume = freeze = reject_stray_packets = lambda self: None

    def ran_ns(self) -> int:
        return 0


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Sets:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    memory, floats = HostMemory(), layout([((64,), torch.float32)])
    inputs, outputs = (memory.buffer(SETS * floats.set_bytes) for _ in range(2))
    inputs.bytes.zero_()
    return Sets(memory, torch.zeros_like(inputs.bytes), inputs, outputs, floats, floats, SETS)


def prepare(sets: Sets) -> None:
    for index, seed in enumerate(SEEDS):
        sets.stage(index)[0].fill_(seed)
        sets.output(index)[0].fill_(float("nan"))


def windows(sets: Sets, alone: int | None, audited: tuple[int, ...] = ()) -> Any:
    worker: Any = Played(sets, alone)
    inputs = [InputSpec("public", int(seed)) for seed in SEEDS]
    how: Callable[..., Any] = partial(gpu_window.run, worker, sets, inputs, partial(prepare, sets), "graph", 1, 60.0)
    return how(alone=alone, audited=audited)


def test_a_window_publishes_all_sets_and_keeps_a_sample(sets: Sets) -> None:
    [found] = windows(sets, None)
    assert [sets.input(index)[0][0].item() for index in range(SETS)] == list(SEEDS)
    [(index, (out,))] = found.sample.items()
    assert out.tolist() == [2 * SEEDS[index]] * 64 and found.in_place


@pytest.mark.parametrize("alone", [0, 2])
def test_calls_alone_are_all_on_the_set_of_their_batch(sets: Sets, alone: int) -> None:
    found = windows(sets, alone, audited=(2,))
    seen = [sets.input(index)[0][0].item() for index in range(SETS)]
    assert seen == [SEEDS[-1] if index == alone else 0.0 for index in range(SETS)]
    kept = [{**each.sample, **({number: each.unsampled} if each.unsampled else {})} for number, each in enumerate(found, start=1)]
    assert [list(one) for one in kept] == [[1], [2]], "the first and the last do not count, and every other has its output copied"
    assert [one[number][0].unique().tolist() for number, one in enumerate(kept, start=1)] == [[2 * seed] for seed in SEEDS[1:-1]]
    assert 2 in found[1].sample and sum(map(len, (each.sample for each in found))) == 2


@pytest.mark.parametrize(
    ("verdict", "overdue", "expected"),
    [("timed_out", False, Unqueued), ("timed_out", True, Rejection), ("crashed", False, Rejection)],
)
def test_launches_that_do_not_return(sets: Sets, verdict: Any, overdue: bool, expected: type[Rejection]) -> None:
    def reply(op: str, limit_s: float) -> None:
        raise Rejection(verdict, f"no answer in {limit_s}")

    worker: Any = Played(sets, None)
    worker.reply, worker.overdue = reply, overdue
    with pytest.raises(Rejection) as refused:
        gpu_window.run(worker, sets, [InputSpec("public", 1)] * 2, lambda: None, "graph", 1, 60.0)
    assert type(refused.value) is expected
    assert refused.value.verdict == verdict


class Graph:
    """In the place of a CUDA graph: what was called while it was captured."""

    def __init__(self, keep_graph: bool) -> None:
        self.calls: list[int] = []

    def capture_begin(self, pool: object) -> None:
        Graph.under_way = self

    def capture_end(self) -> None:
        Graph.under_way = None

    under_way: "Graph | None" = None


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker with four sets, and `launched`: the sets of what it launched, one list for each launch."""
    launched: list[list[int]] = []

    class Chain:
        def __init__(self, graphs: list[Graph]) -> None:
            self.calls = [call for graph in graphs for call in graph.calls]

        def launch(self) -> None:
            launched.append(self.calls)

        def close(self) -> None:
            self.calls = []

    def call_all(solution: object, inputs: list[tuple[int]], outputs: object) -> None:
        if Graph.under_way is None:
            launched.append([])
        where = Graph.under_way.calls if Graph.under_way else launched[-1]
        where += [number for (number,) in inputs]

    for name in ("graph_pool_handle", "Stream", "synchronize", "default_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    kit: Any = SimpleNamespace(call_all=call_all)
    made: Any = main.State("", kit, "", "")
    made.solution, made.driver = object(), SimpleNamespace(Chain=Chain, attach=None)
    made.gate = SimpleNamespace(wait_open=lambda number: None, report_done=lambda number: None)
    made.inputs = made.outputs = [(number,) for number in range(SETS)]
    made.launched = launched
    return made


@pytest.mark.parametrize("launch_mode", ["graph", "stream"])
def test_a_window_of_one_call_is_on_the_chosen_set(state: Any, launch_mode: str) -> None:
    run = {"launch_mode": launch_mode, "first": 1}
    if launch_mode == "graph":
        state.capture({}, [])
    for chosen in (None, 3, 1):
        if chosen is not None:
            state.choose({"set": chosen}, [])
        state.launched.clear()
        state.run(run | {"calls": 1, "rounds": 2}, [])
        state.run(run | {"calls": SETS, "rounds": 1}, [])
        assert state.launched == [[chosen or 0], [chosen or 0], [0, 1, 2, 3]]
    state.map({"bytes": []}, [])
    assert (state.chosen, state.chains, state.graphs) == (0, {}, [])


@pytest.mark.parametrize("launch_mode", ["graph", "stream"])
def test_kernels_are_those_of_one_call_made_as_timed_ones_are(state: Any, launch_mode: str) -> None:
    """A graph that was captured before is launched. To capture it now would show a submission that it is not timed."""
    if launch_mode == "graph":
        state.capture({}, [])
        state.choose({"set": 2}, [])
        state.kit.call_all = None
    state.launched.clear()

    def kernels_of(launch: Any) -> list[str]:
        assert state.launched == []
        launch()
        assert state.launched == [[2]]
        return ["attend", "join", "attend"]

    state.recorder, memory = SimpleNamespace(kernels_of=kernels_of), HostBuffer(100)
    state.profile({"set": 2, "launch_mode": launch_mode}, [os.dup(memory.fd)])
    assert memory.bytes.numpy().tobytes().startswith(b"2\tattend\n1\tjoin\n\0")
    state.recorder.kernels_of = lambda launch: ["x" * 200]
    state.profile({"set": 2, "launch_mode": launch_mode}, [os.dup(memory.fd)])
    assert memory.bytes.numpy().tobytes() == b"1\t" + b"x" * 97 + b"\0", "no more than there is room for"
    memory.close()


@pytest.mark.parametrize("launch_mode", ["graph", "stream"])
def test_counters_are_of_one_call_made_as_timed_ones_are(state: Any, monkeypatch: pytest.MonkeyPatch, launch_mode: str) -> None:
    happened: Any = state.launched
    cudart = SimpleNamespace(cudaProfilerStart=lambda: happened.append("on"), cudaProfilerStop=lambda: happened.append("off"))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: happened.append("mark"))
    state.count({"set": None}, [])
    assert happened == ["on", "mark", "off"]
    if launch_mode == "graph":
        state.capture({}, [])
        state.choose({"set": 3}, [])
    happened.clear()
    state.count({"set": 3, "launch_mode": launch_mode}, [])
    assert happened == ["on", "mark", [3], "off"]


class Doubling:
    """A worker that doubles its inputs in each call, and in each launch of a graph."""

    def __init__(self, sets: Sets) -> None:
        self.sets, self.orders = sets, list[tuple[str, object]]()

    def order(self, op: str, limit_s: float, **fields: Any) -> None:
        self.orders.append((op, fields.get("calls", fields.get("set"))))
        called = {"run": range(SETS), "capture": range(SETS), "choose": [fields.get("set", 0)], "trim": []}[op]
        for index in called:
            (out,), (given,) = self.sets.output(index), self.sets.input(index)
            out.copy_(2 * given)


@pytest.fixture
def prepared(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What comes before the call of which the kernels are named."""

    def place(*where: Any) -> Sets:
        assert where[-1] == SETS, "as many as a window has"
        return sets

    monkeypatch.setattr(kernels, "place", place)
    seeds = iter(SEEDS)
    context: Any = SimpleNamespace(
        sampling=SimpleNamespace(first_call_limit_s=1.0),
        seeds=SimpleNamespace(take=lambda count: [next(seeds) for _ in range(count)]),
        memory=HostMemory(),
        code=SimpleNamespace(make_inputs=lambda shape, seed, *_: (torch.full((64,), seed),)),
    )
    return lambda worker, launch_mode: kernels._prepared(context, worker, {"N": 1}, WindowSpec(launch_mode, SETS))


@pytest.mark.parametrize("launch_mode", ["graph", "stream"])
def test_the_call_whose_kernels_are_named_finds_no_answer(sets: Sets, prepared: Any, launch_mode: str) -> None:
    """Plain calls and captures have come before it, and it finds new inputs and no answer. A kernel could look for that."""
    worker = Doubling(sets)
    chosen = prepared(worker, launch_mode)
    captured = [("capture", None), ("choose", chosen)] if launch_mode == "graph" else []
    assert worker.orders == [("run", SETS), ("trim", None), *captured]
    given = [sets.input(index)[0].unique().tolist() for index in range(SETS)]
    assert given == [[SEEDS[1]] if index == chosen else [SEEDS[0]] for index in range(SETS)]
    assert all(sets.output(index)[0].isnan().all() for index in range(SETS))


def test_a_window_that_never_ends_is_given_its_limit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question whether the GPU reports an error is asked once, and its own wait comes out of the same limit."""
    asked = []

    def order(op: str, limit_s: float) -> None:
        asked.append(op)
        time.sleep(0.05)

    worker: Any = SimpleNamespace(resume=lambda: None, order=order)
    monkeypatch.setattr(gpu_window, "SILENT_S", 0.1)
    began_s = time.monotonic()
    with pytest.raises(Rejection, match=r"took longer than 0\.5 s on the GPU"):
        gpu_window._wait(SimpleNamespace(query=lambda: False), worker, 0.5)  # type: ignore[arg-type]
    assert asked == ["wait"] and time.monotonic() - began_s >= 0.5
