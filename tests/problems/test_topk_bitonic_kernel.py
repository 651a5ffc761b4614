"""The CUDA kernel of `topk_bitonic`'s oracle, run on a CPU (cuda_on_cpu.h): its answers, not its speed."""

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shipped import Shipped  # noqa: E402

pytestmark = pytest.mark.slow

IT = Shipped("topk_bitonic")
REFERENCE = IT.reference
SOURCE = IT.folder / "oracle_gpu.py"
LAUNCH = r"""
extern "C" void topmost(
    const float* x, int rows, int n, int parts, int k, int size, Entry* found, float* values, int64_t* indices) {
    const int room = std::max(1024, 2 * k + 512);
    const auto bytes = [=](int items) { return (room + items * THREADS) * sizeof(Entry); };
    if (k > 1024) on_cpu(rows * parts, bytes(8), [=] { largest<8, float>(x, n, parts, k, size, room, found, values, indices); });
    else on_cpu(rows * parts, bytes(16), [=] { largest<16, float>(x, n, parts, k, size, room, found, values, indices); });
    if (parts > 1)
        on_cpu(rows, bytes(4), [=] { largest<4, Entry>(found, parts * size, 1, k, size, room, nullptr, values, indices); });
}
extern "C" bool wrote_beyond() { return beyond; }
"""


def built(folder, *changes):
    """The kernel with these changes of its text, as a library."""
    compiler = shutil.which("c++")
    assert compiler, "a C++ compiler is needed, as for torch.compile: apt-get install g++"
    [kernel] = re.findall(r'KERNEL = r"""(.*?)"""', SOURCE.read_text(), re.DOTALL)
    for old, new in (("extern __shared__ Entry list[];", "Entry* list = shared_memory;"), *changes):
        assert kernel.count(old) == 1
        kernel = kernel.replace(old, new)
    header = Path(__file__).with_name("cuda_on_cpu.h")
    (folder / "kernel.cpp").write_text(f'#include "{header}"\n{kernel}{LAUNCH}')
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread"]
    command = [compiler, *flags, "-o", folder / "kernel.so", folder / "kernel.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "kernel.so"))


@pytest.fixture(scope="module")
def topmost(tmp_path_factory):
    return built(tmp_path_factory.mktemp("kernel"))


def mistakes(topmost, x, k, parts=1):
    """Wrong answers by kind, those alone that there are."""
    ranks, size = REFERENCE.ranks(k, "cpu"), max(64, 1 << (k - 1).bit_length())
    values, indices = torch.full((len(x), k), float("nan")), torch.full((len(x), k), -1)
    found = torch.zeros(len(x) * parts * size, dtype=torch.int64)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (found, values, indices))
    topmost.topmost(ctypes.c_void_p(x.data_ptr()), *x.shape, parts, k, size, *pointers)
    assert not topmost.wrote_beyond(), "past the shared memory that it asks for"
    errors = REFERENCE.errors((values, indices), REFERENCE.reference(x, ranks), (x, ranks))
    return {kind: count for kind, count in errors.items() if count}


@pytest.mark.parametrize(
    ("rows", "n", "k", "parts"),
    [
        (2, 9000, 50, 1),
        (3, 20000, 32, 2),
        (1, 4097, 100, 1),
        (2, 257, 5, 1),
        (2, 255, 20, 1),
        (13, 4096, 1, 1),
        (2, 12289, 300, 1),
        (1, 13000, 2048, 3),
        (1, 34000, 128, 4),
    ],
)
def test_timed_rows(topmost, rows, n, k, parts):
    x, _ = IT.make({"rows": rows, "n": n, "k": k}, 1)
    assert mistakes(topmost, x, k, parts) == {}


@pytest.mark.parametrize("name", REFERENCE.STRESS)
def test_stress_rows(topmost, name):
    places, values = REFERENCE.generators(3, "cpu")
    x = REFERENCE.draw(name, torch.randn(1, 13000, generator=values), 60, places, values)
    assert mistakes(topmost, x, 60) == {}


SMALLEST = 2.0**-149
"""The smallest positive number."""
LEVELS = {
    "zeros of either sign": [0.0, -0.0],
    "negative zeros above all": [-0.0, -1.0],
    "infinite": [-math.inf, math.inf],
    "infinite or not": [-math.inf, 1.0, math.inf],
    "denormal or zero": [0.0, -0.0, 1e-45, -1e-45],
    "nothing finite": [-math.inf],
}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_few_different_numbers(topmost, levels, parts):
    """The limit's place decides in one of the tiles, and equal numbers may come before and after it."""
    generator = torch.Generator().manual_seed(len(levels))
    for share in (0.5, 0.001):
        chosen = torch.randint(0, len(levels), (2, 30001), generator=generator)
        x = torch.tensor(levels)[chosen * (torch.rand(2, 30001, generator=generator) < share)]
        assert mistakes(topmost, x, 70, parts) == {}


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_above_narrow_negative_numbers(topmost, zero):
    """The first limit has the pattern of -0 here, which stands for no element, and lies in the middle of the tile."""
    x = torch.full((16, 256), -100 * SMALLEST)
    x[:, 0], x[15, 1:6] = -200 * SMALLEST, zero
    assert mistakes(topmost, x.reshape(1, -1), 5) == {}


def test_narrow_ranges_about_zero(topmost):
    generator = torch.Generator().manual_seed(0)
    for width in (2, 20, 300):
        steps = torch.randint(-width, 2, (3, 9000), generator=generator, dtype=torch.int32)
        x = steps.abs().view(torch.float32) * steps.sign()
        assert mistakes(topmost, x, 40) == {}


@pytest.mark.parametrize("step", [32, 128, 256, 257, 288, 512])
def test_winners_at_every_such_place(topmost, step):
    x = torch.randn(1, 26000, generator=torch.Generator().manual_seed(step))
    x += REFERENCE.LIFT * (torch.arange(26000) % step == 3)
    assert mistakes(topmost, x, 64) == {}


def rising_as_read(tiles, items=16):
    """A row of whole tiles, each above those that the kernel reads before it: every tile fills the list."""
    others = tiles - 1
    step = next(each for each in range(max(1, int(others * 0.618034)), others + 1) if math.gcd(each, others) == 1)
    order = [0, *(1 + (others - 1 + number * step) % others for number in range(others))]
    row = torch.empty(tiles, items * 256)
    row[order] = torch.arange(tiles * items * 256.0).reshape(tiles, -1)
    return row.reshape(1, -1)


def test_every_tile_fills_the_list(topmost):
    assert mistakes(topmost, rising_as_read(6), 64) == {}


def test_a_kernel_that_leaves_out_equal_elements_fails(tmp_path):
    wrong = built(tmp_path, ("(raw[i] >= least)", "(raw[i] > least)"))
    assert mistakes(wrong, torch.ones(1, 300), 5)["values"] > 0


def test_a_kernel_that_takes_no_element_equal_to_the_limit_fails(tmp_path):
    wrong = built(tmp_path, ("+ ((unsigned)at > place_of(limit))", "+ 1"))
    assert mistakes(wrong, torch.ones(1, 9000), 5)["values"] > 0


def test_a_kernel_that_cuts_its_list_too_late_fails(tmp_path):
    wrong = built(tmp_path, ("upto > room", "upto > room + 4000"))
    with pytest.raises(AssertionError, match="past the shared memory"):
        mistakes(wrong, rising_as_read(6), 64)
