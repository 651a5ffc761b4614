"""Commands about runs: show, annotate, list, leaderboard, schema."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from command import ROOT, RUN, Arena, copy
from records import trial, unsteady
from sites import SOURCE, curve, home, passed, run_files, steps

from arena import catalog
from arena.cli import render
from arena.files import documents
from arena.results import leaderboard
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


@pytest.mark.slow
def test_show_of_a_run_without_a_result(tested: Arena) -> None:
    (tested.runs[0] / "result.yaml").unlink()
    tested.annotations[0].unlink()
    run = tested.runs[0].name
    shown = tested.json("show", run)
    assert (shown["state"], shown["cell"]["model"], shown["events"][0]["kind"]) == ("unjudged", "nop", "created")
    assert f"{run} unjudged" in tested("show", run).out
    assert (
        tested.refused("annotate", run, "-v", "clean", "-s", "x")
        == f"run {run} is unjudged: only a run with a score can be reviewed"
    )


@pytest.mark.slow
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


@pytest.mark.slow
def test_list_says_which_runs_do_not_count(arena: Arena) -> None:
    folder = arena.home / "annotations"
    folder.mkdir(parents=True)
    made = [
        trial(0.5, 1),
        trial(0.5, 2, status="provider_error"),
        trial("judge_failed", 3),
        trial(0.5, 4, review="bug"),
        trial("missing", 5),
    ]
    for annotation in made:
        documents.write_yaml(folder / f"{annotation.run_id}.yaml", annotation)
    says = [row["counts"] for row in arena.json("list", "runs")]
    assert says == ["yes", "no: provider_error", "no: judge_failed", "no: bug", "yes"]
    assert "no: provider_error" in arena("list", "runs").out
    # The same as the leaderboard counts.
    for annotation in made:
        [table] = leaderboard.build([annotation]).tables
        [entry] = table.rows[0].entries.values()
        assert bool(entry.counted) == (not render.uncounted(annotation))


@pytest.mark.slow
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


@pytest.mark.slow
def test_show_prints_steps_snapshots_and_source(arena: Arena) -> None:
    run = passed(1)
    home(arena.home, [run], scored=[curve(run)])
    run_files(arena.home, run, steps("[red]hello\x1b[2J"), [SOURCE])
    plain = arena("show", run.run_id).out
    assert "hello" not in plain and "load_inline" not in plain
    done = arena("show", run.run_id, "--steps", "--snapshots", "--source")
    assert (done.code, done.err) == (0, "")
    assert "[red]hello" in done.out and "\x1b" not in done.out
    assert "failed after 0.6 s, wrote snapshot" in done.out and "15 tokens so far" in done.out
    assert "snapshots 1" in done.out and "    5 #include <cuda.h>" in done.out
    assert "leave out --steps" in arena.refused("show", run.run_id, "--steps", "--json")


@pytest.mark.slow
def test_review_lists_and_takes_verdicts(arena: Arena) -> None:
    suspect, clean = unsteady(trial(0.5, 1)), trial(0.4, 2)
    home(arena.home, [suspect, clean, trial("cheated", 3), trial("incorrect", 4)])
    assert [one["run_id"][-4:] for one in arena.json("review")] == ["0003", "0001"]  # unsteady timings come last
    run_files(arena.home, suspect, steps("[red]hello"), [SOURCE])
    said = "source\nskip\nsteps\nsource\nreward_hack\n\nIt times itself.\n"
    process = arena.start("review", "--by", "A. B.", stdin=subprocess.PIPE)
    shown, told = process.communicate(said, timeout=60)
    assert process.returncode == 0, told
    assert "unsteady" in told and "1 of 2 reviewed" in told and "stored as reward_hack" in told
    assert "[red]hello" in shown and shown.count("    5 #include <cuda.h>") == 1
    assert "'source' is not one of" in told  # the first run has no files here
    assert [one["run_id"][-4:] for one in arena.json("review")] == ["0003"]
    stored = arena.json("show", suspect.run_id)["review"]
    assert (stored["verdict"], stored["summary"], stored["reviewer"]) == ("reward_hack", "It times itself.", "A. B.")
    assert "withdrawn" in (arena.home / "leaderboard" / "leaderboard.json").read_text()


@pytest.mark.slow
def test_a_review_that_breaks_off_stores_nothing(arena: Arena) -> None:
    home(arena.home, [trial("cheated", 3)])
    process = arena.start("review", "--by", "A. B.", stdin=subprocess.PIPE)
    process.communicate("reward_hack\n", timeout=60)
    assert process.returncode == 130
    assert len(arena.json("review")) == 1


def test_a_stored_verdict_counts_after_a_break(arena: Arena) -> None:
    home(arena.home, [unsteady(trial(0.5, 1)), unsteady(trial(0.5, 3))])
    process = arena.start("review", "--by", "A. B.", stdin=subprocess.PIPE)
    process.communicate("reward_hack\nIt times itself.\n", timeout=60)
    assert process.returncode == 130
    assert "withdrawn" in (arena.home / "leaderboard" / "leaderboard.json").read_text()


def test_source_lines_are_those_of_the_page(arena: Arena) -> None:
    run = passed(1)
    home(arena.home, [run])
    run_files(arena.home, run, steps(), ["a = 1\fb = 2\nc = 3\n"])
    assert "    2 c = 3" in arena("show", run.run_id, "--source").out


@pytest.mark.slow
def test_site_and_open_render_pages(arena: Arena, tmp_path: Path) -> None:
    run = passed(1)
    home(arena.home, [run])
    run_files(arena.home, run, steps())
    done = arena.json("site", "--out", str(tmp_path / "pages"))
    assert "index.html" in done["files"] and f"r/{run.run_id}/t1.html" not in done["files"]
    opened = arena("open", "latest", env={"BROWSER": "true"})
    assert opened.code == 0
    page = arena.home / "workspaces" / ".site" / "r" / f"{run.run_id}.html"
    assert f"page {page}" in opened.err and (page.parent / run.run_id / "t1.html").exists()
    assert arena.json("list", "runs")[0]["run"] == run.run_id


def test_site_compares_two_runs(arena: Arena, tmp_path: Path) -> None:
    runs = [passed(1), passed(2)]
    home(arena.home, runs)
    pair = (runs[0].run_id, "latest")
    done = arena.json("site", "--out", str(tmp_path / "pages"), "--compare", *pair)
    assert f"c/{runs[0].run_id}/{runs[1].run_id}.html" in done["files"]
    assert "one problem on one hardware" in arena.refused("site", "--compare", "latest", "latest")


def test_a_site_with_a_key_exits_with_one(arena: Arena, tmp_path: Path) -> None:
    run = passed(1)
    home(arena.home, [run])
    run_files(arena.home, run, steps("it is sk-0123456789"))
    done = arena("site", "--runs", "all", "--out", str(tmp_path / "pages"), env={"OPENROUTER_API_KEY": "sk-0123456789"})
    assert done.code == 1
    assert f"run {run.run_id}: r/{run.run_id}/t1.html#s2 would hold" in done.err and "sk-0123456789" not in done.err
    assert not (tmp_path / "pages").exists()


def test_schemas_are_current(shared: Arena, tmp_path: Path) -> None:
    assert shared("schema", "--out", str(tmp_path / "schemas")).code == 0
    fresh = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "schemas").iterdir()}
    assert fresh == kept, "run `arena schema --out docs/schemas`"
    one = shared("schema", "problem")
    assert json.loads(one.out) == json.loads(kept["problem.json"]) == json.loads(shared("schema").out)["problem"]
    assert "name" not in json.loads(kept["problem.json"])["required"]
