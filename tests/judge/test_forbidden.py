"""Forbidden names are found by what they resolve to."""

import time
import tracemalloc
from pathlib import Path

import pytest

from arena import catalog
from arena.judge.forbidden import forbidden

SDPA = "torch.nn.functional.scaled_dot_product_attention"
RULES = (
    "torch.matmul",
    "torch.Tensor.matmul",
    "operator.matmul",
    "torch.nn.functional.scaled_dot_product_attention",
    "flashinfer.*",
    "torch.einsum",
    "torch.bmm",
    "torch.Tensor.mm",
    "torch.Tensor.addmm",
    "torch.Tensor.dot",
    "torch.Tensor.inner",
    "torch.nn.functional.linear",
    "torch.nn.Linear",
    "torch.linalg.*",
    "torch.conv*",
    "torch._scaled_*",
)

USED = {
    "import torch\ntorch.matmul(a, b)": "torch.matmul",
    "import torch as t\nt.matmul(a, b)": "torch.matmul",
    "from torch import matmul as mm\nmm(a, b)": "torch.matmul",
    "import torch\nx = torch\nq.matmul(k)": "torch.Tensor.matmul",
    "def f(q, k):\n    return (q + 1).matmul(k)": "torch.Tensor.matmul",
    "def f(q, k):\n    return q @ k": "operator.matmul",
    "def f(q, k):\n    q @= k": "operator.matmul",
    "import torch.nn.functional as F\nF.scaled_dot_product_attention(q, k, v)": SDPA,
    "from torch.nn import functional\nfunctional.scaled_dot_product_attention": SDPA,
    "import torch\ntorch.nn.functional.scaled_dot_product_attention(q, k, v)": SDPA,
    "import flashinfer.decode": "flashinfer.*",
    "from flashinfer import decode": "flashinfer.*",
    "import importlib\nimportlib.import_module('flashinfer')": "flashinfer.*",
    "__import__('flashinfer')": "flashinfer.*",
    "import torch\ngetattr(torch, 'matmul')(a, b)": "torch.matmul",
    "import torch\nfrom torch import einsum": "torch.einsum",
    # Aliases.
    "import torch\nf = torch\nf.einsum('', a)": "torch.einsum",
    "import torch\nF = torch.nn.functional\nF.linear(q, k)": "torch.nn.functional.linear",
    "def f(q):\n    return c.einsum('', q)\nc = b\nb = a\na = torch\nimport torch": "torch.einsum",
    "import torch\na: object = torch\na.bmm(q, k)": "torch.bmm",
    "import torch\na, b = torch, 3\na.bmm(q, k)": "torch.bmm",
    "import torch\n(t := torch).einsum('', q)\n": "torch.einsum",
    "import torch\nif (t := torch):\n    t.einsum('', q)": "torch.einsum",
    "import torch\ndef f(q, t=torch):\n    return t.einsum('', q)": "torch.einsum",
    "import torch\ndef f(q, *, t=torch):\n    return t.einsum('', q)": "torch.einsum",
    "import torch\nf = lambda q, t=torch: t.einsum('', q)": "torch.einsum",
    "import torch\nfor t in [torch]:\n    t.einsum('', q)": "torch.einsum",
    "import torch\n[t.einsum('', q) for t in (torch,)]": "torch.einsum",
    "import torch\n{'t': torch}['t'].einsum('', q)": "torch.einsum",
    "import torch\nt = torch if fast else None\nt.einsum('', q)": "torch.einsum",
    "import torch\ndef get():\n    return torch\nget().einsum('', q)": "torch.einsum",
    (
        "import torch\nclass K:\n    def __init__(self):\n        self.t = torch\n    def go(self, q):\n"
        "        self.t.einsum('', q)"
    ): "torch.einsum",
    "import torch\ng = getattr\ng(torch, 'einsum')('', q)": "torch.einsum",
    # Other ways to the same object.
    "from torch import *\neinsum('', a)": "torch.einsum",
    "from torch.nn.functional import *\nscaled_dot_product_attention(q, k, v)": SDPA,
    "import torch\ntorch.__dict__['bmm'](a, b)": "torch.bmm",
    "import torch\ntorch.__dict__.get('bmm')(a, b)": "torch.bmm",
    "import torch\nvars(torch)['bmm'](a, b)": "torch.bmm",
    "import torch\ntorch.__getattribute__('bmm')(a, b)": "torch.bmm",
    "import sys\nsys.modules['torch'].bmm(a, b)": "torch.bmm",
    "from sys import modules\nmodules.get('torch').bmm(a, b)": "torch.bmm",
    "import importlib\nimportlib.import_module('torch').bmm(a, b)": "torch.bmm",
    "from importlib import import_module as im\nim('torch.nn').functional.linear(a, b)": "torch.nn.functional.linear",
    "__import__('torch.nn').bmm(a, b)": "torch.bmm",
    "import torch\ngetattr(getattr(torch, 'nn'), 'functional').linear(a, b)": "torch.nn.functional.linear",
    "getattr(q, 'mm')(k)": "torch.Tensor.mm",
    "import operator, torch\noperator.attrgetter('nn.functional.linear')(torch)(a, b)": "torch.nn.functional.linear",
    "import operator\noperator.methodcaller('mm', k)(q)": "torch.Tensor.mm",
    # Other names of the same object.
    "import torch\ntorch.functional.einsum('', a)": "torch.einsum",
    "from torch.functional import einsum as e": "torch.einsum",
    "import torch\ntorch._VF.bmm(a, b)": "torch.bmm",
    "import torch\ntorch._C._VariableFunctions.einsum('', a)": "torch.einsum",
    "import torch\ntorch._C._nn.linear(a, b)": "torch.nn.functional.linear",
    "import torch._C as c\nc._nn.linear(a, b)": "torch.nn.functional.linear",
    "import torch\ntorch.nn.modules.linear.Linear(3, 3)": "torch.nn.Linear",
    "import torch.nn.functional\ntorch.nn.functional.torch.einsum('', a)": "torch.einsum",
    "import torch\ntorch._C._linalg.linalg_multi_dot(a)": "torch.linalg.*",
    "q.__matmul__(k)": "operator.matmul",
    "q.__rmatmul__(k)": "operator.matmul",
    "import torch\ntorch.Tensor.__imatmul__(q, k)": "operator.matmul",
    "import _operator\n_operator.imatmul(q, k)": "operator.matmul",
    "q.addmm_(a, b)": "torch.Tensor.addmm",
    "import torch\ntorch.Tensor.mm(q, k)": "torch.Tensor.mm",
    "import torch\ntorch.conv_transpose2d(a, b)": "torch.conv*",
    "import torch\ntorch._scaled_dot_product_flash_attention_for_cpu(q, k, v)": "torch._scaled_*",
    # Tensors, wherever they come from.
    "def f(q, k):\n    g = q.mm\n    return g(k)": "torch.Tensor.mm",
    "def f(q, k):\n    q.T[0].contiguous().mm(k)": "torch.Tensor.mm",
    "class K:\n    def __init__(self, q):\n        self.q = q\n    def f(self, k):\n        self.q.mm(k)": "torch.Tensor.mm",
    "import torch\nclass T(torch.Tensor): ...\nT(q).mm(k)": "torch.Tensor.mm",
    "def f(self, k):\n    return self.mm(k)": "torch.Tensor.mm",
    "import ctypes\nlib = ctypes.CDLL('x')\ndef f(q, k):\n    lib = q\n    return lib.mm(k)": "torch.Tensor.mm",
    "from torch.utils.cpp_extension import load_inline\next = load_inline('x', '')\next.forward(q).mm(k)": "torch.Tensor.mm",
    "out = None\nfor q in items:\n    out = q + 1\nout.mm(k)": "torch.Tensor.mm",
    "class C:\n    mm: int\ndef f(q, k):\n    return q.mm(k)": "torch.Tensor.mm",
    # Parts of containers.
    "def f(qs, k):\n    a = [q for q in qs]\n    a[0].mm(k)": "torch.Tensor.mm",
    "def f(qs, k):\n    for q in list(qs):\n        q.mm(k)": "torch.Tensor.mm",
    "def f(qs, k):\n    a = []\n    a.append(qs)\n    a.pop().mm(k)": "torch.Tensor.mm",
    "def f(qs, k):\n    a = {n: q for n, q in qs}\n    a['x'].mm(k)": "torch.Tensor.mm",
    "def f(qs, k):\n    a = []\n    a = qs\n    a.mm(k)": "torch.Tensor.mm",
    "def f(q, k):\n    a = [q]\n    a.mm(k)": "torch.Tensor.mm",
    "def f(qs, k):\n    (a,) = sorted(qs)\n    a.mm(k)": "torch.Tensor.mm",
    "def f(q, k):\n    dict(q=q)['q'] @ k": "operator.matmul",
    "def f(q=(), k=None):\n    q.mm(k)": "torch.Tensor.mm",
    "def f(q=(1,), k=None):\n    q.mm(k)": "torch.Tensor.mm",
    "def f(q=list((1,)), k=None):\n    q.mm(k)": "torch.Tensor.mm",
    "def f(q: list, k=None):\n    q.mm(k)": "torch.Tensor.mm",
    "L = dict\ndef f(q: L, k=None):\n    q.mm(k)": "torch.Tensor.mm",
    "def list(x):\n    return x\ndef f(q, k):\n    list(q).mm(k)": "torch.Tensor.mm",
    "x = []\ndef f(q, k):\n    with g(q) as x:\n        x.mm(k)": "torch.Tensor.mm",
    "x = []\ndef f(q, k):\n    match q:\n        case x:\n            x.mm(k)": "torch.Tensor.mm",
    "x = []\ndef f(q, k):\n    match q:\n        case [_, *x]:\n            x[0].mm(k)": "torch.Tensor.mm",
    "x = {}\ndef f(q, k):\n    match q:\n        case {**x}:\n            x['q'].mm(k)": "torch.Tensor.mm",
    "x = []\ndef f(q, k):\n    x += q\n    x.mm(k)": "torch.Tensor.mm",
    (
        "import torch\nclass K:\n    def f(self, q):\n        "
        + "; ".join(f"self.t{i}" for i in range(20))
        + "".join(f"\n        self.t{i} = {f'self.t{i - 1}' if i else 'torch'}" for i in range(20))
        + "\n        self.t19.bmm(q, q)"
    ): "torch.bmm",
    # One expression for many names.
    "import torch\na = b = c = [torch]\nc[0].bmm(q, k)": "torch.bmm",
    "import torch\n(a, b), (c, d) = e = (torch, 1), (2, 3)\ne[0].bmm(q, k)": "torch.bmm",
    "import torch\na, (b, c) = get()\ndef get():\n    return torch\nc.bmm(q, k)": "torch.bmm",
}

