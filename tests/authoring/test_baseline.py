"""`arena baseline`: libraries are timed as the judge times, stored apart from every score, and shown beside them."""

import ast
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")

from command import Arena, copy, needs_sandbox
from records import record, trial

from arena import __version__ as version
from arena import catalog, paths
from arena.authoring import baseline
from arena.errors import DataError
from arena.results import baselines, leaderboard
from arena.results.render import figure, page
from arena.schema import BaselineLine, Profile

ROUGH = "\n\nexact = solution\n\n\ndef solution(*tensors):\n    exact(*tensors)\n    tensors[-1].mul_(1.05)\n"
FRAIL = "\n\nexact = solution\n\n\ndef solution(*tensors):\n    assert tensors[3].max() > 1\n    exact(*tensors)\n"
MEASURE = """
from arena import catalog, paths
from arena.authoring import baseline
from arena.results import baselines
from arena.judge.sampling import Sampling
from arena.sandboxes import bwrap
sampling = Sampling(processes=1, min_windows=3, max_windows=3)
record = baseline.measure(catalog.problem("paged_attention"), catalog.hardware("cpu"), bwrap, sampling=sampling)
baselines.write(paths.baselines(), record)
print(record.model_dump_json())
"""


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """A problem with one shape and no baselines."""
    made = copy(tmp_path)
    made.one_shape()
    for path in folder(made).iterdir():
        path.unlink()
    return made


def folder(arena: Arena) -> Path:
    return arena.solutions.parent / "baselines"


def eager() -> str:
    return (paths.problems() / "paged_attention" / "baselines" / "eager.py").read_text()


@needs_sandbox
@pytest.mark.slow
def test_baselines_are_measured_stored_and_shown(arena: Arena) -> None:
    (folder(arena) / "eager.py").write_text(eager())
    (folder(arena) / "frail_cpu.py").write_text("# baseline: crashes on a hidden class\n" + eager() + FRAIL)
    (folder(arena) / "library.py").write_text("# baseline: a library\n# needs: torch, no_such_library\n" + eager())
    (folder(arena) / "needy.py").write_text("# baseline: another\n# needs: iniconfig\nimport iniconfig\n" + eager())
    (folder(arena) / "of_a_gpu_gpu.py").write_text("# baseline: not for a processor\n")
    (folder(arena) / "rough.py").write_text("# baseline: off by a twentieth\n" + eager() + ROUGH)
    (folder(arena) / "syntax.py").write_text("# baseline: no Python\ndef solution(:\n")
    done = arena.python(MEASURE, limit_s=240)
    assert done.code == 0, done.err
    found = {line["name"]: line for line in json.loads(done.out)["lines"]}
    assert list(found) == ["eager", "frail", "library", "needy", "rough", "syntax", "naive", "oracle"]
    assert {name for name, line in found.items() if line["reference"]} == {"naive", "oracle"}
    assert {name: line["verdict"] for name, line in found.items()} == {
        "eager": "passed",  # though it calls what the problem forbids
        "frail": "crashed",
        "library": None,
        "needy": "passed",
        "rough": "incorrect",
        "syntax": "crashed",
        "naive": "passed",
        "oracle": "passed",
    }
    numbers = {name for name, line in found.items() if line["fraction"] is not None}
    assert numbers == {"eager", "frail", "needy", "rough", "naive", "oracle"}
    assert found["naive"]["fraction"] < found["oracle"]["fraction"]
    assert found["library"]["message"] == "no_such_library is not installed"
    assert "AssertionError" in found["frail"]["message"]
    assert found["rough"]["error"]["rel_fro"] == pytest.approx(0.05, rel=0.1)
    [shape] = found["eager"]["shapes"]
    assert shape["fraction"] == pytest.approx(shape["ceiling_s"] / shape["measured_s"])

    stored = arena.home / "baselines" / "cpu" / "paged_attention.yaml"
    assert baselines.read(stored).model_dump(mode="json") == json.loads(done.out)
    before = {line.name: line for line in baselines.read(stored).lines}
    again = arena("baseline", "paged_attention", "--hardware", "cpu", "--line", "naive", limit_s=240)
    assert again.code == 0, again.err
    after = {line.name: line for line in baselines.read(stored).lines}
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {"naive"}
    assert arena("leaderboard").code == 0
    page = arena.board()["LEADERBOARD.md"].decode()
    assert "Nothing has been run yet." in page
    assert f"eager: torch SDPA, one sequence's gathered pages at a time | {figure(found['eager']['fraction'])} | inside |" in page


