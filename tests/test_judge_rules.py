"""Forbidden names are found by what they resolve to."""

import pytest

from arena.judge.rules import forbidden

SDPA = "torch.nn.functional.scaled_dot_product_attention"
RULES = (
    "torch.matmul",
    "torch.Tensor.matmul",
    "operator.matmul",
    "torch.nn.functional.scaled_dot_product_attention",
    "flashinfer.*",
    "torch.einsum",
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
]


@pytest.mark.parametrize(("source", "rule"), USED.items())
def test_uses_are_found(source, rule):
    assert rule in {found.name for found in forbidden(source, RULES)}


@pytest.mark.parametrize("source", FREE)
def test_mentions_are_not_uses(source):
    assert forbidden(source, RULES) == []


def test_the_line_is_the_line_of_the_use():
    assert forbidden("import torch\n\n\ny = torch.matmul(a, b)\n", ("torch.matmul",))[0].line == 4
