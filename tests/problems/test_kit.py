"""The kit that every workspace gets: the errors, the check, the timing loop and the prompt."""

import ast
import json
import math
import re
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from arena import catalog, paths  # noqa: E402
from arena.files.text import render  # noqa: E402
from arena.judge import forbidden, problem_code  # noqa: E402
from arena.results import run_folder  # noqa: E402
from arena.submission import NoSubmission, collect  # noqa: E402

KIT = paths.problems() / "kit"
CHECK, BENCHMARK = problem_code.kit("check"), problem_code.kit("benchmark")
PROBLEM = catalog.problem("paged_attention")
SOLUTIONS = paths.problems() / "paged_attention" / "solutions"
NEEDS_CC = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler `cc` on this machine")
MACHINE = "two cores of a test machine"


@pytest.fixture
def work(tmp_path):
    """A workspace as an agent finds it."""
    run = run_folder.RunFolder(tmp_path)
    run.work.mkdir()
    folders = {"problem_folder": SOLUTIONS.parent, "kit_folder": KIT}
    run_folder.fill_workspace(run, PROBLEM, "cpu", PROBLEM.shapes["cpu"], MACHINE, None, **folders)
    return run.work


def run(folder, script, *arguments):
    command = [sys.executable, script, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def checked(work, source):
    (work / "solution.py").write_text(source)
    return run(work, "check.py", "--seeds", "1")


# ------------------------------------------------------------------ errors and worst


def test_errors_by_hand():
    ref = torch.tensor([[3.0, 4.0], [0.0, 10.0]])
    out = torch.tensor([[3.0, 4.5], [0.0, 10.0]])
    errors = CHECK.errors(out, ref)
    assert errors["rel_fro"] == pytest.approx(0.5 / math.sqrt(125))
    assert errors["row"] == pytest.approx(0.5 / 5)
    assert errors["el"] == pytest.approx(0.5 / (math.sqrt(12.5) + 4))
    assert CHECK.worst(out, ref) == (0, 1)


def test_rows_near_zero_are_compared_with_a_thousandth_of_the_re():
    ref = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    out = torch.tensor([[0.001, 0.0], [3.0, 4.0]])
    errors = CHECK.errors(out, ref)
    assert errors["row"] == pytest.approx(0.001 / (1e-3 * math.sqrt(12.5)))
    assert errors["el"] == pytest.approx(0.001 / (1e-3 * math.sqrt(6.25)))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_zeros_miss_by_all_there_is_at_any_scale(scale):
    ref = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * scale
    errors = CHECK.errors(torch.zeros_like(ref), ref)
    assert (errors["rel_fro"], errors["row"]) == pytest.approx((1, 1))
    assert set(CHECK.errors(ref, ref).values()) == {0}


def test_one_wrong_element_in_a_long_row_shows_in_el():
    ref = torch.ones(2, 100_000)
    out = ref.clone()
    out[1, 777] = 1.1
    errors = CHECK.errors(out, ref)
    assert errors["row"] < 1e-3 < errors["el"]
    assert CHECK.worst(out, ref) == (1, 777)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_infinitely_wrong(bad):
    ref = torch.ones(2, 3, 4)
    out = ref.clone()
    out[1, 2, 3] = bad
    assert set(CHECK.errors(out, ref).values()) == {math.inf}
    assert CHECK.worst(out, ref) == (1, 2, 3)
    assert CHECK.errors(out, out)["el"] == 0
    assert set(CHECK.errors(ref, out).values()) == {math.inf}


def test_an_answer_of_zeros_and_a_scalar_can_be_measured():
    zeros = torch.zeros(3, 3)
    assert set(CHECK.errors(zeros, zeros).values()) == {0}
    assert CHECK.errors(zeros + 1e-6, zeros)["el"] > 1e100
    assert CHECK.errors(torch.tensor(1.5), torch.tensor(1.0))["rel_fro"] == 0.5
    assert CHECK.worst(torch.tensor(1.5), torch.tensor(1.0)) == ()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float16, torch.float32])
