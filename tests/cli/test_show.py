"""Commands about runs: show, annotate, list, leaderboard, schema."""

import json
import shutil
from pathlib import Path

import pytest
from command import ROOT, RUN, Arena, copy
from records import trial, unsteady

from arena import catalog
from arena.files import documents
from arena.sandboxes import bwrap


@pytest.fixture(scope="session")
def nothing_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run that left nothing to score."""
    pytest.importorskip("torch")
    if reason := bwrap.missing():
        pytest.skip(reason)
    made = copy(tmp_path_factory.mktemp("nothing"))
    assert made(*RUN, "--model", "nop").code == 0
    return made.home


@pytest.fixture
def tested(arena: Arena, nothing_done: Path) -> Arena:
    """With that run in its home, which may be moved: nothing in it holds a path from the root."""
    shutil.copytree(nothing_done, arena.home)
    return arena


def test_show_prints_the_annotation(tested: Arena) -> None:
    [annotation] = tested.annotations
    shown = tested.json("show", annotation.stem)
    assert (shown["run_id"], shown["score"]["verdict"]) == (annotation.stem, "missing")
    done = tested("show", annotation.stem)
    assert (done.code, done.err) == (0, "")
    version = catalog.problem("paged_attention").version
    assert f"nop (builtin) on paged_attention v{version}, cpu, budget 2700 s" in done.out
    assert "verdict missing: there is no solution.py" in done.out
    for short in ("latest", annotation.stem[:8]):
        assert tested.json("show", short)["run_id"] == annotation.stem
    assert tested.refused("show", "").startswith("unknown run ''")
    error = tested.refused("show", annotation.stem[:-4] + "ffff")
    assert f"did you mean '{annotation.stem}'?" in error


def test_show_of_a_run_without_a_result(tested: Arena) -> None:
    (tested.runs[0] / "result.yaml").unlink()
    tested.annotations[0].unlink()
    run = tested.runs[0].name
    shown = tested.json("show", run)
    assert (shown["state"], shown["cell"]["model"], shown["events"][0]["kind"]) == ("unjudged", "nop", "created")
    assert f"{run} unjudged" in tested("show", run).out
    assert tested.refused("annotate", run, "-v", "clean", "-s", "x") == f"run {run} is unjudged: it has no annotation to review"


def test_show_and_the_board_mark_an_unsteady_score(arena: Arena) -> None:
    found = unsteady(trial(0.5, hardware="cpu"))
    (arena.home / "annotations").mkdir(parents=True)
    documents.write_yaml(arena.home / "annotations" / f"{found.run_id}.yaml", found)
    done = arena("show", found.run_id)
    assert done.code == 0, done.err
    assert "peak_fraction 0.5000 (geometric mean), unsteady" in done.out
    assert arena.json("show", found.run_id)["score"]["unsteady"]
    assert arena("leaderboard").code == 0
    board = arena.board()
    assert "0.50?± 1/1" in board["LEADERBOARD.md"].decode()
    [row] = json.loads(board["leaderboard.json"])["tables"][0]["rows"]
    assert row["entries"]["paged_attention v1"]["trials"][0]["unsteady"]


def test_list_shows_runs_known_only_by_annotation(tested: Arena) -> None:
    shutil.rmtree(tested.home / "workspaces")
    [row] = tested.json("list", "runs")
    assert (row["run"], row["state"], row["verdict"]) == (tested.annotations[0].stem, "committed", "missing")


def test_annotate_stores_the_review_and_renders(tested: Arena) -> None:
    [annotation] = tested.annotations
    run, machine = annotation.stem, annotation.read_text()
    review = ("-v", "interesting", "-s", "[red]It[/red] did\x1b[2J nothing", "-i", "Give it work.")
    quote = ("-q", "agent/stdout.jsonl:1-2", "-l", "all of it")
    done = tested.json("annotate", run, *review, *quote)["review"]
    assert done["quotes"][0]["text"] == (tested.runs[0] / "agent" / "stdout.jsonl").read_text().rstrip("\n")
    assert annotation.read_text().startswith(machine.partition("review:")[0])
    assert "interesting" in (tested.home / "leaderboard" / "leaderboard.json").read_text()
    shown = tested("show", run).out
    assert "review interesting: [red]It[/red] did[2J nothing" in shown
    assert "agent/stdout.jsonl:1-2 all of it" in shown
    assert "has lines 1 to 2" in tested.refused(
        "annotate", run, "-v", "clean", "-s", "x", "-q", "agent/stdout.jsonl:9", "-l", "y"
    )
    assert "give one --label with each --quote" in tested.refused("annotate", run, "-v", "clean", "-s", "x", "-q", "score.json:1")
    board = tested.board()
    assert tested("leaderboard").code == 0
    assert tested.board() == board
    assert tested.json("leaderboard") == json.loads(board["leaderboard.json"])


def test_schemas_are_current(shared: Arena, tmp_path: Path) -> None:
    assert shared("schema", "--out", str(tmp_path / "schemas")).code == 0
    fresh = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "schemas").iterdir()}
    assert fresh == kept, "run `arena schema --out docs/schemas`"
    one = shared("schema", "problem")
    assert json.loads(one.out) == json.loads(kept["problem.json"]) == json.loads(shared("schema").out)["problem"]
    assert "name" not in json.loads(kept["problem.json"])["required"]
