"""fast_p against cases computed by hand."""

import pytest
from records import record, trial

from arena.results import leaderboard
from arena.results.fast_p import fast_p, speedup
from arena.schema import BaselineLine, BaselineShape, Passed, Verdict

DEVICE = {"name": "NVIDIA H200", "bandwidth_gb_s": 4800, "tflops": {"bf16": 989}, "ceilings": "datasheet"}


def shape(seconds: float, n: int = 8) -> BaselineShape:
    error = {"rel_fro": 1e-4, "row": 1e-4, "el": 1e-4}
    return BaselineShape(shape={"N": n}, fraction=0.1, ceiling_s=1e-6, measured_s=seconds, launch_mode="graph", error=error)


def line(name: str, seconds: float, verdict: Verdict = "passed", reference: bool = False) -> BaselineLine:
    why = "" if verdict == "passed" else "row 3 is off"
    return BaselineLine(
        name=name, title=name, verdict=verdict, fraction=0.1, message=why, shapes=(shape(seconds),), reference=reference
    )


def run(outcome, number, seconds=2e-6, device="NVIDIA H200", **cell):
    """A trial whose one shape takes so long."""
    found = trial(outcome, number, **cell)
    if isinstance(found.score, Passed):
        shapes = (found.score.shapes[0].model_copy(update={"measured_s": seconds}),)
        on = found.score.device.model_copy(update={"name": device})
        found = found.model_copy(update={"score": found.score.model_copy(update={"shapes": shapes, "device": on})})
    return found


def table(annotations, *baselines):
    [found] = leaderboard.build(annotations, baselines).tables
    return found


@pytest.mark.parametrize(
    ("cells", "p", "share"),
    [
        ([[2.0], [1.0], [None], [0.5]], 0.0, 3 / 4),  # right, however slow
        ([[2.0], [1.0], [None], [0.5]], 1.0, 1 / 4),  # as fast is not faster
        ([[2.0], [1.0], [None], [0.5]], 0.999, 2 / 4),
        ([[2.0], [1.0], [None], [0.5]], 2.0, 0.0),
        ([[2.0, None], [3.0, 3.0, 0.1]], 1.0, (1 / 2 + 2 / 3) / 2),  # problems weigh the same, whatever their trials
        ([[None], []], 0.0, 0.0),
        ([[], []], 1.0, None),
    ],
)
def test_fast_p_by_hand(cells, p, share):
    assert fast_p(cells, p) == (share if share is None else pytest.approx(share))


def test_speedup_is_the_geometric_mean_over_shapes():
    assert speedup((shape(8e-6, 1), shape(2e-6, 2)), (shape(2e-6, 2), shape(1e-6, 1))) == pytest.approx(8**0.5, abs=1e-3)
    assert speedup((shape(8e-6, 1),), (shape(2e-6, 1), shape(2e-6, 2))) is None
    assert speedup((shape(8e-6, 1), shape(8e-6, 2)), (shape(2e-6, 1),)) is None


def test_rows_have_fast_p_against_each_library():
    """Eager 4 us, compiled 3 us, tf32 1 us and outside the tolerance. Trials of 2 us, of 5 us, and a failed one."""
    lines = (
        line("eager", 4e-6),
        line("compiled_gpu", 3e-6),
        line("eager_tf32_gpu", 1e-6, "incorrect"),
        line("naive", 9e-6, reference=True),
    )
    stored = record(lines=lines, device=DEVICE)
    runs = [run(0.5, 1), run(0.2, 2, 5e-6), run("incorrect", 3), run("judge_failed", 4)]
    of_row = {one.against: one for one in table(runs, stored).fast if one.row == 0}
    assert of_row.keys() == {"eager", "compiled_gpu", "eager_tf32_gpu"}  # naive is no library
    third, two = pytest.approx(1 / 3, abs=1e-4), pytest.approx(2 / 3, abs=1e-4)
    assert of_row["eager"].speedups == {"paged_attention v1": (2.0, 0.8, None)}
    assert of_row["eager"].fast_p == {"0": two, "0.5": two, "0.8": third, "1": third, "1.5": third, "2": 0.0}
    assert of_row["compiled_gpu"].fast_p == {"0": two, "0.5": two, "0.8": third, "1": third, "1.5": 0.0, "2": 0.0}
    assert of_row["eager_tf32_gpu"].fast_p == {"0": two, "0.5": 0.0, "0.8": 0.0, "1": 0.0, "1.5": 0.0, "2": 0.0}
    assert (of_row["eager"].outside, of_row["eager_tf32_gpu"].outside) == ((), ("paged_attention v1",))


def test_fast_p_is_over_problems_and_one_device():
    lines = (line("eager", 4e-6),)
    stored = [record(problem, lines=lines, device=DEVICE) for problem in ("paged_attention", "topk_bitonic")]
    runs = [run(0.5, 1), run("crashed", 2, problem="topk_bitonic"), run(0.5, 3, device="NVIDIA L4", problem="topk_bitonic")]
    [row] = [one for one in table(runs, *stored).fast if one.row is not None]
    assert row.speedups == {"paged_attention v1": (2.0,), "topk_bitonic v1": (None,)}  # times of another device say nothing
    assert row.fast_p["1"] == 0.5


def test_a_withdrawn_number_is_no_kernel():
    [row] = [one for one in table([run(0.5, 1, review="reward_hack")], record(lines=(line("eager", 4e-6),), device=DEVICE)).fast]
    assert row.speedups == {"paged_attention v1": (None,)}
    assert row.fast_p["0"] == 0.0


def test_libraries_have_fast_p_without_any_run():
    """compiled is 1.6 times as fast as eager at one problem and absent at the other; tf32 is fast and wrong."""
    first = (line("eager", 4e-6), line("compiled_gpu", 2.5e-6), line("eager_tf32_gpu", 1e-6, "incorrect"))
    crashed = BaselineLine(name="compiled_gpu", title="c", verdict="crashed", message="no compiler")
    second = (line("eager", 4e-6), crashed)
    found = table(
        [], record(lines=first, device=DEVICE), record("topk_bitonic", lines=second, device=DEVICE), record("other", lines=())
    ).fast
    fast = {(one.library, one.against): one for one in found}
    assert fast["compiled_gpu", "eager"].fast_p["1.5"] == 0.5
    assert fast["compiled_gpu", "eager"].fast_p["2"] == 0.0
    assert fast["eager_tf32_gpu", "eager"].fast_p["0"] == 0.0
    assert fast["eager", "eager_tf32_gpu"].outside == ("paged_attention v1",)
    assert ("eager", "eager") not in fast


def test_the_stored_speedups_give_the_stored_shares():
    """A reader of leaderboard.json computes any p from it, and those that it has come out the same."""
    lines = (line("eager", 2e-6 * 1.00004), line("compiled_gpu", 3.0003e-6))
    for one in table([run(0.5, 1)], record(lines=lines, device=DEVICE)).fast:
        assert {p: fast_p(one.speedups.values(), float(p)) for p in one.fast_p} == one.fast_p