def test_errors_of_every_dtype_are_in_fp64(dtype):
    ref = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    assert set(CHECK.errors(ref.to(dtype), ref).values()) == {0}
    assert CHECK.errors((1 - ref).to(dtype), ref)["rel_fro"] == pytest.approx(math.sqrt(4 / 3))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("numbers", "finite"),
    [
        ([1.0, 2.0], True),
        ([], True),
        ([1.0, math.nan], False),
        ([1.0, math.inf], False),
        ([math.inf, -math.inf], False),
    ],
)
def test_numbers_that_are_not_finite_show_in_their_sum(numbers, finite, dtype):
    if dtype is torch.float8_e4m3fn:
        numbers = [math.nan if math.isinf(number) else number for number in numbers]  # it has no infinity
    assert CHECK.finite(torch.tensor(numbers).to(dtype)) == finite


def test_a_sum_that_overflows_hides_nothing():
    """Finite numbers whose sum is not take the longer way, to the same errors."""
    ref = torch.full((2, 2), 1e308, dtype=torch.float64)
    assert not CHECK.finite(ref) and not CHECK.finite(torch.full((2,), 3e38))
    wide = torch.full((2, 2), 3e38)
    assert set(CHECK.errors(wide, wide.double()).values()) == {0}
    assert CHECK.errors(2e38 * torch.ones(2, 2), wide.double())["rel_fro"] == pytest.approx(1 / 3)


def test_opposite_infinities_do_not_cancel():
    inf = torch.tensor([[math.inf, 1.0]])
    assert set(CHECK.errors(-inf, inf.double()).values()) == {math.inf}
    assert set(CHECK.errors(torch.tensor([[math.inf, -math.inf]]), torch.ones(1, 2).double()).values()) == {math.inf}
    assert set(CHECK.errors(inf, inf.double()).values()) == {0}


# ------------------------------------------------------------------ a call


def called(solution, *inputs):
    """The outputs after one call of a solution that is given them."""
    outputs = (torch.zeros(4), torch.zeros(4, dtype=torch.int64))
    BENCHMARK.call_all(solution, [inputs], [outputs])
    return [out.tolist() for out in outputs]


def test_a_solution_is_given_its_outputs_after_its_inputs():
    def solution(a, y, count):
        y.copy_(a)
        count.fill_(3)

    assert called(solution, torch.ones(4)) == [[1, 1, 1, 1], [3, 3, 3, 3]]


def test_call_all_fills_every_output():
    inputs = [(torch.full((4,), float(i)),) for i in range(5)]
    outputs = [(torch.zeros(4),) for _ in inputs]

    def solution(a, y):
        y.copy_(a)

    BENCHMARK.call_all(solution, inputs, outputs)
    assert [int(y[0]) for (y,) in outputs] == [0, 1, 2, 3, 4]


def test_codes_are_small_and_distinct():
    codes = [value for name, value in vars(BENCHMARK).items() if name.startswith("WRONG_")]
    assert sorted(codes) == list(range(1, len(codes) + 1))


Y = "y"
"""Stands for the output itself."""


@pytest.mark.parametrize("returned", [False, (), torch.ones(4), Y], ids=["False", "empty", "tensor", "its output"])
def test_a_solution_that_returns_something_is_told_what_to_do(returned):
    with pytest.raises(
        BENCHMARK.BadOutput, match="write the results into the outputs, its last arguments, and return None"
    ) as caught:
        called(lambda a, y, count: y.copy_(a) if returned is Y else returned, torch.ones(4))
    assert caught.value.code == BENCHMARK.WRONG_RETURN


MOVES = {
    "set_": lambda y, a: y.set_(a),
    "data": lambda y, a: setattr(y, "data", a),
    "resize_": lambda y, a: y.resize_(2),
    "another view": lambda y, a: y.set_(y.flip(0)),
    "transposed": lambda y, a: y.unsqueeze_(0),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_an_output_stays_where_it_is(move):
    def solution(a, y, count):
        move(y, a)

    outputs = (torch.zeros(4), torch.zeros(4))
    with pytest.raises(BENCHMARK.BadOutput) as caught:
        BENCHMARK.call_all(solution, [(torch.ones(4),)], [outputs])
    assert caught.value.code == BENCHMARK.WRONG_STORAGE
    assert outputs[0].tolist() == [0, 0, 0, 0]


def test_buffers_hold_no_answer_before_a_call():
    floats, integers = BENCHMARK.output_buffers(
        {"outputs": [{"shape": ["N", 3], "dtype": "bfloat16"}, {"shape": [64], "dtype": "int32"}]}, {"N": 2}, "cpu"
    )
    assert floats.shape == (2, 3) and floats.isnan().all()
    assert len(integers.unique()) > 1


@pytest.mark.slow
def test_replacing_torchs_functions_fools_only_the_solution(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(KIT)!r})
import torch, benchmark
solution = benchmark.load_solution({str(SOLUTIONS / "cheat_patch_clock.py")!r})
q = torch.ones(2, 3)
outputs = [(torch.zeros(2, 3),)]
q.copy_(torch.zeros(2, 3))
print("patched" if q.sum() == 6 and q.is_set_to(outputs[0][0]) else "not patched")
benchmark.call_all(solution, [(q, q, q, q)], outputs)
print("written" if outputs[0][0].abs().sum() > 0 else "untouched")
try:
    benchmark.call_all(lambda a, y: setattr(y, 'data', a), [(q,)], outputs)
