"""Strict reading, faults with places, atomic and stable writing."""

import math
import multiprocessing
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from arena.errors import DataError
from arena.files import strict_yaml
from arena.files.documents import read_json, read_yaml, to_json, to_yaml, unknown, write_json, write_text, write_yaml
from arena.schema import SCORE, Problem, Record, Rejected, Timings


class Part(Record):
    size: int = Field(gt=0)
    rate: float = 1.0


class Thing(Record):
    name: str
    kind: Literal["left", "right"] = "left"
    text: str = ""
    live: bool = False
    parts: tuple[Part, ...] = ()
    sizes: Mapping[str, int] = {}
    note: str | None = None
    pair: tuple[int, ...] = Field(default=(1, 2), min_length=2)
    numbers: tuple[float, ...] = ()
    words: Mapping[str, str] = {}


class Texts(Record):
    words: Mapping[str, str]
    lines: tuple[str, ...]
    numbers: tuple[float, ...]


GOOD = """\
kind: right
text: no
live: true
parts: [{size: 1, rate: 1e-3}, {size: 2}]
sizes: {N: 010, no: 3, 1: 4}
"""


def faults_of(tmp_path: Path, text: str, model: type[Record] = Thing) -> list[str]:
    """The lines of the error on reading `text`, without the folder."""
    path = tmp_path / "thing.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_yaml(path, model, name="thing")
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_yaml_1_2_scalars_are_read(tmp_path):
    path = tmp_path / "thing.yaml"
    path.write_text(GOOD)
    thing = read_yaml(path, Thing, name="thing")
    assert thing.name == "thing"
    assert thing.text == "no"
    assert thing.live is True
    assert thing.parts[0].rate == 0.001
    assert thing.sizes == {"N": 10, "no": 3, "1": 4}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kind: up", "thing.yaml:1:7: kind: should be 'left' or 'right' (got 'up')"),
        ("kimd: left", "thing.yaml:1:1: kimd: unknown key 'kimd': did you mean 'kind'? (known: kind,"),
        ("parts:\n  - {size: 1}\n  - {size: 0}", "thing.yaml:3:12: parts.1.size: should be greater than 0 (got 0)"),
        (
            "parts:\n  - {sise: 1, size: 2}",
            "thing.yaml:2:6: parts.0.sise: unknown key 'sise': did you mean 'size'? (known: size, rate)",
        ),
        ("parts: []\npair: [1]", "thing.yaml:2:7: pair: needs 2 or more entries (got [1])"),
        ("parts: [{}]", "thing.yaml:1:9: parts.0.size: is required and missing"),
        ("text: 3", "thing.yaml:1:7: text: should be text: put it in quotes (got 3)"),
        ("sizes: {B: 12:30:00}", "thing.yaml:1:12: sizes.B: should be a valid integer"),
        ("sizes: 3", "thing.yaml:1:8: sizes: should be a mapping (got 3)"),
        ("live: true\nkind: left\nlive: false", "thing.yaml:3:1: live: is written twice (first on line 1)"),
        ("name: other", "thing.yaml:1:1: name: remove it, the file's path sets it to 'thing'"),
        ("parts: &p []\nwords: *p", "thing.yaml:2:8: alias *p is not allowed: write the value out"),
        (
            "text: !!python/object/apply:os.getcwd []",
            "thing.yaml:1:7: tag tag:yaml.org,2002:python/object/apply:os.getcwd is not allowed",
        ),
        ("[1]: 2", "thing.yaml:1:1: a key must be a plain word"),
        ("- 1", "thing.yaml:1:1: should be a mapping (got [1])"),
        ("", "thing.yaml:1:1: should be a mapping (got None)"),
        ("live: true\n---\nlive: true", "thing.yaml:3:1: a second document: one file holds one record"),
        ("text: 'open", "thing.yaml:1:12: while scanning a quoted scalar found unexpected end of stream"),
        (
            "live: true\n\tkind: left",
            "thing.yaml:2:1: while scanning",
        ),
        ("text: \x01", "thing.yaml:1:1: not YAML:"),
        ("parts: " + "[" * 200_000, "thing.yaml:1:58: nested deeper than 50 levels"),
    ],
)
def test_faults_name_their_place_and_the_choices(tmp_path, text, fault):
    assert faults_of(tmp_path, text)[0].startswith(fault)


