"""Definitions with workloads become problems, or are unfit for a true reason. All definitions here are our own."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from command import Arena

from arena.authoring import contract
from arena.catalog import problem
from arena.errors import DataError
from arena.files import documents
from arena.files.text import render
from arena.importing import definition, definition_text, folder, kernelbench, several
from arena.importing.definition_format import Definition, Workload, read_definition, read_workloads
from arena.importing.formula import value_of
from arena.importing.records import Import, Imported
from arena.importing.task import Unfit
from arena.judge import problem_code
from arena.sandboxes import Sandbox

GEMM: dict[str, Any] = {
    "name": "gemm_n256_k128",
    "op_type": "gemm",
    "description": "C = A @ B.T",
    "tags": ["status:verified"],
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 256}, "K": {"type": "const", "value": 128}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"}, "B": {"shape": ["N", "K"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": (
        "import torch\n\ndef run(A, B):\n    # a note to the agent\n"
        "    assert B.shape == (256, 128)\n    return torch.matmul(A, B.T)"
    ),
}
NORM: dict[str, Any] = {
    "name": "rmsnorm_h512",
    "axes": {
        "batch_size": {"type": "var"},
        "heads": {"type": "const", "value": 4},
        "hidden": {"type": "expr", "expression": "(heads ** 2 % 5) * heads * 128 + -0"},
    },
    "constraints": ["hidden == 4 * 128", "batch_size >= 2", "indptr[-1] == batch_size"],
    "inputs": {
        "input": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16", "description": "the rows, scaled"}},
    "reference": (
        "import torch\n\n@torch.no_grad()\ndef run(input, weight, eps):\n    x = input.to(torch.float32)\n"
        "    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)\n"
        "    return ((x * rstd) * weight.to(torch.float32)).to(torch.bfloat16)\n"
    ),
}
SHIFT: dict[str, Any] = {
    "name": "shift",
    "axes": {"rows": {"type": "var"}, "n": {"type": "const", "value": 64}},
    "custom_inputs_entrypoint": "get_inputs",
    "inputs": {"x": {"shape": ["rows", "n"], "dtype": "float32"}, "at": {"shape": ["rows"], "dtype": "int64"}},
    "outputs": {"y": {"shape": ["rows", "n"], "dtype": "float32"}},
    "reference": (
        "import torch\n\ndef get_inputs(axes_and_scalars, device):\n"
        "    rows, n = axes_and_scalars['rows'], axes_and_scalars['n']\n"
        "    return {'x': torch.randn(rows, n, device=device), 'at': torch.randint(0, rows, (rows,), device=device)}\n\n"
        "def run(x, at):\n    return {'y': torch.softmax(x[at] @ x.T, -1) @ x}\n"
    ),
}


GATHER: dict[str, Any] = {
    "name": "gather",
    "axes": {"rows": {"type": "const", "value": 2048}, "n": {"type": "var"}},
    "inputs": {"table": {"shape": ["rows", "n"], "dtype": "float32"}, "at": {"shape": ["n"], "dtype": "int64"}},
    "outputs": {"y": {"shape": ["n", "n"], "dtype": "float32"}},
    "reference": "def run(table, at):\n    return table[at]",
}

TABLE = "torch.sin(9 * torch.arange(rows * n)).reshape(rows, n)"
SAME = SHIFT | {"reference": SHIFT["reference"].replace("torch.randn(rows, n, device=device)", TABLE)}


def random(document: dict[str, Any], number: int, **axes: int) -> dict[str, Any]:
    """A workload of the definition at these sizes."""
    sources = {name: {"type": "random"} for name in document["inputs"]}
    if "custom_inputs_entrypoint" in document:
        sources = {name: {"type": "custom"} for name in document["inputs"]}
    if "eps" in sources:
        sources["eps"] = {"type": "scalar", "value": 1e-6}  # type: ignore[dict-item]
    return {"uuid": f"w{number}", "axes": axes, "inputs": sources}


TOLERANCE = {"max_atol": 1e-2, "allow_negative_inf": False}
GEMMS = [random(GEMM, 1, M=512), random(GEMM, 2, M=4096) | {"tolerance": TOLERANCE}, random(GEMM, 3, M=512), random(GEMM, 4, M=7)]

SHIFTS = [random(SHIFT, 1, rows=4096)]


def write(folder: Path, document: Any, workloads: list[Any]) -> tuple[Path, Path]:
    home = folder / "set"
    home.mkdir(exist_ok=True)
    (home / "definition.json").write_text(json.dumps(document))
    (home / "workloads.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in workloads))
    return home / "definition.json", home / "workloads.jsonl"


def convert(tmp_path: Path, sandbox: Sandbox, document: dict[str, Any], workloads: list[Any], **choices: Any) -> Imported:
    paths = write(tmp_path, document, workloads)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    name = definition.problem_name(read_definition(paths[0]), "fp32")
    return definition.convert(*paths, out / name, sandbox, kernelbench.Choices(**choices))


def sound(tmp_path: Path, name: str) -> None:
    """The problem keeps the contract, and its tolerance rejects degenerate answers."""
    found, folder = problem(name, tmp_path / "out"), tmp_path / "out" / name
    every = (*contract.check(found, folder), *contract.check_degenerate(found, "cpu", folder))
    assert [each for each in every if not each.ok] == []


def test_a_gemm_becomes_a_problem(tmp_path: Path, sandbox: Sandbox) -> None:
    record = convert(tmp_path, sandbox, GEMM, GEMMS)
    assert (record.unfit, record.problem) == ("", "def_gemm_n256_k128")
    found = problem("def_gemm_n256_k128", tmp_path / "out")
    assert [dict(shape) for shape in found.shapes["gpu"]] == [{"M": 4096}, {"M": 512}, {"M": 7}]  # once each, the largest first
    assert [(each.name, each.shape, each.dtype) for each in found.inputs] == [
        ("A", ("M", 128), "float16"),
        ("B", (256, 128), "float16"),
    ]
    assert found.outputs[0].shape == ("M", 256)
    assert found.bytes({"M": 512}) == 2 * (512 * 128 + 256 * 128 + 512 * 256)
    assert max(record.gap.values()) > 16
    assert record.theirs == {"max_atol": 1e-2}, "theirs is recorded, and ours is measured"
    assert "torch.matmul(A, B.T)" in found.operator and "a note to the agent" not in found.operator
    assert not (tmp_path / "out" / found.name / "model_new.py.part").exists()
    sound(tmp_path, found.name)


@pytest.mark.slow
def test_a_norm_is_judged_in_fp64_whatever_its_text_casts(tmp_path: Path, sandbox: Sandbox) -> None:
    workloads = [random(NORM, number, batch_size=2**number) for number in range(1, 17)]
    workloads.append(
        workloads[0] | {"uuid": "other", "inputs": workloads[0]["inputs"] | {"eps": {"type": "scalar", "value": 0.5}}}
    )
    record = convert(tmp_path, sandbox, NORM, workloads)
    assert record.unfit == ""
    assert record.theirs == {}
    assert "other: has other numbers ({'eps': 0.5})" in record.dropped["workloads"]
    folder = tmp_path / "out" / "def_rmsnorm_h512"
    found = problem(folder.name, folder.parent)
    assert [shape["batch_size"] for shape in found.shapes["gpu"]] == [2**number for number in range(16, 11, -1)]
    code = problem_code.load(found, "gpu", folder)
    assert [shape["batch_size"] for shape in code.extra_shapes] == [2**number for number in range(11, 3, -1)]
    inputs = code.make_inputs({"batch_size": 16, "hidden": 512}, 1, "public", "cpu")
    [answer] = code.outputs(inputs)
    x, weight = (each.double() for each in inputs)
    exact = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    assert answer.dtype == exact.dtype
    assert float((answer - exact).abs().max()) < 1e-12  # the text rounds to bfloat16 and computes in fp32
    sound(tmp_path, folder.name)


def test_casts_of_a_text_are_widened_and_bits_are_not() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    known = {"torch": torch, "TorchFunctionMode": TorchFunctionMode}
    exec((folder.TEMPLATES / "exact.py.part").read_text(), known)
    x = torch.ones(4, dtype=torch.float64)
    with known["Exact"]():  # type: ignore[operator]
        wide = (x.to(torch.float32), x.half(), x.to(dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16), x.float() @ x)
        kept = (x.to(torch.float8_e4m3fn), x.view(torch.float32), x.view(torch.int32), x.to(torch.int64))
    assert {each.dtype for each in wide} == {torch.float64}
    assert [each.dtype for each in kept] == [torch.float8_e4m3fn, torch.float32, torch.int32, torch.int64]


@pytest.mark.slow
def test_custom_inputs_are_new_for_each_seed(tmp_path: Path, sandbox: Sandbox) -> None:
    record = convert(tmp_path, sandbox, SHIFT, SHIFTS)
    assert record.unfit == ""
    sound(tmp_path, "def_shift")


FILE = {"type": "safetensors", "path": "a.safetensors", "tensor_key": "A"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "workloads", "reason"),
    [
        ({}, [GEMMS[0] | {"inputs": GEMMS[0]["inputs"] | {"A": FILE}}], "no workload fits: w1: A comes out of a file"),
        ({"outputs": GEMM["outputs"] | {"lse": {"shape": ["M"], "dtype": "float32"}}}, GEMMS, "2 outputs"),
        ({"outputs": {"C": {"shape": ["M", "N"], "dtype": "int32"}}}, GEMMS, "an output of int32"),
        ({"outputs": {"C": {"shape": None, "dtype": "float32"}}}, GEMMS, "the output C is a Python number"),
        ({"outputs": {"C": {"shape": ["M", "K"], "dtype": "float16"}}}, GEMMS, "C is float16 "),
        ({"outputs": {"C": {"shape": ["M", "N"], "dtype": "float32"}}}, GEMMS, "C is float16 "),
        ({"inputs": GEMM["inputs"] | {"B": {"shape": ["N", "K"], "dtype": "float4_e2m1"}}}, GEMMS, "B is float4_e2m1"),
        ({"reference": "import os\ndef run(A, B):\n    return A @ B.T"}, GEMMS, "imports os"),
        ({"reference": "def run(A, B):\n    return open('x')"}, GEMMS, "uses builtins.open"),
        ({"reference": "def ran(A, B):\n    return A"}, GEMMS, "its reference defines no function `run`"),
        ({"reference": "def run(A, B:"}, GEMMS, "its reference does not parse"),
        ({"reference": "def run(A, B):\n    return A @ B"}, GEMMS, "does not trace"),
        (
            {"reference": "def run(A, B):\n    assert A.min() < 9\n    return A @ B.T"},
            GEMMS,
            "does not trace: it reads values of",
        ),
        ({"reference": "def run(A, B):\n    return (A @ B.T) * 0 + 1"}, GEMMS, "constant"),
        ({"reference": "def run(A, B):\n    C = A @ B.T\n    A.zero_()\n    return C"}, GEMMS, "changes its input 0"),
        (
            {"reference": "def run(A, B):\n    return A[:, :64] @ B[:, :64].T"},
            GEMMS,
            "the operator reads only a part of its input 0",
        ),
        (GATHER, [random(GATHER, 1, n=16)], "the operator reads only a part of its input 0"),
        (
            GATHER | {"reference": "def run(table, at):\n    at.clamp_(0, 63)\n    return table[at] + table.sum(0)"},
            [random(GATHER, 1, n=16)],
            "changes its input 1",
        ),
        (SAME, SHIFTS, "its input 0 is the same"),
        ({"axes": GEMM["axes"] | {"K": {"type": "const", "value": 1 << 20}}}, GEMMS, "its constant sizes alone take 539 MB"),
        ({"reference": f"def run(A, B):\n    return (A @ B.T){'.T' * 1500}"}, GEMMS, "its text is nested too deeply"),
        ({"reference": f"def run(A, B):\n    return {'-' * 1200}(A @ B.T)"}, GEMMS, "its text is nested too deeply"),
    ],
)
def test_an_unfit_definition_has_its_reason(
    tmp_path: Path, sandbox: Sandbox, changed: dict[str, Any], workloads: list[Any], reason: str
) -> None:
    record = convert(tmp_path, sandbox, GEMM | changed, workloads)
    assert record.problem is None
    assert record.unfit.startswith(reason)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "line", ["K = 0.5", "K: float = 0.5", "J, K = 1, 2", "import math as K", "from torch.nn import functional as K", "shape = 1"]
)
def test_a_name_of_the_text_and_of_an_axis_is_refused(line: str) -> None:
    """The axis's number would stand after the text's own, and another operator than the shown one would be judged."""
    read = Definition.model_validate(GEMM | {"reference": f"import torch\n{line}\n{GEMM['reference']} * K"})
    with pytest.raises(Unfit, match=r"its reference defines (K|shape), a name that the import or an axis has"):
        definition_text.module(read, Workload.model_validate(GEMMS[0]))


def test_a_custom_function_is_given_the_device_of_its_call() -> None:
    """`.to(device)` of the processor's would leave an input there on a GPU."""
    import torch

    text = SHIFT["reference"].replace("(0, rows, (rows,), device=device)", "(0, 4, (rows,), device='cpu').to(device)")
    read = Definition.model_validate(SHIFT | {"reference": text})
    known: dict[str, Any] = {}
    exec(definition_text.module(read, Workload.model_validate(random(SHIFT, 1, rows=64))), known)
    with torch.device("meta"):
        assert [each.device.type for each in known["get_inputs"]()] == ["meta", "meta"]