except benchmark.BadOutput:
    print("seen")
"""
    done = run(tmp_path, "-c", program)
    assert done.stdout.split("\n")[:3] == ["patched", "written", "seen"], done.stderr


@pytest.mark.timing
def test_the_loop_costs_a_few_microseconds_a_call():
    out = torch.zeros(4, 8, 64, dtype=torch.bfloat16)
    inputs, outputs = [(out,)] * 1000, [(torch.zeros_like(out),)] * 1000
    assert min(BENCHMARK.timed(lambda x, y: None, inputs, outputs, "cpu") for _ in range(5)) / 1000 < 20e-6


# ------------------------------------------------------------------ loading


def test_loading_says_what_is_wrong(tmp_path):
    with pytest.raises(BENCHMARK.BadSolution, match="no such file"):
        BENCHMARK.load_solution(tmp_path / "solution.py")
    (tmp_path / "solution.py").write_text("def solve(x): return x\n")
    with pytest.raises(BENCHMARK.BadSolution, match="defines no function `solution`"):
        BENCHMARK.load_solution(tmp_path / "solution.py")


QUEUES = "import os, sys; print('queues', os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS'), file=sys.stderr)\n"


@pytest.mark.slow
def test_a_benchmark_alone_asks_for_one_hardware_queue(work, monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    (work / "solution.py").write_text(QUEUES)
    assert "queues 1\n" in run(work, "benchmark.py").stderr
    # The judge imports the kit, and its own streams must not share a queue.
    assert "queues 32\n" in run(work, "-c", f"import benchmark, check\n{QUEUES}").stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check.py", "benchmark.py"])
def test_a_kit_file_stands_alone_and_does_nothing_when_imported(name, tmp_path):
    shutil.copyfile(KIT / name, tmp_path / name)
    done = run(tmp_path, "-c", f"import {name.removesuffix('.py')}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    tree = ast.parse((KIT / name).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {module.partition(".")[0] for module in imported} - set(sys.stdlib_module_names) - {"torch", "benchmark", "rules"}
    assert outside == set()


# ------------------------------------------------------------------ check.py in a workspace


@pytest.mark.parametrize("stem", [pytest.param("oracle", marks=NEEDS_CC), "naive"])
def test_check_passes_an_honest_solution(work, stem):
    done = checked(work, (SOLUTIONS / f"{stem}.py").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "PASS"
    assert len(lines) == 1 + len(PROBLEM.shapes["cpu"])
    for line, shape in zip(lines, PROBLEM.shapes["cpu"], strict=False):
        assert line.startswith("ok  ")
        assert all(f"{name}={size}" in line for name, size in shape.items())
        assert all(f"{key} " in line for key in ("rel_fro", "row", "el"))
        assert all(f"(limit {limit:g})" in line for limit in PROBLEM.tolerance.values())


FOUND_BY_CHECK = [
    path.stem for path in sorted(SOLUTIONS.glob("wrong_*.py")) if path.stem not in ("wrong_nan_times_zero", "wrong_no_max")
]


@pytest.mark.slow
@pytest.mark.parametrize("stem", FOUND_BY_CHECK)
def test_check_fails_a_wrong_solution_and_says_where(work, stem):
    done = checked(work, (SOLUTIONS / f"{stem}.py").read_text())
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "FAIL"
    assert re.search(r"out\[\d+, \d+, \d+\] is \S+ and should be \S+", done.stdout)


NAIVE = (SOLUTIONS / "naive.py").read_text()
EVERY_OTHER_CALL = """
honest, calls = solution, []
def solution(*tensors):
    calls.append(1)
    honest(*tensors)
    tensors[-1].mul_(len(calls) % 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, words",
    [
        ((SOLUTIONS / "cheat_lazy_tensor.py").read_text(), "write into the tensor as it came"),
        (NAIVE + "    kv.zero_()\n", "input kv was changed"),
        (NAIVE + "    return out\n", "the solution returned a Tensor; write the results into the outputs"),
        (NAIVE + "    out.resize_(1)\n", "output 0 was given another memory or shape"),
        (NAIVE + "    out.mul_(float('nan'))\n", "is nan and should be"),
        (NAIVE + EVERY_OTHER_CALL, "wrong at the second"),
        ("def solve(): ...\n", "defines no function `solution`"),
    ],
    ids=["subclass", "changes input", "returns", "resizes", "nan", "second call", "no function"],
)  # fmt: skip
def test_check_explains_other_faults(work, source, words):
    done = checked(work, source)
    assert done.returncode == 1
    assert words in done.stdout
    assert done.stdout.splitlines()[-1] == "FAIL"