def test_faults_are_sorted_by_place(tmp_path):
    faults = faults_of(tmp_path, "kind: up\nkind: left\nparts: [{size: 0}]\nnumbers: [1, x]\nextra: 1\nname: n\n")
    assert [fault.split(": ")[0] for fault in faults] == [f"thing.yaml:{at}" for at in ("2:1", "3:16", "4:14", "5:1", "6:1")]


def test_invalid_item_does_not_shorten_its_list(tmp_path):
    faults = faults_of(tmp_path, "inputs: [{name: q, shape: [B], dtype: fp9}]", Problem)
    assert not [fault for fault in faults if ": inputs: " in fault]
    assert any(fault.startswith("thing.yaml:1:39: inputs.0.dtype: should be 'float64'") for fault in faults)


def test_record_checks_point_at_the_faulty_key(tmp_path):
    text = """\
schema_version: 1
version: 1
title: t
operator: o
inputs: [{name: x, shape: [N], dtype: float32}]
outputs: [{name: y, shape: [N], dtype: float32}]
shapes: {cpu: [{N: 4}]}
tolerance: {rel_fro: 1, row: 1, el: 1}
distribution: d
work:
  flops: 2*M
  bytes: N
"""
    assert faults_of(tmp_path, text, Problem) == ["thing.yaml:11:10: work.flops: '2*M': unknown name 'M' (the shape has N)"]


def test_fields_set_by_the_path_are_checked(tmp_path):
    path = tmp_path / "thing.yaml"
    path.write_text("size: 1")
    with pytest.raises(DataError, match=r"thing.yaml:1:1: rate: .*\(got 'fast'\) \(set by the file's path\)"):
        read_yaml(path, Part, rate="fast")