FREE = [
    '"""We do not call torch.matmul or import flashinfer."""',
    "# torch.matmul(a, b)",
    "text = 'torch.matmul'",
    "import torch\ntorch.mul(a, b)",
    "def matmul(a, b): ...\nmatmul(1, 2)",
    "class Mine:\n    pass\nimport mylib\nmylib.matmul(a, b)",
    "@decorator\ndef f(): ...",
    "from . import einsum",
    "import ctypes\nlib = ctypes.CDLL('x')\nlib.dot(1)\nlib.matmul.argtypes = []",
    "import ctypes\ndef build() -> ctypes.CDLL:\n    return ctypes.CDLL('x')\nLIB = build()\nLIB.dot(1)\nbuild().dot(1)",
    (
        "import ctypes\nLIB = None\ndef get():\n    global LIB\n    if LIB is None:\n        LIB = ctypes.CDLL('x')\n"
        "    return LIB\nget().dot(1)"
    ),
    "import ctypes\ndef f(lib: ctypes.CDLL):\n    lib.dot(1)",
    (
        "import ctypes\nclass K:\n    def __init__(self):\n        self.lib = ctypes.CDLL('x')\n    def f(self):\n"
        "        self.lib.dot(1)"
    ),
    "from torch.utils.cpp_extension import load_inline\next = load_inline('x', '')\next.mm(1)",
    "import torch\nlib = torch.ops.load_library('x')\nlib.mm(1)\ntorch.ops.mine.mm(1)",
    "import triton\ntl = triton.language\n@triton.jit\ndef k(a, b):\n    return tl.dot(a, b)",
    "import triton.language as tl\ndef k(a, b):\n    return tl.dot(a, b)",
    "from triton.language import *\ndef k(a, b):\n    return dot(a, b)",
    "from torch import *\ndef bmm(a, b): ...\nbmm(1, 2)",
    (
        "class K:\n    def __init__(self):\n        self.inner = 3\n        self.n = self.inner * 2\n"
        "    def mm(self): ...\n    def go(self):\n        self.mm()"
    ),
    "class K:\n    def mm(self): ...\nk = K()\nk.mm()\nK.mm(k)",
    "class C:\n    inner: int\ndef f(c: C, d):\n    return range(c.inner), range(d.inner)",
    "class K: ...\nk = K()\nk.inner = lambda x: x\nk.inner(3)",
    "def f(cfg):\n    return cfg.mm + cfg.dot",
    "import types\nc = types.SimpleNamespace(mm=3)\nprint(c.mm)",
    "def outer():\n    outer.inner = 3\n    return outer.inner",
    "import os\nos.path.dot",
    "import torch\ntorch.add_\ntorch.is_conj",
]


