"""Evidence: kernel names from shared memory, and counters from ncu's CSV. A submission could falsify both."""

from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena import catalog
from arena.judge import kernels as evidence
from arena.judge import scoring
from arena.judge.context import shape_text
from arena.judge.rejection import Rejection
from arena.judge.scoring import unexpected_arithmetic
from arena.schema import Evidence, Kernel, ShapeScore
from arena.system import process

HEAD = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
SPIN = "at::<unnamed>::spin_kernel(long)"


def row(number: int, kernel: str, metric: str, value: str) -> str:
    return f'"{number}","7","{kernel}","{metric}","","{value}"'


def printed(*rows: str) -> str:
    return "\n".join(["==PROF== Connected to process 7", "a line of the submission's", HEAD, *rows, ""])


def test_counters_are_summed_by_call() -> None:
    first, second = evidence.read_counters(
        printed(
            row(0, SPIN, evidence.READ, "4096"),
            row(0, SPIN, evidence.WRITE, "0"),
            row(0, SPIN, "sm__ops_path_tensor_src_fp8.sum", "0"),
            row(1, "attend", evidence.READ, "1,000"),
            row(1, "attend", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "2048"),
            row(1, "attend", "sm__ops_path_tensor_src_fp8.sum", "0"),
            row(2, "combine", evidence.READ, "24"),
            row(2, "combine", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "2"),
            row(3, SPIN, evidence.READ, "4096"),
            row(4, "attend", evidence.WRITE, "7"),
        )
    )
    assert (first.read_bytes, first.write_bytes, first.tensor_ops) == (1024, 0, {"bf16": 2050})
    assert (second.read_bytes, second.write_bytes, second.tensor_ops) == (0, 7, None)


def test_counted_tensor_operations_may_be_none() -> None:
    """Also of a call that launches nothing: the mark tells that they were counted."""
    fp8 = "sm__ops_path_tensor_src_fp8.sum"
    rows = row(0, SPIN, evidence.READ, "1"), row(0, SPIN, fp8, "0"), row(1, "k", fp8, "0"), row(2, SPIN, fp8, "0")
    assert [call.tensor_ops for call in evidence.read_counters(printed(*rows))] == [{}, {}]


