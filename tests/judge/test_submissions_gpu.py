"""On a GPU: every honest, wrong and cheating submission gets its verdict, and none that cheats scores above its honest twin."""

from dataclasses import replace
from functools import cache
from typing import get_args

import pytest

pytest.importorskip("torch")

from attack_table import HONEST, Entry, entry, honest
from submission import ATTACKS, SHIPPED, submitted

from arena import catalog, judge
from arena.judge import kernels
from arena.judge.sampling import GPU
from arena.sandboxes import bwrap
from arena.schema import Passed, VendorLibrary
from arena.submission import collect

pytestmark = [pytest.mark.gpu, pytest.mark.timing]

QUICK = replace(GPU, processes=1, repeats=0, counters=False, first_call_limit_s=100.0)
MARGIN = 1.02
PAGED = [
    Entry(path.stem, path, catalog.problem("paged_attention"), SHIPPED.parent, "gpu")
    for stem, path in catalog.solutions(SHIPPED.parent, "gpu").items()
    if stem.startswith(("wrong_", "cheat_"))
]
"""The problem's own wrong and cheating solutions for a GPU."""
SUBMISSIONS = [found for path in sorted((ATTACKS / "gpu").glob("*.py")) if (found := entry(f"gpu/{path.stem}", "gpu"))]
SUBMISSIONS += [found for found in honest("gpu") if found.path.parent == HONEST and found.problem.name == "paged_attention"]


def scored(submission, latency=(), name="paged_attention", shapes=slice(1, None, 3), *, counters=False):
    import torch

    problem = catalog.problem(name)
    # Two shapes that differ in everything are enough for a verdict, and a shape costs seconds.
    problem = problem.model_copy(update={"shapes": {"gpu": problem.shapes["gpu"][shapes]}, "latency": {"gpu": latency}})
    problem = problem.model_copy(update={"absent_libraries": get_args(VendorLibrary)})
    hardware = catalog.hardware_of(torch.cuda.get_device_name())
    return judge.score(submission, problem, hardware, digest="", sandbox=bwrap, sampling=replace(QUICK, counters=counters))


def oracle_source():
    return collect(SHIPPED, "oracle_gpu.py")


@cache
def oracle():
    return scored(oracle_source())


@pytest.mark.parametrize("found", [*PAGED, *SUBMISSIONS], ids=lambda found: found.path.stem)
def test_verdict(found):
    submission, wanted = found.submission()
    result = scored(submission)
    print(result.verdict, getattr(result, "peak_fraction", ""), result.message)  # for docs/measurements/judge.md
    if found.bounded and isinstance(result, Passed):
        assert result.peak_fraction <= MARGIN * oracle().peak_fraction
        return
    assert result.verdict == wanted, result.message


def test_kernels_are_those_of_captured_calls():
    """By its launches, and not because a library is absent: that would show without any evidence."""
    found = next(each for each in SUBMISSIONS if each.path.stem == "cheat_excluded_only_when_captured")
    result = scored(found.submission()[0])
    assert result.verdict == "forbidden" and result.message.startswith("A call launched"), result.message


@pytest.mark.parametrize("name", ["two_streams_joined", "second_stream", "own_graph"])
def test_several_streams_cost_little(name):
    found = next(each for each in honest("gpu") if each.name == f"paged_attention/{name}")
    assert scored(found.submission()[0]).peak_fraction >= 0.97 * oracle().peak_fraction


@pytest.mark.parametrize(
    ("name", "proof"), [("", "counters"), ("cheat_drowns_its_counters", "counters"), ("cheat_forges_its_counters", "unproven")]
)
def test_counters_are_read_or_missed(name, proof):
    """What a submission prints hides none. One that ends their profiler is marked for review."""
    if isinstance(reason := kernels.counters_command(), str):
        pytest.skip(reason)
    found = [each for each in SUBMISSIONS if each.path.stem == name]
    result = scored(found[0].submission()[0] if found else oracle_source(), counters=True)
    assert isinstance(result, Passed), result.message
    print(result.peak_fraction, [(each.proof, each.note) for each in result.evidence])
    assert {each.proof for each in result.evidence} == {proof}
    assert result.review_suggested or proof == "counters"


WAITS_ON_SMALL_ONES = """

honest = solution


def solution(q, *others):
    honest(q, *others)
    if len(q) == 1:
        torch.cuda.synchronize()
"""


@pytest.mark.parametrize(
    ("more", "launch_mode"),
    [("", "graph"), (WAITS_ON_SMALL_ONES, "stream")],
    ids=["captured", "not captured"],
)
def test_latency_shapes_have_a_launch_mode_of_their_own(more, launch_mode):
    small = {"B": 1, "Hq": 32, "Hkv": 8, "D": 128, "mean_len": 512, "page": 16}
    result = scored(submitted((SHIPPED / "oracle_gpu.py").read_text() + more), latency=(small,))
    assert isinstance(result, Passed), result.message
    [found] = result.latency
    print(found.measured_s, found.alone_s, found.calls_per_window, result.timings)  # for docs/measurements/judge.md
    assert {shape.launch_mode for shape in result.shapes} == {"graph"}
    assert found.launch_mode == launch_mode
    noted = "calls on latency shapes are timed one by one" in result.environment.get("notes", "")
    assert noted == (launch_mode == "stream"), result.environment
    assert len(result.evidence) == len(result.shapes)


def test_calls_that_do_not_fit_into_the_queue_go_one_by_one():
    """Some hundred calls of some hundred kernels fill the cold window of one of these small shapes; the mode is that of all."""
    path = catalog.solutions(catalog.problem_folder("topk_bitonic"), "gpu")["naive"]
    small = catalog.problem("topk_bitonic").latency["gpu"]
    result = scored(collect(path.parent, path.name), small, "topk_bitonic", slice(3, 4))
    assert isinstance(result, Passed), result.message
    assert [shape.launch_mode for shape in (*result.shapes, *result.latency)] == ["graph", *["stream"] * len(small)]
    assert "calls on latency shapes are timed one by one" in result.environment["notes"]