@pytest.mark.slow
def test_check_shows_the_solutions_own_error(work):
    done = checked(work, "def solution(*inputs):\n    raise ZeroDivisionError('by me')\n")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "FAIL"
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: by me"


@pytest.mark.slow
def test_check_without_a_solution(work):
    done = run(work, "check.py")
    assert done.returncode == 1
    assert "solution.py: no such file" in done.stdout


@pytest.mark.slow
def test_a_seed_repeats_a_failure(work):
    (work / "solution.py").write_text((SOLUTIONS / "wrong_zeros.py").read_text())
    first, second = (run(work, "check.py", "--seeds", "1", "--seed", "5").stdout for _ in range(2))
    assert first == second
    assert "seed 5" in first


@pytest.mark.slow
def test_check_on_gpu_shapes_needs_a_gpu(work):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    facts = json.loads((work / "problem.json").read_text()) | {"profile": "gpu"}
    (work / "problem.json").write_text(json.dumps(facts))
    done = checked(work, NAIVE)
    assert done.returncode == 1
    assert "torch finds none here" in done.stdout
    assert run(work, "benchmark.py").returncode == 2


# ------------------------------------------------------------------ benchmark.py in a workspace

SILENT_ABOUT = ("ceiling", "peak", "score", "evaluat", "benchmark of", "budget", "minutes", "fraction")


NAMED = NAIVE + "\n\ndef other(a, b):\n    return a @ b\n"


@pytest.mark.slow
def test_check_finds_the_names_that_a_score_would_refuse(work):
    done = checked(work, NAMED)
    last = len(NAMED.splitlines())
    assert done.stdout.splitlines()[-2:] == [f"FAIL  solution.py:{last} uses operator.matmul, which may not be used", "FAIL"]
    assert done.returncode == 1
    assert [(use.line, use.name) for use in forbidden.forbidden(NAMED, PROBLEM.forbidden)] == [(last, "operator.matmul")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda source: source + "# soft\u00adhyphen\n", "holds U+00AD (SOFT HYPHEN), which a reader cannot see; remove it"),
        (lambda source: "# coding: latin-1\n" + source, "declares the encoding iso-8859-1; only UTF-8 is taken"),
        (lambda source: "\ufeff" + source, ""),
    ],
    ids=["invisible", "other encoding", "byte order mark"],
)
def test_check_passes_what_is_taken_and_nothing_else(work, change, reason):
    done = checked(work, change(NAIVE))
    assert done.stdout.splitlines()[-1] == ("FAIL" if reason else "PASS"), done.stdout
    assert reason in done.stdout
    try:
        collect(work)
    except NoSubmission as none:
        assert reason and none.reason in done.stdout
    else:
        assert not reason


@pytest.mark.slow
def test_check_refuses_a_link_as_the_collection_does(work):
    (work / "other.py").write_text(NAIVE)
    (work / "solution.py").symlink_to("other.py")
    done = run(work, "check.py")
    assert done.stdout.splitlines()[-2:] == ["FAIL  solution.py is a symbolic link; only a regular file is taken", "FAIL"]
    with pytest.raises(NoSubmission, match="is a symbolic link; only a regular file is taken"):
        collect(work)