@pytest.mark.parametrize(("arithmetic", "excluded", "counted"), [("fp8", (), True), (None, ("fp8",), True), (None, (), False)])
def test_tensor_operations_are_counted_where_it_matters(
    arithmetic: str | None, excluded: tuple[str, ...], counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take eight times as long as what DRAM moved."""
    asked = list[tuple[str, ...]]()

    def start(wrapper: tuple[str, ...]) -> AbstractContextManager[Any]:
        asked.append(wrapper)
        return nullcontext()

    listed = b"sm__ops_path_tensor_src_fp8  ...\ndram__bytes_read  ...\n"
    monkeypatch.setattr(evidence, "program", lambda name: f"/opt/{name}")
    monkeypatch.setattr(evidence, "counters_closed", lambda: False)
    monkeypatch.setattr(process, "run", lambda *_, **__: SimpleNamespace(stdout=listed))
    evidence.counters_command.cache_clear()
    context: Any = SimpleNamespace(problem=SimpleNamespace(arithmetic=arithmetic, excluded_arithmetic=excluded))
    try:
        with evidence.counters(context, start):
            metrics = asked[0][-1].split(",")
    finally:
        evidence.counters_command.cache_clear()
    assert metrics == [*["sm__ops_path_tensor_src_fp8.sum"] * counted, evidence.READ, evidence.WRITE]


@pytest.mark.parametrize("value", ["", "n/a", "nan", "inf", "-5", "(!) n/a"])
def test_invalid_counter_values_count_nothing(value: str) -> None:
    (call,) = evidence.read_counters(printed(row(0, SPIN, evidence.READ, "1"), row(1, "k", evidence.READ, value)))
    assert call.read_bytes == 0


def test_impossible_counter_values_count_nothing() -> None:
    rows = [row(n, "k", evidence.READ, "1e308") for n in range(1, 9)]
    (call,) = evidence.read_counters(printed(row(0, SPIN, evidence.READ, "1"), *rows))
    assert call.read_bytes == 0


def test_calls_cut_off_by_the_kernel_limit_are_left_out() -> None:
    rows = [row(n, "k", evidence.READ, "1") for n in range(2, evidence.MOST_KERNELS)]
    text = printed(row(0, SPIN, evidence.READ, "1"), row(1, SPIN, evidence.READ, "1"), *rows)
    assert [call.read_bytes for call in evidence.read_counters(text)] == [0]


@pytest.mark.parametrize(
    "text",
    ["", "no csv at all", '"' + "a" * 200_000 + '"', '"a\x00b"', '"', '"ID"\n"1"', printed(row(0, "kernel", evidence.READ, "1"))],
)
def test_output_without_the_mark_has_no_calls(text: str) -> None:
    assert evidence.read_counters(text) == []


def test_profiler_errors_are_kept_and_made_printable() -> None:
    text = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\x1b[31m\n"
    printable = "ERR_NVGPUCTRPERM - The user does not have permission[31m"  # nothing that a terminal obeys
    assert evidence.ncu_complaint(text) == printable
    assert evidence.ncu_complaint("==PROF== fine") == ""


def test_tensor_metrics_take_a_total_or_its_parts() -> None:
    hopper = ["bf16_dst_fp32", "fp16", "fp64", "fp8", "fp8_sparsity_off", "fp8_sparsity_on", "int8", "tf32_dst_fp32"]
    blackwell = ["fp8_dst_fp16", "fp8_dst_fp32", "fp4_dst_fp32", "fp16", "fp16_dst_fp32"]
    stem = "sm__ops_path_tensor_src_"

    def chosen(names: list[str]) -> list[str]:
        return [name.removeprefix(stem) for name in evidence.tensor_metrics(stem + name for name in names)]

    assert chosen(hopper) == ["bf16_dst_fp32", "fp16", "fp64", "fp8", "int8", "tf32_dst_fp32"]
    assert chosen(blackwell) == ["fp16", "fp4_dst_fp32", "fp8_dst_fp16", "fp8_dst_fp32"]


def test_kernel_names_are_read_line_by_line() -> None:
    text = b"12\tattend\n1\tvoid at::copy<float>(int)\n\0\0\0" + b"9\tleft over\n"
    assert [(k.launches, k.name) for k in evidence._kernels(text)] == [(12, "attend"), (1, "void at::copy<float>(int)")]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"attend",
        b"\t",
        b"0\tattend",
        b"\tattend",
        b"-1\tattend",
        b"1e3\tattend",
        b"3\t",
        b"\xff\xfe",
        "²\tattend".encode(),
    ],
)
def test_invalid_kernel_lines_are_skipped(line: bytes) -> None:
    assert [k.name for k in evidence._kernels(line + b"\n2\treal\n")] == ["real"]


def test_kernel_names_are_limited_and_made_printable() -> None:
    kernels = evidence._kernels(b"".join(b"9999999999999\t\x1b[2Jk%d\n" % n for n in range(10_000)))
    assert len(kernels) == evidence.MOST_NAMES
    assert kernels[0] == Kernel(name="?[2Jk0", launches=999_999_999)


SHAPES = tuple(Evidence(shape={"N": size}) for size in (1, 2))


@pytest.mark.parametrize(
    ("marks", "read_bytes", "note"),
    [
        (0, (None, None), "the counters show 0 of 2 calls"),
        (1, (7, None), "the counters show 1 of 2 calls"),
        (2, (7, 7), ""),
        (3, (None, None), "the counters show 3 calls where 2 were made"),
    ],
)
def test_counters_belong_to_calls_by_their_marks(marks: int, read_bytes: tuple[int | None, ...], note: str) -> None:
    rows = [row(2 * n, SPIN, evidence.READ, "1") + "\n" + row(2 * n + 1, "k", evidence.READ, "7") for n in range(1, marks + 1)]
    found = evidence.counted(SHAPES, printed(row(0, SPIN, evidence.READ, "1"), *rows))
    assert tuple(each.dram_read_bytes for each in found) == read_bytes
    assert [each.proof for each in found] == ["unproven" if bytes_ is None else "counters" for bytes_ in read_bytes]
    assert found[-1].note.startswith(note) and bool(found[-1].note) == bool(note)
    assert (evidence.AMBIGUOUS in found[-1].note) == (marks > 2), "which marks the score for review"


MARK = row(0, SPIN, evidence.READ, "1")
COUNTED = [MARK, *(line for n in (1, 3) for line in (row(n, SPIN, evidence.READ, "1"), row(n + 1, "k", evidence.READ, "7")))]


def test_what_is_printed_before_the_report_is_no_part_of_it() -> None:
    printed_first = '"a line in quotes"\n' + row(0, SPIN, evidence.READ, "1") + "\n"
    assert [each.dram_read_bytes for each in evidence.counted(SHAPES, printed_first + printed(*COUNTED))] == [7, 7]


def test_of_two_reports_none_counts() -> None:
    """Which is the profiler's cannot be told: a process that outlives it may print the last one."""
    found = evidence.counted(SHAPES, printed(*COUNTED) + printed(*COUNTED))
    assert [(each.proof, each.dram_read_bytes) for each in found] == [("unproven", None)] * 2
    assert {each.note for each in found} == {"2 reports of counters were printed, and one profiler prints one"}


def test_the_beginning_of_a_report_counts_anywhere_in_a_line() -> None:
    forged = printed(*COUNTED).replace('"7"', '"1000000"')
    found = evidence.counted(SHAPES, forged + "x" + "\n".join([HEAD, *COUNTED, ""]))
    assert {each.proof for each in found} == {"unproven"}


@pytest.mark.parametrize(
    ("launches", "proofs", "hidden"),
    [
        ((3, 3), ("counters", "counters"), False),
        ((90_000, 3), ("unproven", "unproven"), True),
        ((3, 3), ("counters", "unproven"), True),
        ((3, 3), ("unproven", "unproven"), True),
        ((3, 400), ("counters", "unproven"), False),
        ((3, 400), ("unproven", "unproven"), True),
        ((400, 3), ("unproven", "unproven"), False),
    ],
)
def test_counters_are_hidden_where_few_kernels_are_missing(launches: Any, proofs: Any, hidden: bool) -> None:
    found = tuple(
        Evidence(shape={"N": 1}, kernels=(Kernel(name="k", launches=count),), proof=proof)
        for count, proof in zip(launches, proofs, strict=True)
    )
    assert evidence.hidden(found, [1e-3 if launches[0] < 1000 else 100e-6, 1e-3]) == hidden


VENDOR = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(cutlass_80_simt_sgemm_64x64_8x5_nn_align1::Params)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__51_cublas",
    "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false>(cublasGemmSmallNParams<float>)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(float)",
    "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(pytorch_flash::Flash_fwd_params)",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>(cublasSplitKParams<float>, float const*)",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
)
OWN = (
    "attend",
    "gemm_kernel",
    "my_flash_attention_fwd",
    "splitKreduce_kernel",
    "paged_splitKreduce_bf16",
    "my_decode_gemv2T_bf16",
    "qk_gemmSN_tile",
    "void my_flash::flash_fwd_decode(float*)",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctorOnSelf_add<c10::BFloat16> >(int)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int> > >(Params)",
    "triton_red_fused_sum_0",
    "Memcpy DtoD (Device -> Device)",
)


