"""On a GPU: torch, Triton and load_inline work without a vendor's libraries, and no way to these computes anything.

`python -m pytest tests/judge/test_absent_libraries_gpu.py -q -s` prints what was replaced and how long that took.
"""

import hashlib
import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("torch")

from arena import catalog, judge, paths
from arena.authoring.baseline import SAMPLING, without_rules
from arena.judge import absent_libraries
from arena.judge.sampling import GPU
from arena.judge.stub_library import STATUS
from arena.sandboxes import SandboxSpec, bwrap
from arena.sandboxes.limits import limits_for
from arena.schema import Passed, VendorLibrary
from arena.submission import Submission, collect

pytestmark = [pytest.mark.gpu, pytest.mark.timing]

ALL = get_args(VendorLibrary)
QUICK = replace(GPU, processes=1, repeats=0, counters=False)
LARGEST_STUB_BYTES = 4 << 20
START = "import torch\ntorch.cuda.init()\na = torch.randn(64, 64, device='cuda')\n"
WORKS = {
    "torch": """
b = torch.softmax(a, -1).cumsum(0).sort(0).values[torch.randperm(64, device="cuda")]
b = torch.nn.functional.layer_norm(b.half().float(), (64,)).argmax(-1)
assert torch.fft.fft(a).isfinite().all() and b.shape == (64,)
""",
    "graph": """
out, graph = torch.empty_like(a), torch.cuda.CUDAGraph()
torch.add(a, 1, out=out)
with torch.cuda.graph(graph):
    torch.add(a, 1, out=out)
graph.replay()
assert torch.equal(out, a + 1)
""",
    "profiler": """
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
    a.exp()
    torch.cuda.synchronize()
assert any("exp" in event.name for event in seen.events() if event.device_type.name == "CUDA")
""",
    "Triton": """
import sys
sys.path.insert(0, "/workspace")
from double import double
out = torch.empty_like(a)
double[(64,)](a, out, SIZE=64)
assert torch.equal(out, 2 * a)
""",
    "load_inline": '''
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void twice(const float* in, float* out) { out[threadIdx.x] = 2 * in[threadIdx.x]; }
at::Tensor run(const at::Tensor& a) {
    at::Tensor out = at::empty_like(a);
    for (int row = 0; row < a.size(0); row++)
        twice<<<1, a.size(1), 0, c10::cuda::getCurrentCUDAStream()>>>(a.data_ptr<float>() + row * a.size(1),
                                                                      out.data_ptr<float>() + row * a.size(1));
    return out;
}
"""
assert torch.equal(load_inline("twice", "at::Tensor run(const at::Tensor& a);", SOURCE, functions=["run"]).run(a), 2 * a)
''',
    "torch.compile": """
assert torch.allclose(torch.compile(lambda x: (x.sin() + x).relu().sum(-1))(a), (a.sin() + a).relu().sum(-1), atol=1e-4)
""",
}
TRITON = b"""
import triton
import triton.language as tl


@triton.jit
def double(source, out, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, 2 * tl.load(source + at))
"""
BY_NAME = """
import ctypes
path = next(line.split()[5] for line in open("/proc/self/maps") if {name!r} in line)
handle = ctypes.c_void_p()
ctypes.CDLL(path).{function}(ctypes.byref(handle))
"""
FP8 = """
x = torch.randn(64, 64, device="cuda").to(torch.float8_e4m3fn)
one = torch.ones({shape}, device="cuda")
torch._scaled_mm(x, x.T, scale_a=one, scale_b=one{turned}, out_dtype=torch.bfloat16)
"""
ENDS = {
    "mm": ("cuBLAS", "torch.mm(a, a)"),
    "bf16 mm": ("cuBLAS", "a.bfloat16() @ a.bfloat16()"),
    "bmm": ("cuBLAS", "torch.bmm(a[None], a[None])"),
    "linear": ("cuBLAS", "torch.nn.functional.linear(a, a, a[0])"),
    "mv": ("cuBLAS", "torch.mv(a, a[0])"),
    "int8": ("cuBLAS", "torch._int_mm(a.to(torch.int8), a.to(torch.int8))"),
    "scaled_mm": ("cuBLAS", FP8.format(shape="()", turned="")),
    "scaled_mm, rows": ("cuBLAS", FP8.format(shape="(64, 1)", turned=".T")),
    "conv2d": ("cuDNN", "torch.nn.functional.conv2d(a.view(1, 1, 64, 64), a.view(1, 1, 64, 64)[:, :, :3, :3])"),
    "sparse": ("cuSPARSE", "torch.sparse.mm(a.relu().to_sparse_csr(), a)"),
    "cuBLAS by ctypes": ("cuBLAS", BY_NAME.format(name="/libcublas.so", function="cublasCreate_v2")),
    "cuBLASLt by ctypes": ("cuBLAS", BY_NAME.format(name="/libcublasLt.so", function="cublasLtCreate")),
    "cuDNN by ctypes": ("cuDNN", BY_NAME.format(name="/libcudnn.so", function="cudnnCreate")),
}
READ = """
import json, os
found = {}
for folder, _, names in os.walk("/"):
    if folder.startswith(("/proc", "/sys")):
        continue
    for name in names:
        if name.startswith(tuple(PREFIXES)):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    data = file.read()
                found[path] = [len(data), data.count(b"arena: this problem excludes"), b"\\x50\\xed\\x55\\xba" in data]
import torch
torch.cuda.init()
torch.ones(1, device="cuda")
mapped = {line.split()[5] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([found, sorted(path for path in mapped if os.path.basename(path).startswith(tuple(PREFIXES)))]))
"""