@pytest.mark.parametrize(("source", "rule"), USED.items())
def test_forbidden_uses_are_found(source, rule):
    assert rule in {found.name for found in forbidden(source, RULES)}


@pytest.mark.parametrize("source", FREE)
def test_mentions_are_not_uses(source):
    assert forbidden(source, RULES) == []


@pytest.mark.parametrize(
    "source",
    [
        "def tune(configs):\n    times = []\n    for each in configs:\n        times.append(each)\n    times.sort()",
        "def tune(found):\n    keys = list(found.keys())\n    keys.sort()",
        "def tune(found):\n    best = [each for each in found]\n    best.sort()",
        "BEST = {}\ndef mode():\n    return BEST.mode",
        "def tune(found):\n    times = []\n    times += [each for each in found]\n    times += [0.0]\n    times.sort()",
    ],
)
def test_a_container_has_no_method_of_a_tensor(source):
    """Code that tunes a kernel sorts its times; the same on what may be a tensor is a use."""
    rules = ("torch.Tensor.sort", "torch.Tensor.mode")
    assert forbidden(source, rules) == []
    assert forbidden("def f(q):\n    q.sort()\n    q.mode()", rules)


def test_use_has_its_line():
    assert forbidden("import torch\n\n\ny = torch.matmul(a, b)\n", ("torch.matmul",))[0].line == 4