def test_an_unknown_line_lists_the_known_ones(arena: Arena) -> None:
    (folder(arena) / "eager.py").write_text(eager())
    said = arena.refused("baseline", "paged_attention", "--hardware", "cpu", "--line", "egaer")
    assert said == "paged_attention has no line 'egaer' on cpu (known: eager, naive, oracle)"


@pytest.mark.slow
def test_a_line_is_not_added_to_those_of_an_older_text(arena: Arena) -> None:
    stored = baselines.write(arena.home / "baselines", record(hardware="cpu"))
    before = stored.read_bytes()
    said = arena.refused("baseline", "paged_attention", "--hardware", "cpu", "--line", "naive")
    assert said.endswith(
        "cpu/paged_attention.yaml: is of an older text of paged_attention: measure all lines again, without --line"
    )
    assert stored.read_bytes() == before


@pytest.mark.slow
def test_a_line_is_not_added_to_those_of_other_versions(arena: Arena) -> None:
    digest = catalog.problem_digest("paged_attention", arena.tree / "problems")
    old = record(hardware="cpu", arena_version=version, versions={"torch": "1.0"}).model_copy(update={"problem_digest": digest})
    stored = baselines.write(arena.home / "baselines", old)
    said = arena.refused("baseline", "paged_attention", "--hardware", "cpu", "--line", "naive")
    assert said.startswith(f"{stored}: was measured with torch 1.0, not ")
    assert said.endswith(": measure all lines again, without --line")
    assert baselines.read(stored) == old


NAIVE = BaselineLine(name="naive", title="n", verdict="passed", fraction=0.1, reference=True)
ABSENT = BaselineLine(name="rough", title="a rough one", verdict=None, message="rough is not installed")
CARD = {"name": "H200", "bandwidth_gb_s": 4800.0, "tflops": {}, "ceilings": "datasheet"}


def test_added_lines_replace_unless_they_did_not_run() -> None:
    faster = BaselineLine(name="eager", title="torch | eager", verdict="passed", fraction=0.3)
    fresh = record(lines=(NAIVE, faster, ABSENT), versions={"triton": "3.6.0"}, measured_at="2026-02-03T00:00:00Z")
    found = baselines.added(record(), fresh)
    assert [(line.name, line.fraction) for line in found.lines] == [("eager", 0.3), ("lib", None), ("rough", 0.5), ("naive", 0.1)]
    assert (found.versions, found.measured_at) == ({"torch": "2.13.0", "triton": "3.6.0"}, fresh.measured_at)


def test_lines_that_did_not_run_change_nothing_else() -> None:
    new = BaselineLine(name="new", title="x", verdict=None, message="x is not installed")
    found = baselines.added(record(), record(lines=(ABSENT, new), versions={"torch": "2.14.0"}))
    assert found == record(lines=(*record().lines[::2], new, record().lines[1]))


@pytest.mark.parametrize(("uuid", "kept"), [("GPU-1", "GPU-1"), ("GPU-2", None)])
def test_lines_of_two_cards_name_neither(uuid: str, kept: str | None) -> None:
    found = baselines.added(record(device=CARD | {"uuid": "GPU-1"}), record(lines=(NAIVE,), device=CARD | {"uuid": uuid}))
    assert found.device is not None and (found.device.name, found.device.uuid) == ("H200", kept)


def test_a_line_whose_file_is_gone_is_dropped(tmp_path: Path) -> None:
    baselines.write(tmp_path, record())
    found = baselines.add(tmp_path, record(lines=(NAIVE,)), ["eager", "rough", "naive"])
    assert [line.name for line in found.lines] == ["eager", "rough", "naive"]
    assert baselines.read_all(tmp_path) == [found]


def test_lines_that_end_at_once_are_all_kept(tmp_path: Path) -> None:
    names = [f"line_{number:02}" for number in range(24)]

    def add(name: str) -> None:
        line = BaselineLine(name=name, title="x", verdict="passed", fraction=0.1)
        baselines.add(tmp_path, record(lines=(line,)), names)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, names))
    assert [line.name for line in baselines.read_all(tmp_path)[0].lines] == names


@pytest.mark.slow
def test_unknown_problems_list_the_known_ones(arena: Arena) -> None:
    assert arena.refused("baseline").startswith("name the problems to measure, or --all (known: fp8_gemm, ")
    assert arena.refused("baseline", "paged_atention").startswith("unknown problem 'paged_atention': did you mean")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def solution(): ...\n", ":1: must read `# baseline: <title>`"),
        ("# baseline: \n", ":1: must read `# baseline: <title>`"),
        ("", ":1: must read `# baseline: <title>`"),
        ("# baseline: x\n# needs: a, b c\n", ":2: 'b c' is not a package name"),
    ],
)
def test_a_malformed_head_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    path = tmp_path / "baselines" / "line.py"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        baseline.lines(tmp_path, "cpu")
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_baseline_does_not_take_a_reference_s_name(tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "naive.py").write_text("# baseline: x\n")
    with pytest.raises(DataError, match="may not be called naive"):
        baseline.lines(tmp_path, "cpu")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", catalog.problems())