def test_a_generator_of_the_text_is_replaced_by_arenas() -> None:
    import torch

    task = "def task(shape):\n    pass"
    variables: dict[str, Any] = {
        "title": "",
        "origin": "",
        "licence": (),
        "imports": "",
        "forward": 1,
        "parameters": "()",
        "scalars": (),
    }
    known: dict[str, Any] = {}
    exec(render(folder.TEMPLATES / "reference.py.j2", **variables, places="{}", exact="", task=task), known)
    drawn = []
    for seed in (1, 2):
        with known["Drawn"](torch.Generator().manual_seed(seed), "cpu"):
            drawn.append(torch.randn(4, generator=torch.Generator().manual_seed(42)))
    assert not torch.equal(*drawn)


def test_a_workload_that_fits_is_taken_beside_one_that_does_not() -> None:
    read = Definition.model_validate(GEMM)
    files = random(GEMM, 9, M=64) | {"inputs": GEMMS[0]["inputs"] | {"A": FILE}}
    large = random(GEMM, 8, M=10**7)
    given = [Workload.model_validate(each) for each in (files, large, GEMMS[0])]
    chosen = definition.choose(read, given)
    assert [each.uuid for each in chosen.timed] == ["w1"]
    assert [each.partition(":")[0] for each in chosen.left] == ["w9", "w8"]
    alone = definition.choose(read, [given[1]])
    assert ([each.uuid for each in alone.timed], alone.left) == (["w8"], ()), "it is taken, at smaller sizes"


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"axes": {}}, "axes: 'M' is missing"),
        ({"axes": {"M": 4, "N": 8}}, "axes.N: the definition has M"),
        ({"axes": {"M": 0}}, "axes.M: Input should be greater than or equal to 1"),
        ({"tolerance": {"max_atol": 10**400}}, "tolerance: max_atol is no finite number"),
        ({"axes": {"M": True}}, "axes.M: Input should be a valid integer"),
        ({"inputs": {"A": {"type": "random"}}}, "inputs: 'B' is missing"),
        ({"inputs": GEMMS[0]["inputs"] | {"D": {"type": "random"}}}, "inputs.D: the definition has A, B"),
        (
            {"inputs": GEMMS[0]["inputs"] | {"A": {"type": "scalar", "value": 1}}},
            "inputs.A: is scalar, and the",
        ),
        ({"inputs": GEMMS[0]["inputs"] | {"A": {"type": "custom"}}}, "inputs.A: is custom, and the definition has no custom_"),
        ({"inputs": GEMMS[0]["inputs"] | {"A": {"type": "zeros"}}}, "inputs.A: Input tag 'zeros'"),
    ],
)
def test_a_workload_of_another_definition_is_named(tmp_path: Path, workload: dict[str, Any], message: str) -> None:
    paths = write(tmp_path, GEMM, [GEMMS[0], GEMMS[1] | workload])
    read = read_definition(paths[0])
    with pytest.raises(DataError) as caught:
        read_workloads(paths[1], read)
    assert str(caught.value).startswith(f"{paths[1]}:2: {message}")