@cache
def env():
    from arena.judge.device.gpu import ENV

    return ENV


def ran(program, libraries=ALL):
    """(exit status, stdout, stderr) of a program in a worker's sandbox."""
    files = {"/workspace/double.py": TRITON}
    spec = SandboxSpec("worker", ("python", "-c", program), files=files, env=env(), gpu=gpu_node(), limits=limits_for("worker"))
    with bwrap.run(absent_libraries.without(spec, libraries)) as running:
        out, err = running.stdout.read().decode(), running.stderr.read().decode()
        return running.wait(300), out, err


@cache
def gpu_node():
    import torch

    return judge.preflight(catalog.hardware_of(torch.cuda.get_device_name()), 0)


@pytest.mark.parametrize("name", WORKS)
def test_what_needs_no_library_works(name):
    code, out, err = ran(f"{START}{WORKS[name]}\ntorch.cuda.synchronize()\nprint('worked')")
    assert (code, out.splitlines()[-1:]) == (0, ["worked"]), err


@pytest.mark.parametrize("name", ENDS)
def test_call_to_a_library_ends_the_process(name):
    library, call = ENDS[name]
    program = f"{START}print('started', flush=True)\n{call}\ntorch.cuda.synchronize()\nprint('returned')"
    control = ran(program, libraries=())
    assert (control[0], control[1]) == (0, "started\nreturned\n"), control[2]
    code, out, err = ran(program)
    assert (code, out) == (STATUS, "started\n"), err
    assert err.splitlines()[-1].startswith(f"arena: this problem excludes {library}; solution.py called cu")


def test_no_file_of_the_sandbox_holds_a_real_library():
    prefixes = [prefix for each in absent_libraries.PREFIXES.values() for prefix in each]
    program = f"PREFIXES = {prefixes!r}\n{READ}"
    began = time.monotonic()
    code, out, err = ran(program)
    assert code == 0, err
    found, mapped = json.loads(out)
    print(f"{len(found)} files, {sum(size for size, _, _ in found.values()) >> 10} KiB, {time.monotonic() - began:.1f} s")
    for path, (size, sentences, fatbin) in found.items():
        print(f"  {path}: {size} bytes, {sentences} functions")
        assert size < LARGEST_STUB_BYTES and not fatbin, path
    assert {"libcublas", "libcublasLt", "libcudnn"} <= {Path(path).name.split(".")[0] for path in mapped}
    assert all(found[path][1] > 0 for path in mapped if path in found)
    control = json.loads(ran(program, libraries=())[1])[0]
    assert any(fatbin for _, _, fatbin in control.values()) and control.keys() == found.keys()


def test_stubs_take_little_time():
    import torch

    assert torch.cuda.is_available()
    spec = SandboxSpec("worker", ("true",), gpu=gpu_node(), limits=limits_for("worker"))
    absent_libraries.stubs.cache_clear()
    took_s = []
    for libraries in (ALL, ALL, ()):
        began = time.monotonic()
        with bwrap.run(absent_libraries.without(spec, libraries)) as running:
            running.wait(60)
        took_s.append(time.monotonic() - began)
    print("sandbox with stubs made, with stubs known, without:", *(f"{took:.3f} s" for took in took_s))
    assert took_s[0] < 20 and took_s[1] < took_s[2] + 1


LYING = """
import sys
import torch
scaled = getattr(torch, "_scaled" + "_mm")
class Recorder:
    def kernels_of(self, launch):
        launch()
        return ["my_kernel"]
sys.modules["arena_cupti"].Recorder = Recorder
def solution(x, w, sx, sw, y):
    scaled(x, w.T, scale_a=sx, scale_b=sw.T, out_dtype=torch.bfloat16, out=y)
"""


def fp8(shapes=slice(0, 1)):
    """The problem with few shapes, and the hardware."""
    import torch

    problem = catalog.problem("fp8_gemm")
    problem = problem.model_copy(update={"shapes": {"gpu": problem.shapes["gpu"][shapes]}, "latency": {}})
    return problem, catalog.hardware_of(torch.cuda.get_device_name())


def test_falsified_profiler_does_not_save_a_library():
    problem, hardware = fp8()
    submission = Submission(LYING.encode(), hashlib.sha256(LYING.encode()).hexdigest())
    result = judge.score(submission, problem, hardware, digest="", sandbox=bwrap, sampling=QUICK)
    assert (result.verdict, "excludes cuBLAS" in result.message) == ("forbidden", True), result.message


def test_honest_solution_passes_without_the_libraries():
    problem, hardware = fp8()
    submission = collect(paths.problems() / "fp8_gemm" / "solutions", "oracle_gpu.py")
    result = judge.score(submission, problem, hardware, digest="", sandbox=bwrap, sampling=QUICK)
    assert isinstance(result, Passed), result.message


def test_baseline_of_a_library_is_still_measured():
    problem, hardware = fp8()
    submission = collect(paths.problems() / "fp8_gemm" / "baselines", "scaled_mm.py")
    sampling = SAMPLING["gpu"]
    result = judge.score(submission, without_rules(problem), hardware, digest="", sandbox=bwrap, sampling=sampling, hidden=False)
    assert isinstance(result, Passed), result.message