@pytest.mark.parametrize("name", VENDOR)
def test_library_kernels_are_excluded(name: str) -> None:
    patterns = catalog.problem("paged_attention").forbidden_kernels
    found = (Evidence(shape={"N": 1}, kernels=(Kernel(name="mine", launches=3), Kernel(name=name, launches=1))),)
    assert [kernel for _, kernel in evidence.excluded_kernels(found, patterns)] == [name]


@pytest.mark.parametrize("name", OWN)
def test_own_kernels_are_not_excluded(name: str) -> None:
    assert not [p for p in catalog.problem("paged_attention").forbidden_kernels if fnmatchcase(name, p)]


# ------------------------------------------------------------------ a warning where the counters show another arithmetic

PROBLEM = catalog.problem("fp8_gemm")
WIDE, FLAT = PROBLEM.shapes["gpu"][0], PROBLEM.shapes["gpu"][-1]
FLOPS = PROBLEM.flops(WIDE)


def scored(shape, bound="compute") -> ShapeScore:
    times: dict[str, Any] = {"measured_s": 2.5e-4, "wall_s": 2.5e-4, "process_medians_s": (2.5e-4,), "samples_s": ((2.5e-4,),)}
    times |= {"ci95": (2.4e-4, 2.6e-4), "calls_per_window": 8, "windows": 9, "launch_mode": "graph", "error": {"rel_fro": 1e-3}}
    return ShapeScore(shape=shape, peak_fraction=0.4, ceiling_s=1e-4, bound=bound, rate="fp8", **times)