SHIPPED = sorted(
    path
    for folder in ("problems/paged_attention/solutions", "tests/attacks/cpu", "tests/attacks/gpu", "tests/attacks/honest")
    for path in (Path(__file__).parents[2] / folder).glob("*.py")
    if path.name != "no_parse.py"
)
LIST = catalog.problem("paged_attention").forbidden


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_solutions_are_free_unless_marked(path):
    source = path.read_text()
    by_name = source.startswith("# verdict: forbidden") and "# Reads clean" not in source
    assert bool(forbidden(source, LIST)) == by_name


READY_MADE = (
    "torch.conv1d torch.nn.functional.conv2d torch.nn.functional.conv_transpose3d torch.cdist torch.sparse.mm torch._int_mm",
    "torch._scaled_mm torch._scaled_dot_product_attention_math torch.nn.Bilinear torch.nn.Conv3d torch.ops.aten.mm q.vdot",
    "torch.spmm torch.convolution numpy.inner numpy.tensordot numpy.vdot torch.nn.modules.conv.Conv1d",
)


@pytest.mark.parametrize("use", " ".join(READY_MADE).split())
def test_library_products_are_forbidden(use):
    assert forbidden(f"import torch, numpy\n{use}(1)", LIST)


LONG = {
    "attributes": ("a" + ".b" * 900 + "\n") * 500,
    "aliases": "".join(f"a{i} = a{i + 1}\n" for i in range(50_000)) + "import torch\na50000 = torch\na0.bmm",
    "meanings": "import torch\nx = torch\n" + "".join(f"x = x.b{i}\n" for i in range(20_000)),
    "elements": "import torch\nx = [" + ",".join(f"torch.b{i}" for i in range(20_000)) + "][0]" + ".x" * 500,
    "one value for many names": "=".join(f"a{i}" for i in range(8_000)) + "=(" + "x," * 8_000 + ")",
    "one choice for many names": ",".join(f"a{i}" for i in range(8_000)) + "=(" + "x," * 8_000 + ") if c else d",
    "one item for many pairs": ",".join(f"(a{i},b{i})" for i in range(8_000)) + "=(" + "x," * 8_000 + ") if c else d",
    "a long path": f"import operator\ng = operator.attrgetter('{'a.' * 25_000}a')\n" + "g(y)\n" * 5_000,
    "depth": "x = " + "(a := " * 150 + "torch" + ")" * 150 + "".join("\n" + " " * i + "if a:" for i in range(90)) + " pass",
}


@pytest.mark.parametrize("name", LONG)
def test_long_sources_take_linear_time(name):
    # 2 to 3 s for the first, about half of it in ast.parse, and less for the others; in quadratic time it is a minute.
    start = time.process_time()
    assert {found.name for found in forbidden(LONG[name], RULES)} == ({"torch.bmm"} if name == "aliases" else set())
    assert time.process_time() - start < 8


LARGE = {
    "a long module": f"import {'L' * 100_000} as x\n" + "".join(f"x.b{i}\n" for i in range(20_000)),
    "names of a long module": f"from {'L' * 100_000} import " + ",".join(f"b{i}" for i in range(20_000)),
    "a long module's names": f"import {'L' * 100_000} as x\n" + "vars(x)['b']\n" * 20_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_long_names_take_little_memory(name):
    """2 GB and more where each use had a copy of them."""
    tracemalloc.start()
    try:
        forbidden(LARGE[name], RULES)
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