def test_a_trace_of_another_definition_is_named(tmp_path: Path) -> None:
    traces = [
        {"definition": name, "workload": GEMMS[0], "solution": None, "evaluation": None} for name in (GEMM["name"], "other")
    ]
    paths = write(tmp_path, GEMM, traces)
    read = read_definition(paths[0])
    with pytest.raises(DataError, match=r"workloads.jsonl:2: is for the definition 'other', not for 'gemm_n256_k128'"):
        read_workloads(paths[1], read)
    assert len(read_workloads(write(tmp_path, GEMM, traces[:1])[1], read)) == 1


def test_a_workload_that_breaks_a_constraint_is_named(tmp_path: Path) -> None:
    paths = write(tmp_path, NORM, [random(NORM, 1, batch_size=1)])
    with pytest.raises(DataError, match=r":1: axes: break the constraint 'batch_size >= 2'"):
        read_workloads(paths[1], read_definition(paths[0]))


def test_an_expression_holds_at_other_sizes_too() -> None:
    total = {"T": {"type": "expr", "expression": "B * S"}, "B": {"type": "var"}, "S": {"type": "const", "value": 4}}
    read = Definition.model_validate(GEMM | {"axes": GEMM["axes"] | total})
    assert read.broken({"B": 64, "S": 4, "T": 7}) == "T == (B * S)"
    assert read.broken({"B": 64, "S": 4, "T": 256}) == ""
    assert read.broken({"B": 64, "T": 7}) == "", "S is not known"