def test_unreadable_files_raise(tmp_path):
    with pytest.raises(DataError, match=r"no\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "no.yaml", Part)
    (tmp_path / "latin.yaml").write_bytes(b"text: \xe9t\xe9")
    with pytest.raises(DataError, match=r"latin.yaml: is not UTF-8 text \(.* at byte 6\)"):
        read_yaml(tmp_path / "latin.yaml", Part)
    (tmp_path / "big.yaml").write_bytes(b"#" * (17 << 20))
    with pytest.raises(DataError, match=r"big\.yaml: is larger than 16 MiB"):
        read_yaml(tmp_path / "big.yaml", Part)


def test_unknown_names_the_nearest_first():
    assert unknown("problem", "paged_atention", ["topk", "paged_attention"]) == (
        "unknown problem 'paged_atention': did you mean 'paged_attention'? (known: paged_attention, topk)"
    )
    h100 = ["h200", "h100-pcie", "gh200", "a-h100"]
    assert unknown("hardware", "H100", h100) == (
        "unknown hardware 'H100': did you mean 'h100-pcie'? (known: h100-pcie, a-h100, h200, gh200)"
    )
    assert "did you mean 'h100-nvl' or 'h100-pcie'?" in unknown("hardware", "h100", ["h200", "h100-pcie", "h100-nvl"])
    assert "did you mean 'claude-opus-4'?" in unknown("model", "opus", ["nop", "claude-opus-4"])
    assert unknown("model", "", ["nop"]) == "unknown model '' (known: nop)"
    assert unknown("problem", "zzz", ["topk"]) == "unknown problem 'zzz' (known: topk)"
    assert unknown("problem", "zzz", []) == "unknown problem 'zzz' (known: none)"


# Lone surrogates are in no valid UTF-8 file; pydantic refuses them in a record, so none can reach the writer.
hostile = st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(
    r"[-+]?[0-9_]*\.?[0-9]*([eE:][-+]?[0-9]+)?|(yes|no|on|off|null|~|true|\.inf|\.nan|0x1f|0o17|2026-01-02|<<|=|---|\.\.\.)?",
    fullmatch=True,
)
lines = st.lists(hostile, max_size=5).map("\n".join)


@given(
    st.builds(
        Texts,
        words=st.dictionaries(hostile, lines, max_size=4),
        lines=st.lists(lines, max_size=4),
        numbers=st.lists(st.floats(allow_nan=False)),
    )
)
@example(
    Texts(
        words={"": "", "a": "\n", "b": " x\n  y", "c": "x\n\n", "d": "\n x", "#": "# x\n\ty \n"},
        lines=("1e-3", "- a: b\n- c"),
        numbers=(1e-3,),
    )
)
def test_yaml_and_json_round_trip(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(to_yaml(texts), newline="")
    assert read_yaml(path, Texts) == texts
    assert to_yaml(read_yaml(path, Texts)) == to_yaml(texts)
    path.write_text(to_json(texts), newline="")
    assert read_json(path, Texts) == texts


def test_yaml_is_written_for_people():
    thing = Thing(
        name="t", text="one\n\n  two\n", sizes={"B": 1, "A": 2}, numbers=(1e-6, 2.0), note="1e-3", parts=(Part(size=1),)
    )
    assert to_yaml(thing) == (
        "name: t\nkind: left\ntext: |\n  one\n\n    two\nlive: false\nparts:\n- {size: 1, rate: 1.0}\nsizes: {B: 1, A: 2}\n"
        "note: '1e-3'\npair: [1, 2]\nnumbers: [1.0e-06, 2.0]\nwords: {}\n"
    )


def test_infinite_and_undefined_numbers_survive(tmp_path):
    thing = Thing(name="t", numbers=(math.inf, -math.inf, math.nan))
    for name, write, read in (("t.yaml", write_yaml, read_yaml), ("t.json", write_json, read_json)):
        write(tmp_path / name, thing)
        high, low, undefined = read(tmp_path / name, Thing).numbers
        assert (high, low) == (math.inf, -math.inf)
        assert math.isnan(undefined)


def test_score_is_read_by_its_verdict(tmp_path):
    times = Timings(build_s=0, check_s=0, benchmark_s=0, total_s=0)
    score = Rejected(problem="p", problem_digest="0", hardware="cpu", verdict="incorrect", message="wrong", timings=times)
    write_json(tmp_path / "score.json", score)
    assert read_json(tmp_path / "score.json", SCORE) == score


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"size": 1,}', r"t.json:1:\d+: not JSON: "),
        ('{"size": 1, "size": 2}', "t.json: size: is written twice"),
        ('{"size": 0}', r"t.json: size: should be greater than 0 \(got 0\)"),
        ("[" * 200_000, "t.json: nested too deep"),
    ],
)
def test_json_faults_name_file_and_place(tmp_path, text, fault):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DataError, match=fault):
        read_json(tmp_path / "t.json", Part)


def test_write_leaves_one_file_with_an_ordinary_mode(tmp_path):
    write_text(tmp_path / "a.txt", "é\r\n")
    write_text(tmp_path / "a.txt", "é\r\nb")
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.txt").read_bytes() == "é\r\nb".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "plain"]
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "x")
    assert not list(tmp_path.glob(".*.tmp")) + list(tmp_path.parent.glob(".*.tmp"))


def rewrite(path: Path, letter: str) -> None:
    for _ in range(100):
        write_text(path, letter * 100_000)


def test_readers_never_see_half_a_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "a" * 100_000)
    writers = [multiprocessing.get_context("spawn").Process(target=rewrite, args=(path, letter)) for letter in "bc"]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        text = path.read_text()
        assert len(text) == 100_000
        seen.add(frozenset(text))
    assert all(len(letters) == 1 for letters in seen)
    assert [writer.exitcode for writer in writers] == [0, 0]


def test_yaml_builds_no_python_objects():
    node, faults = strict_yaml.parse("a: !!python/name:os.system ''\nb: !!int '3'")
    assert node is not None
    assert node.data() == {"a": "", "b": "3"}
    assert len(faults) == 2
