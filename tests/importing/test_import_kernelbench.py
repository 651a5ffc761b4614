"""Tasks of KernelBench's form become problems, or are unfit for a true reason. All tasks here are our own."""

import pytest

from arena.authoring import contract
from arena.catalog import problem
from arena.importing import kernelbench, sandboxed
from arena.importing.task import Unfit, parse
from arena.judge.forbidden import forbidden

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
TAIL = "\n\nrows = 64\ndef get_inputs():\n    return [torch.rand(rows, 96)]\n\ndef get_init_inputs():\n    return []\n"
LINEAR = HEAD + (
    "    def __init__(self, n, m):\n        super().__init__()\n        self.first = nn.Linear(n, m)\n"
    "        self.norm = nn.LayerNorm(m)\n"
    "    def forward(self, x, s):\n        return F.gelu(self.norm(self.first(x))) * s\n\n\nbatch_size = 4096\nn, m = 256, 128\n"
    "def get_inputs():\n    return [torch.rand(batch_size, n), 2.5]\n\ndef get_init_inputs():\n    return [n, m]\n"
)


def body(forward, tail=TAIL):
    return HEAD + f"    def forward(self, x):\n        return {forward}\n" + tail


def convert(tmp_path, sandbox, text, *, rules=False):
    path = tmp_path / "level9" / "7_Own.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    return kernelbench.convert(path, out / "kb_l9_007", sandbox, kernelbench.Choices(rules=rules))


def test_a_task_becomes_a_problem_that_keeps_the_contract(tmp_path, sandbox):
    record = convert(tmp_path, sandbox, LINEAR)
    assert record.unfit == ""
    found, folder = problem("kb_l9_007", tmp_path / "out"), tmp_path / "out" / "kb_l9_007"
    assert found.imported
    assert [each.name for each in found.inputs] == ["x", "first_weight", "first_bias", "norm_weight", "norm_bias"]
    assert dict(found.shapes["gpu"][0]) == {"batch_size": 4096, "n": 256, "m": 128}
    assert record.classes == ("scaled", "signed", "weights")
    broken = [each for each in (*contract.check(found, folder), *contract.check_degenerate(found, "cpu", folder)) if not each.ok]
    assert broken == []  # among them: two threads that draw at once


@pytest.mark.slow
def test_sizes_that_belong_together_shrink_together(tmp_path, sandbox):
    """A norm over a dimension that an input shows twice as large: neither number can be halved alone."""
    forward = "    def forward(self, x):\n        return self.norm(torch.cat((x, x), -1))\n\n\nwide, features = 2048, 4096\n"
    norm = "    def __init__(self, n):\n        super().__init__()\n        self.norm = nn.LayerNorm(n)\n"
    tail = "def get_inputs():\n    return [torch.rand(1, 999, wide)]\n\ndef get_init_inputs():\n    return [features]\n"
    assert convert(tmp_path, sandbox, HEAD + norm + forward + tail).unfit == ""
    small = dict(problem("kb_l9_007", tmp_path / "out").shapes["cpu"][0])
    assert 2 * small["wide"] == small["features"] < 4096


@pytest.mark.slow
def test_torchs_own_count_bounds_no_kernel(tmp_path, sandbox):
    """Multiplying by a diagonal matrix needs a thousandth of what torch multiplies: such a kernel is better, not a cheat."""
    assert convert(tmp_path, sandbox, body("torch.diag(x[0]) @ x.T")).unfit == ""
    found = problem("kb_l9_007", tmp_path / "out")
    assert [found.flops(shape) for profile in found.shapes for shape in found.timed(profile)] == [0, 0]


@pytest.mark.slow
def test_the_wrapper_of_a_model_new_adds_no_use_of_its_own(tmp_path, sandbox, monkeypatch):
    """With rules, only what the submission itself uses counts."""
    assert convert(tmp_path, sandbox, LINEAR, rules=True).unfit == ""
    monkeypatch.setenv("ARENA_PROBLEMS", str(tmp_path / "out"))
    found, folder = problem("kb_l9_007"), tmp_path / "out" / "kb_l9_007"
    mine = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, n, m):\n        super().__init__()\n"
    assert forbidden(mine + (folder / "model_new.py.part").read_text(), found.forbidden) == []
    assert forbidden(mine + "        self.first = torch.nn.Linear(n, m)\n", found.forbidden) != []


@pytest.mark.parametrize(
    "line",
    [
        "from torch import os",
        "from typing import sys",
        "from torch import *",
        "import numpy.f2py",
        "path = torch.os.sep",
        "import collections\nkept = collections._sys",
    ],
)
def test_modules_of_the_host_are_noticed(line):
    with pytest.raises(Unfit):
        parse(f"{line}\n{body('x + 1')}".encode())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("x * 0 + 1", "constant"),
        ("F.dropout(x, 0.5)", "random"),
        ("x.argmax(1)", "an output of int64"),
        ("(x, x)", "2 outputs"),
        ("x @ x", "does not trace"),
        ("x + torch.rand(1, generator=torch.Generator().manual_seed(int(x.sum())))", "does not trace"),
    ],
)
def test_an_unfit_task_has_its_reason(tmp_path, sandbox, forward, reason):
    record = convert(tmp_path, sandbox, body(forward))
    assert record.problem is None
    assert record.unfit.startswith(reason)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from pathlib import Path",
        "x = open('a')",
        "print(1)",
        "y = torch.load('x')",
        "z = ().__class__",
        "import torch.utils.cpp_extension",
    ],
)
def test_what_reaches_beyond_tensors_is_not_imported(line):
    with pytest.raises(Unfit):
        parse(f"{line}\n{body('x')}".encode())


def test_code_past_the_notice_reaches_nothing_of_the_host(tmp_path, sandbox):
    """The notice can be passed by; the sandbox then stands. This code reads a file and writes one."""
    secret, marker = tmp_path / "secret", tmp_path / "marker"
    secret.write_text("a secret")
    tried = f"try: seen = open({str(secret)!r}).read()\nexcept OSError as error: seen = type(error).__name__\n"
    tried += f"try: open({str(marker)!r}, 'w').write(seen)\nexcept OSError: pass\nraise RuntimeError('saw ' + seen)\n"
    order = {"sizes": {}, "given": {}, "most_bytes": 1, "small_bytes": 1, "small_flops": 1}
    with pytest.raises(Unfit, match="saw FileNotFoundError"):
        sandboxed.report(sandbox, "probe", {"core.py": tried.encode()}, order, 60)
    assert not marker.exists()


@pytest.mark.slow
def test_one_metric_refuses_and_the_others_leave_room(tmp_path, sandbox):
    """At a GPU's sizes eager's worst row and element are several times those of the small size that the tolerance comes from."""
    record = convert(tmp_path, sandbox, LINEAR)
    tolerance, gap = record.tolerance, record.gap
    eager = tolerance["rel_fro"] / gap["rel_fro"] ** 0.5
    assert tolerance["rel_fro"] / eager > 4, "the coarser arithmetic is as far above"
    for metric in ("row", "el"):
        own = tolerance[metric] / gap[metric]  # eager's error here: the tolerance is the coarser arithmetic's
        assert 0.5 < own / eager < 30