def test_every_problem_has_its_references(name: str, profile: Profile) -> None:
    assert [line.name for line in baseline.references(paths.problems() / name, profile)] == ["naive", "oracle"]


@pytest.mark.parametrize("name", catalog.problems())
def test_every_problem_has_its_baselines(name: str) -> None:
    home = paths.problems() / name
    cpu, gpu = ({line.name: line for line in baseline.lines(home, profile)} for profile in ("cpu", "gpu"))
    assert "eager" in cpu
    assert {"eager", "compiled"} <= gpu.keys()
    for line in (*cpu.values(), *gpu.values()):
        tree = ast.parse(line.path.read_text())
        assert "solution" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, line.path


def test_baselines_leave_the_problems_digest_alone(arena: Arena) -> None:
    assert catalog.problem_digest("kda_cutlass", arena.tree / "problems") == catalog.problem_digest("kda_cutlass")
    before = catalog.problem_digest("paged_attention", arena.tree / "problems")
    (folder(arena) / "eager.py").write_text(eager())
    assert catalog.problem_digest("paged_attention", arena.tree / "problems") == before


def test_a_baseline_has_no_rules_and_no_tolerance() -> None:
    problem = catalog.problem("kahan_softmax")
    assert (baseline.without_rules(problem).forbidden, baseline.without_rules(problem).forbidden_kernels) == ((), ())
    assert baseline.without_rules(problem).tolerance == problem.tolerance
    assert set(baseline.without_tolerance(problem).tolerance.values()) == {float("inf")}


def test_a_record_is_written_and_read(tmp_path: Path) -> None:
    records = [record(hardware="cpu"), record(hardware="cpu", problem="top_k"), record()]
    for entry in reversed(records):
        assert baselines.write(tmp_path, entry) == tmp_path / entry.hardware / f"{entry.problem}.yaml"
    assert baselines.read_all(tmp_path) == records
    assert baselines.read_all(tmp_path / "nowhere") == []
    (tmp_path / "h200" / "paged_attention.yaml").rename(tmp_path / "h200" / "other.yaml")
    with pytest.raises(
        DataError, match=r"other\.yaml: holds 'paged_attention' on 'h200', which belongs in h200/paged_attention.yaml"
    ):
        baselines.read_all(tmp_path)


@pytest.mark.parametrize("given", [{"verdict": "passed"}, {"verdict": "incorrect", "fraction": 0.5}, {"verdict": None}])
def test_a_line_without_a_passing_number_says_why(given: dict) -> None:
    with pytest.raises(ValueError, match=r"fraction: a passed|message: must say"):
        BaselineLine(name="x", title="x", **given)


def test_the_leaderboard_shows_and_never_scores_them() -> None:
    board = leaderboard.build([trial(0.2)], [record()])
    (table,) = board.tables
    assert [best.trial.peak_fraction for best in table.best] == [0.2], "a baseline of 0.25 is no result"
    assert (len(table.rows), board.trials) == (1, 1)
    text = page(board)
    assert "| paged_attention v1 | eager: torch \\| eager | 0.25 | inside | – | 2026-01-02 |" in text
    assert "| rough: a rough one | 0.50 | speed only |" in text
    assert "| lib: a library | – | absent: lib is not installed |" in text


def test_another_digest_gets_a_column_of_its_own() -> None:
    (table,) = leaderboard.build([trial(0.2)], [record(digest="c"), record("top_k")]).tables
    assert [reached.column for reached in table.reached] == ["paged_attention v1 (cccccccc)", "top_k v1"]


def test_hardware_that_only_baselines_know() -> None:
    board = leaderboard.build([trial(0.2)], [record(hardware="b200")])
    assert [(table.hardware, len(table.rows), len(table.reached)) for table in board.tables] == [("b200", 0, 1), ("h200", 1, 0)]
    b200 = page(board).partition("## b200")[2].partition("## h200")[0]
    assert "Baselines, never scored" in b200
    assert "All trials" not in b200


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    trials = [trial(0.2, n) for n in range(3)]
    records = [record(problem, hardware) for problem in ("a", "b", "c") for hardware in ("cpu", "h200")]
    leaderboard.write(tmp_path / "one", trials, records)
    random.Random(1).shuffle(records)
    leaderboard.write(tmp_path / "two", trials, iter(records))
    for name in ("LEADERBOARD.md", "leaderboard.json", "cpu.svg", "h200.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