def test_the_prompt_and_a_command_tell_the_time(tmp_path):
    run_of = run_folder.RunFolder(tmp_path)
    run_of.work.mkdir()
    folders = {"problem_folder": SOLUTIONS.parent, "kit_folder": KIT}
    prompt = run_folder.fill_workspace(run_of, PROBLEM, "cpu", PROBLEM.shapes["cpu"], MACHINE, 2700.0, **folders)
    [line] = [line for line in prompt.splitlines() if "minutes" in line]
    assert line.startswith("You have 45 minutes, ") and "`python time_left.py`" in line
    run_folder.start_clock(run_of, 2700.0)
    assert re.fullmatch(r"(45 min 0|44 min 5\d) s left of 45 min\n", run(run_of.work, "time_left.py").stdout)
    run_folder.start_clock(run_of, -5.0)
    assert run(run_of.work, "time_left.py").stdout.startswith("0 min 0 s left")


@pytest.mark.slow
def test_benchmark_prints_a_row_for_each_shape(work):
    (work / "solution.py").write_text(NAIVE)
    done = run(work, "benchmark.py", "--windows", "3")
    assert done.returncode == 0, done.stderr
    first, *rows = done.stdout.splitlines()
    assert first.startswith("times on one core") or first.startswith("times with one torch thread")
    assert len(rows) == len(PROBLEM.shapes["cpu"])
    for row, shape in zip(rows, PROBLEM.shapes["cpu"], strict=True):
        name, figures = row.split(": ")
        assert name == " ".join(f"{key}={size}" for key, size in shape.items())
        found = re.fullmatch(r"(\S+) us per call \((\S+)\.\.(\S+)\), (\S+) GB/s, (\S+) TFLOP/s", figures)
        assert found is not None
        call_us, low_us, high_us, gb_s, tflops = map(float, found.groups())
        assert low_us <= call_us <= high_us
        assert gb_s == pytest.approx(PROBLEM.bytes(shape) / call_us / 1e3, abs=0.06)
        assert tflops == pytest.approx(PROBLEM.flops(shape) / call_us / 1e6, abs=1e-4)
    assert not [word for word in SILENT_ABOUT if word in done.stdout.lower()]


@pytest.mark.slow
def test_benchmark_rejects_a_wrong_output(work):
    (work / "solution.py").write_text((SOLUTIONS / "cheat_lazy_tensor.py").read_text())
    done = run(work, "benchmark.py", "--windows", "1")
    assert done.returncode == 1
    assert "write into the tensor as it came" in done.stdout


# ------------------------------------------------------------------ the prompt


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_the_prompt_holds_every_fact_and_no_word_of_judging(profile):
    shapes = PROBLEM.shapes[profile]
    prompt = render(KIT / "prompt.md.j2", problem=PROBLEM, profile=profile, shapes=shapes, machine=MACHINE, budget=None)
    for shape in shapes:
        assert "- " + ", ".join(f"{name} = {size}" for name, size in shape.items()) + "\n" in prompt
    for tensor in (*PROBLEM.inputs, *PROBLEM.outputs):
        note = f": {tensor.note}" if tensor.note else ""
        assert f"- `{tensor.name}` ({', '.join(map(str, tensor.shape))}) {tensor.dtype}{note}\n" in prompt
    for limit in PROBLEM.tolerance.values():
        assert f"at most {limit}" in prompt
    for fact in (PROBLEM.title, PROBLEM.operator.strip(), PROBLEM.distribution.strip(), MACHINE, *PROBLEM.stress):
        assert fact in prompt
    for name in PROBLEM.forbidden:
        assert f"`{name}`" in prompt
    assert "def solution(q, kv, block_table, seq_lens, out):\n    ...  # writes out, returns None\n" in prompt
    assert "`python check.py`" in prompt and "`python benchmark.py`" in prompt
    assert ("one core" in prompt) == (profile == "cpu")
    assert ("Triton" in prompt) == ("CUDA graph" in prompt) == ("`stream`" in prompt) == (profile == "gpu")
    assert "geometric mean" in prompt and "256 bytes" in prompt
    assert not [word for word in SILENT_ABOUT if word in prompt.lower()]
    assert "\n\n\n" not in prompt and "{{" not in prompt and "{%" not in prompt


def test_no_file_of_a_workspace_mentions_judging(work):
    for name in (path.relative_to(work) for path in work.rglob("*") if path.is_file()):
        text = (work / name).read_text().lower()
        assert not [word for word in SILENT_ABOUT if word in text.replace("scores", "")], name