def warning(ops, shape=WIDE, bound="compute", proof="counters") -> str:
    return unexpected_arithmetic(PROBLEM, [scored(shape, bound)], (Evidence(shape=shape, proof=proof, tensor_ops=ops),))


def test_the_problems_arithmetic_gives_no_warning():
    assert warning({"fp8": FLOPS}) == ""
    assert warning({"fp8": 1.1 * FLOPS, "bf16": 5.0}) == ""


@pytest.mark.parametrize(
    ("ops", "words"),
    [({"bf16": FLOPS}, "bf16 1.00 of the work"), ({"fp8": FLOPS / 2, "bf16": FLOPS / 2}, "fp8 0.50"), ({}, "nothing")],
)
def test_another_arithmetic_gives_a_warning(ops, words):
    text = warning(ops)
    assert text.startswith(f"not fp8: the tensor cores multiplied otherwise on {shape_text(WIDE)} ")
    assert words in text


def test_no_warning_without_counters_or_a_compute_bound():
    assert warning({"bf16": 1.0}, FLAT, "memory") == ""
    assert warning({}, proof="unproven") == ""
    assert unexpected_arithmetic(catalog.problem("paged_attention"), [], ()) == ""


# ------------------------------------------------------------------ arithmetic that a problem excludes

EIGHT_BITS = catalog.problem("w4a16_gemm")


@pytest.mark.parametrize(
    ("dtype", "share", "refused"), [("int8", 1.0, True), ("fp8", 0.02, True), ("int8", 0.005, False), ("bf16", 1.0, False)]
)
def test_excluded_arithmetic_shows_in_the_counters(dtype: str, share: float, refused: bool) -> None:
    shape = EIGHT_BITS.shapes["gpu"][-1]
    ops = share * EIGHT_BITS.flops(shape)
    seen = Evidence(shape=dict(shape), proof="counters", tensor_ops={dtype: ops})
    text = f"The tensor cores multiplied {dtype} numbers ({ops:.3g} operations), which the problem excludes"
    assert scoring.excluded_arithmetic(EIGHT_BITS, seen) == (text if refused else "")


def test_what_the_rules_exclude_is_the_verdict() -> None:
    """Of any shape, and a kernel before an arithmetic."""
    first, second, third = EIGHT_BITS.shapes["gpu"][:3]
    fine = Evidence(shape=dict(first), kernels=(Kernel(name="mine", launches=1),))
    library = Evidence(shape=dict(second), kernels=(Kernel(name="cublas_gemm", launches=1),))
    other = Evidence(shape=dict(third), proof="counters", tensor_ops={"int8": 1e15})
    problem = EIGHT_BITS.model_copy(update={"forbidden_kernels": ("cublas*",)})
    scoring._reject_excluded(problem, (fine,))
    for found, shape, text in (((fine, other, library), second, "cublas_gemm"), ((fine, other), third, "int8")):
        with pytest.raises(Rejection, match=text) as caught:
            scoring._reject_excluded(problem, found)
        assert (caught.value.verdict, caught.value.shape) == ("forbidden", shape)


def test_excluded_arithmetic_of_a_problem_without_operations() -> None:
    moves = EIGHT_BITS.model_copy(update={"work": EIGHT_BITS.work.model_copy(update={"flops": 0})})
    seen = Evidence(shape=dict(moves.shapes["gpu"][0]), proof="counters", tensor_ops={"int8": 5.0})
    assert "int8 numbers (5 operations)" in scoring.excluded_arithmetic(moves, seen)
