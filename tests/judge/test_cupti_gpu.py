"""The kernels that a process launches, by CUPTI itself. Needs a GPU."""

import time

import pytest

pytest.importorskip("torch")

import torch
from torch.profiler import ProfilerActivity, profile

from arena.judge.worker.cupti import Recorder

pytestmark = [pytest.mark.gpu, pytest.mark.timing]


def test_it_names_what_torchs_profiler_names():
    """Also kernels of a graph that was captured before. What each took to start is for docs/measurements/judge.md."""
    x, graph = torch.rand(512, 512, device="cuda"), torch.cuda.CUDAGraph()
    out = torch.empty_like(x)
    torch.mul(x, 2, out=out)
    with torch.cuda.graph(graph):
        torch.mul(x, 2, out=out)

    def calls() -> None:
        torch.exp(x, out=out)
        torch.matmul(x, x, out=out)
        graph.replay()
        torch.sort(x, dim=1)
        torch.cuda.synchronize()

    calls()
    began = time.monotonic()
    recorder = Recorder()
    found = recorder.kernels_of(calls)
    own_s = time.monotonic() - began
    assert recorder.kernels_of(calls) == found, "each time the kernels of that time"
    began = time.monotonic()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as theirs:
        torch_s = time.monotonic() - began
        calls()
    events = [event for event in theirs.events() if event.device_type.name == "CUDA" and not event.name.startswith("Mem")]
    assert found == [event.name for event in sorted(events, key=lambda event: event.time_range.start)]
    assert any("exp" in name for name in found) and len(found) > 3
    assert own_s < 1
    print(f"started: own {own_s:.3f} s, torch's profiler {torch_s:.3f} s; {len(found)} kernels: {found}")