def test_a_size_beyond_every_number_is_named(tmp_path: Path) -> None:
    axes = {"Q": {"type": "expr", "expression": "M**16 * M**16"}} | GEMM["axes"]
    paths = write(tmp_path, GEMM | {"axes": axes}, [random(GEMM, 1, M=1 << 40)])
    with pytest.raises(DataError, match=r":1: axis Q: 'M\*\*16 \* M\*\*16' is no whole number from 1 to"):
        read_workloads(paths[1], read_definition(paths[0]))


def test_ten_thousand_workloads_are_sorted_at_once(tmp_path: Path) -> None:
    paths = write(tmp_path, GEMM, [random(GEMM, number, M=number) for number in range(1, 10_001)])
    read = read_definition(paths[0])
    began = time.monotonic()
    chosen = definition.choose(read, read_workloads(paths[1], read))
    assert time.monotonic() - began < 10, "and not the square of their number"
    assert len(chosen.left) == 10_000 - definition.MOST_SHAPES - definition.MOST_EXTRA
    paths = write(tmp_path, GEMM, [random(GEMM, 1, M=1)] * 10_001)
    with pytest.raises(DataError, match="holds more than 10000 workloads"):
        read_workloads(paths[1], read)


def test_definitions_in_folders_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    heads = []
    for above, name in (("L1", "gemm"), ("quant", "gemm_fp8")):
        (tmp_path / above).mkdir()
        (tmp_path / above / "LICENSE").write_text(f"{above}'s terms")
        paths = write(tmp_path / above, GEMM | {"name": name}, GEMMS)
        heads.append(definition.head(*paths, kernelbench.Choices(), read_definition(paths[0])))
    assert [one.source for one in heads] == ["set/definition.json (gemm)", "set/definition.json (gemm_fp8)"]
    assert [one.licence for one in heads] == [("L1's terms",), ("quant's terms",)]
    for one in heads:
        none = Import(benchmark="definition", arena_version="1", tasks=())
        record = several.Record(tmp_path, none)
        record.tasks[one.source, one.arithmetic] = one
        record.write()
    assert documents.read_yaml(tmp_path / several.RECORD, Import).tasks == tuple(heads)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(GEMM | {"reference": "#" * 200_001}), ": reference: String should have at most 200000 characters"),
        (json.dumps(GEMM | {"constraints": ["M " * 201]}), ": constraints.0: String should have at most 400 characters"),
        ('{"name": "a",\n "axes": }', ":2: is not JSON: Expecting value"),
        ('{"name": "a", "name": "b"}', ": is not JSON: one object holds the same name twice"),
        ('{"name": NaN}', ": is not JSON: NaN is no number of JSON"),
        ("[" * 100_000, ": is not JSON: "),
        ("[]", ": Input should be a valid dictionary"),
        (json.dumps(GEMM | {"axes": {"M": {"type": "free"}}}), ": axes.M: Input tag 'free'"),
        (json.dumps(GEMM | {"inputs": {"A": {"shape": ["Q"], "dtype": "float16"}}}), ": A: 'Q' is none of its axes"),
        (json.dumps(GEMM | {"inputs": {"C": GEMM["inputs"]["A"]}}), ": 'C' is both an input and an output"),
        (json.dumps(GEMM | {"inputs": {"x); import os": GEMM["inputs"]["A"]}}), ": inputs.x); import os."),
        (json.dumps(GEMM | {"inputs": {"lambda": GEMM["inputs"]["A"]}}), ": 'lambda' is a word of Python's own"),
    ],
)
def test_a_broken_definition_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "definition.json"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_definition(path)
    assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    "text", ["9**9**9**9", "2**17", "M.real", "f(M)", "M if M else 1", "1 / 0", "Q", "'a' * 9", "M[0]", "-" * 5000 + "1"]
)
def test_a_formula_is_arithmetic_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError):
        value_of(text, {"M": 4})
    assert value_of("-(M // 3) % 5 + 2**3 * +1", {"M": 4}) == 12


@pytest.mark.slow
def test_the_command_imports_and_refuses(shared: Arena, tmp_path: Path) -> None:
    paths = [str(path) for path in write(tmp_path, GEMM, GEMMS)]
    out = str(tmp_path / "defs")
    done = shared("import", "definition", *paths, "--out", out)
    assert done.code == 0, done.err
    assert "def_gemm_n256_k128" in done.err
    assert "there already" in shared("import", "definition", *paths, "--out", out).err
    assert "takes two files" in shared.refused("import", "definition", paths[0], "--out", out)
    kernelbench_task = tmp_path / "1_Own.py"
    kernelbench_task.write_text("import torch\n")
    error = shared.refused("import", "kernelbench", str(kernelbench_task), "--out", out)
    assert error.endswith("is of imports of the form definition: choose another --out")
