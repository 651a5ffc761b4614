"""Shares of known kernels: a copy shows under other names and between other code, and honest kernels stay below the threshold."""

import io
import keyword
import random
import re
import time
import tokenize
from pathlib import Path

import pytest

from arena import paths
from arena.judge.fingerprints import of_python, packed, unpacked
from arena.judge.similar import KNOWN, LEAST_SHARE, Known, known, similar
from arena.schema.score import REVIEW_SHARE

SOLUTIONS = sorted(paths.problems().glob("*/solutions/*.py"))
HONEST = Path(__file__).parents[1] / "attacks" / "honest"
MOST_BYTES = 300_000

TRITON = (paths.problems() / "paged_attention" / "solutions" / "oracle_gpu.py").read_text()
CUDA = (HONEST / "load_inline_current_stream.py").read_text()
OTHER = (paths.problems() / "kda_cutlass" / "solutions" / "oracle_gpu.py").read_text()


def listed(source):
    """A list with one kernel."""
    return (Known("library 1.0: kernel.py: kernel", frozenset(of_python(source))),)


def share(source, kernels):
    return sum(each.share for each in similar(of_python(source), kernels))


def renamed(source):
    """The source with other names, numbers and comments, by Python's own tokens."""
    attributes = set(re.findall(r"\.\s*(\w+)", source)) | set(keyword.kwlist)
    names: dict[str, str] = {}
    changed: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.NAME and text not in attributes:
            text = names.setdefault(text, f"v{len(names)}")
        changed.append((token.type, {tokenize.NUMBER: "3", tokenize.COMMENT: "# new"}.get(token.type, text)))
    return tokenize.untokenize(changed)


@pytest.mark.parametrize("source", [TRITON, CUDA], ids=["Triton", "CUDA"])
def test_copy_is_found_whole(source):
    [found] = similar(of_python(source), listed(source))
    assert (found.source, found.share) == ("library 1.0: kernel.py: kernel", 1.0)


def test_other_names_numbers_and_comments_change_nothing():
    changed = renamed(TRITON)
    assert changed != TRITON and "tl." not in changed
    assert share(changed, listed(TRITON)) > 0.99


def test_layout_and_comments_of_cuda_change_nothing():
    changed = (
        CUDA.replace("lane", "l").replace("    ", "\t").replace(";\n", ";  // what this is for\n", 40).replace("{\n", "{ /* */\n")
    )
    assert changed != CUDA
    assert share(changed, listed(CUDA)) > 0.95


@pytest.mark.slow
def test_code_around_a_copy_does_not_hide_it():
    padding = "\n".join(f"def f{number}(a, b):\n    return a.sum() + b.mean({number}) - a * b" for number in range(2000))
    assert share(f"{padding}\n{renamed(TRITON)}\n{padding}", listed(TRITON)) > 0.95


def test_part_of_a_kernel_is_a_part():
    lines = TRITON.splitlines(keepends=True)
    start = next(at for at, line in enumerate(lines) if line.startswith("@triton.jit"))
    half = "".join(lines[: start + (len(lines) - start) // 2])
    try:
        compile(half, "half", "exec")
    except SyntaxError:
        half = TRITON[: TRITON.rindex("@triton.jit")]
    assert LEAST_SHARE < share(half, listed(TRITON)) < 0.95


def test_other_kernels_share_little():
    assert share(OTHER, listed(TRITON)) < REVIEW_SHARE / 2
    assert share(CUDA, listed(TRITON)) == 0


@pytest.mark.parametrize("path", [*SOLUTIONS, *sorted(HONEST.glob("*.py"))], ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_own_files_stay_below_the_threshold(path):
    assert max((each.share for each in similar(of_python(path.read_text()))), default=0.0) < 0.7 * REVIEW_SHARE


def test_list_is_small_and_complete():
    assert KNOWN.stat().st_size < MOST_BYTES
    sources = [kernel.source for kernel in known()]
    assert len(sources) == len(set(sources)) > 500
    packages = {source.split()[0] for source in sources}
    assert {"fla-core", "liger-kernel", "flashinfer-python", "torchao", "unsloth", "xformers", "vllm", "triton"} <= packages
    assert any("chunk_kda_fwd_kernel_inter_solve_fused" in source for source in sources)
    assert all(len(kernel.fingerprints) >= 36 for kernel in known())


def test_packing_keeps_the_fingerprints():
    values = {random.Random(seed).randrange(1 << 24) for seed in range(100)} | {0, (1 << 24) - 1}
    assert unpacked(packed(values)) == values


@pytest.mark.parametrize("source", ["", "x = 1", "# only a comment"])
def test_files_without_code_have_no_share(source):
    assert similar(of_python(source)) == ()


PATTERNS = ["/*", '"', "' ", "\\\\", "#\\\n", "1.e+", "{;", "//", "\n ", "::<<"]


@pytest.mark.timing
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_text_takes_long(pattern):
    source = "x = r'''{;" + pattern * ((1 << 19) // len(pattern)) + "'''"
    began = time.monotonic()
    of_python(source)
    assert time.monotonic() - began < 15


@pytest.mark.slow
def test_code_before_a_copy_does_not_hide_it():
    """However much there is: a solution.py holds 1 MiB."""
    assert share("x = 1\n" * 80_000 + TRITON, listed(TRITON)) == 1.0
    assert share("x = 1\n" * 80_000, listed(TRITON)) == 0
