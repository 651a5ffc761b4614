"""Work as numbers, sets of forbidden names, and imported problems."""

import pytest
import yaml

from arena import catalog, paths
from arena.errors import DataError

PROBLEM = """\
schema_version: 2
version: 1
title: Add
operator: z = x + y
inputs: [{name: x, shape: [N], dtype: float32}, {name: y, shape: [N], dtype: float32}]
outputs: [{name: z, shape: [N], dtype: float32}]
shapes: {cpu: [{N: 1024}, {N: 2048}], gpu: [{N: 1048576}]}
latency: {cpu: [{N: 8}]}
tolerance: {rel_fro: 1e-6, row: 1e-6, el: 1e-6}
work: {counted: {cpu: [{flops: 1, bytes: 10}, {flops: 0, bytes: 20}, {flops: 3, bytes: 30}], gpu: [{flops: 4, bytes: 40}]}}
distribution: standard normal
"""


def read(tmp_path, **changes):
    (tmp_path / "add").mkdir(exist_ok=True)
    (tmp_path / "add" / "problem.yaml").write_text(yaml.safe_dump(yaml.safe_load(PROBLEM) | changes))
    return catalog.problem("add", tmp_path)


def test_counted_work_belongs_to_its_shape(tmp_path):
    problem = read(tmp_path)
    assert [(problem.flops({"N": n}), problem.bytes({"N": n})) for n in (1024, 2048, 8, 1048576)] == [
        (1, 10), (0, 20), (3, 30), (4, 40),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"add: work.counted has no numbers for the shape {'N': 7}"):
        problem.flops({"N": 7})


@pytest.mark.parametrize(
    ("work", "error"),
    [
        ({"counted": {"cpu": [{"flops": 1, "bytes": 1}]}}, "work.counted.cpu: has 1 entries, and the profile has 3 shapes"),
        ({"counted": {"cpu": [{"flops": 1, "bytes": 1}]}, "flops": "N"}, "leave out `flops` and `bytes`"),
        ({"flops": "N"}, "write the formulas `flops` and `bytes`, or `counted` numbers"),
        ({"counted": {"cpu": [{"flops": 1, "bytes": 0}] * 3, "gpu": [{"flops": 1, "bytes": 1}]}}, "greater than 0"),
    ],
)
def test_wrong_work_is_named(tmp_path, work, error):
    with pytest.raises(DataError, match=error.replace("(", r"\(")):
        read(tmp_path, work=work)


def test_numbers_without_a_shape_are_named(tmp_path):
    with pytest.raises(DataError, match=r"work\.counted\.gpu: shapes has no such profile"):
        read(tmp_path, shapes={"cpu": [{"N": 1024}, {"N": 2048}]})


def with_rules(tmp_path, text="schema_version: 1\nsets: {few: [torch.mm, torch.bmm]}\n"):
    (tmp_path / "kit").mkdir(exist_ok=True)
    (tmp_path / "kit" / "rules.yaml").write_text(text)


def test_a_set_stands_for_its_names(tmp_path):
    with_rules(tmp_path)
    assert read(tmp_path, forbidden=["@few", "torch.mm", "torch.mv"]).forbidden == ("torch.mm", "torch.bmm", "torch.mv")
    with pytest.raises(DataError, match="forbidden: unknown set of names 'fwe': did you mean 'few'"):
        read(tmp_path, forbidden=["@fwe"])


def test_only_who_names_a_set_depends_on_the_rules(tmp_path):
    with_rules(tmp_path)
    digests = {}
    for forbidden in ([], ["@few"]):
        read(tmp_path, forbidden=forbidden)
        digests[bool(forbidden)] = catalog.problem_digest("add", tmp_path)
        with_rules(tmp_path, "schema_version: 1\nsets: {few: [torch.mm]}\n")
        assert (catalog.problem_digest("add", tmp_path) == digests[bool(forbidden)]) is not bool(forbidden)
        with_rules(tmp_path)


def test_the_shipped_set_forbids_what_torch_computes(tmp_path):
    from arena.judge.forbidden import forbidden

    with_rules(tmp_path, (paths.problems() / "kit" / "rules.yaml").read_text())
    names = read(tmp_path, forbidden=["@torch-compute"]).forbidden
    for line in (
        "torch.nn.functional.linear(x, w)",
        "torch.matmul(x, w)",
        "x @ w",
        "torch.softmax(x, 1)",
        "torch.nn.LayerNorm(3)",
    ):
        assert forbidden(f"import torch\ndef solution(x, w): {line}", names), line
    assert not forbidden(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 2 + x.sum()", names
    )
