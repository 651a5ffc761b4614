"""`arena sweep` from the command line, in the real sandbox: what it plays, refuses, and goes on with."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from asking import asking
from command import Arena, copy, killed, needs_sandbox, until
from records import record
from stub import started
from sweeping import manifests, trials, verdicts, written

from arena import catalog
from arena.results import baselines
from arena.schema import BaselineLine

pytestmark = needs_sandbox


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.mark.slow
def test_every_trial_is_played_and_scored_once(arena: Arena) -> None:
    file = written(arena, trials=2, cell={"models": ["nop", "cheat/read_host"]}, place={"parallel": 2})
    done = arena("sweep", file, "--json")
    assert done.code == 0, done.err
    assert verdicts(arena) == {("nop", "paged_attention", "missing"): 2, ("cheat/read_host", "paged_attention", "crashed"): 2}
    assert {trial: len(runs) for trial, runs in trials(arena).items()} == {
        (model, "paged_attention", number): 1 for model in ("nop", "cheat/read_host") for number in (1, 2)
    }
    assert json.loads(done.out)["done"] == 4
    again = arena("sweep", "made")
    assert (again.code, len(arena.runs)) == (0, 4), "nothing is left to do"
    status = arena.json("sweep", "made", "--status")
    assert [trial["next"] for trial in status["trials"]] == ["done"] * 4
    # The first session ended while the second was at work: no score was taken meanwhile.
    events = [
        (event["at"], event["kind"], run.name)
        for run in arena.runs
        for event in map(json.loads, (run / "events.jsonl").read_text().splitlines())
        if event["kind"] in ("created", "collected", "reopened", "committed")
    ]
    at_work: set[str] = set()
    for _, kind, run in sorted(events):
        if kind == "created":
            at_work.add(run)
        elif kind == "collected":
            at_work.discard(run)
        elif kind == "reopened":
            assert not at_work


@pytest.mark.slow
def test_a_dry_run_starts_and_writes_nothing(arena: Arena) -> None:
    done = arena("sweep", written(arena, trials=3), "--dry-run")
    assert done.code == 0, done.err
    assert "1 cell, 3 trials of each, 3 in all" in done.out and "cost: none" in done.out
    assert "shows:" not in done.out, "one model alone"
    file = written(arena, trials=3, cell={"models": ["nop", "cheat/read_host"]})
    assert "shows: 3 trials of 1 problem tell two rows apart by a ratio of" in arena("sweep", file, "--dry-run").out
    shows = arena.json("sweep", file, "--dry-run")["shows"]
    assert (shows["problems"], shows["measured"]) == (1, False) and shows["ratio"] > 2
    assert not (arena.home / "sweeps").exists() and not arena.runs


@pytest.mark.slow
def test_the_file_of_a_sweep_from_options_is_kept(arena: Arena) -> None:
    words = ("sweep", "-m", "nop", "-p", "paged_attention", "-n", "2", "--name", "flags", "--hardware", "cpu", "--budget", "1m")
    assert arena(*words).code == 0
    assert yaml.safe_load((arena.home / "sweeps" / "flags" / "sweep.yaml").read_text())["trials"] == 2
    assert "is there already" in arena.refused(*words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cell": {"models": ["nop", "cluade"]}}, "unknown model 'cluade'"),
        ({"cell": {"models": ["nop", "builtin/nop"]}}, "is there twice"),
        ({"cell": {"problems": ["topk"]}}, "did you mean 'topk_bitonic'"),
        ({"cell": {"budget": "45"}}, "budget"),
        ({"trials": 0}, "trials"),
        ({"place": {"parallel": 4096}}, "GiB of memory"),
        ({"stops": {}}, "stops"),
        ({"stop": {"when": {"half_width": 0.2}}}, "0.2 is above 0.1"),
        ({"stop": {"when": {"p": 0.05}}}, "stop.when.p"),
    ],
)
def test_what_cannot_be_is_refused_before_any_session(arena: Arena, given: dict, words: str) -> None:
    assert words in arena.refused("sweep", written(arena, **given))
    assert not arena.runs


def test_a_name_or_a_file_that_is_not_there(arena: Arena) -> None:
    assert "neither a file nor a sweep" in arena.refused("sweep", "autumn")
    assert "give a file, the name of a sweep, or --problem, --name" in arena.refused("sweep", "-m", "nop")


@pytest.mark.slow
def test_a_problem_that_changed_ends_the_sweep(arena: Arena) -> None:
    file = written(arena, trials=2)
    assert arena("sweep", file).code == 0
    arena.edit("problems/paged_attention/hidden.py", lambda text: text + "\n")
    assert "problems/paged_attention has changed since run" in arena.refused("sweep", file)
    assert "is none of its cells any more" in arena.refused("sweep", written(arena, cell={"budget": "30s"}))


@pytest.mark.slow
def test_more_trials_later_are_the_same_sweep(arena: Arena) -> None:
    assert arena("sweep", written(arena)).code == 0
    assert arena("sweep", written(arena, trials=3)).code == 0
    assert verdicts(arena) == {("nop", "paged_attention", "missing"): 3}


@pytest.mark.slow
def test_a_cell_that_is_sure_enough_has_no_further_trial(arena: Arena) -> None:
    given = {"place": {"parallel": 1}}
    said = arena("sweep", written(arena, **given, trials=6, stop={"when": {"half_width": 0.1}}), "--dry-run").out
    assert (
        "once half_width 0.1 is reached, after 16 trials at least: never before all 6 are done; no naive kernel is known" in said
    )
    digest = catalog.problem_digest("paged_attention")
    version = catalog.problem("paged_attention").version
    line = BaselineLine(name="naive", title="t", verdict="passed", fraction=0.1, reference=True)
    found = record(hardware="cpu", problem_version=version, problem_digest=digest, lines=(line,))
    baselines.write(arena.home / "baselines", found)
    done = arena("sweep", written(arena, **given, trials=18, stop={"when": {"half_width": 0.1}}), limit_s=250)
    assert done.code == 0, done.err
    assert verdicts(arena) == {("nop", "paged_attention", "missing"): 16}
    status = arena("sweep", "made", "--status").out
    assert "16/18 sure enough" in status and "16 of 18 trials done, 2 spared by stop.when" in status and "no naive" not in status
    assert [trial["next"] for trial in arena.json("sweep", "made", "--status")["trials"]] == ["done"] * 16 + ["spared"] * 2


@pytest.mark.slow
def test_one_process_works_on_a_sweep(arena: Arena) -> None:
    arena.harness("sleeps", "python", "-c", "import time; time.sleep(600)")
    file = written(arena, cell={"models": ["sleeps-model"]})
    with killed(arena.start("sweep", file)) as process:
        until(lambda: arena.runs, "a session")
        assert "is at work already" in arena.refused("sweep", file)
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_first_interrupt_waits_for_the_sessions_at_work(arena: Arena) -> None:
    sleeps = 'import time; time.sleep(4); print(\'{"type": "end"}\')'
    model = arena.harness("sleeps", "python", "-c", sleeps)
    file = written(arena, trials=2, cell={"models": [model]}, place={"parallel": 1})
    with killed(arena.start("sweep", file)) as process:
        until(lambda: arena.runs and (arena.runs[0] / "work" / "TIME").exists(), "a session")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopping: 1 at work" in err and "the same command goes on" in err
    [run] = arena.runs
    assert (run / "session.json").exists() and not (run / "result.yaml").exists()
    assert [row["next"] for row in arena.json("sweep", "made", "--status")["trials"]] == ["judge", "play"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["playing", "judging"])
def test_a_killed_sweep_goes_on(arena: Arena, moment: str) -> None:
    file = written(arena, cell={"models": ["cheat/patch_clock"]})
    with killed(arena.start("sweep", file)) as process:
        until(lambda: arena.runs, "a session")
        [run] = arena.runs
        if moment == "judging":
            events = run / "events.jsonl"  # comes after the folder
            until(lambda: events.exists() and '"reopened"' in events.read_text(), "its judge")
            time.sleep(1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = arena("sweep", "made")
    assert done.code == 0, done.err
    assert verdicts(arena) == {("cheat/patch_clock", "paged_attention", "incorrect"): 1}
    played = [run for run in arena.runs if (run / "session.json").exists()]
    assert len(played) == 1, "no session is lost, and none counts twice"
    assert len(arena.runs) == 1 or moment == "playing"


@pytest.mark.slow
def test_an_account_at_fault_closes_its_route_and_no_other(arena: Arena, tmp_path: Path) -> None:
    with started(tmp_path / "stub.jsonl", "--mode", "no_credit") as stub:
        env = asking(arena, stub)
        done = arena("sweep", written(arena, trials=2, cell={"models": ["dry/m", "nop"]}, place={"parallel": 1}), env=env)
    assert done.code == 1, done.err
    assert "route stub is closed: " in done.err and "add credit at the provider" in done.err
    assert {trial: len(runs) for trial, runs in trials(arena).items()} == {
        ("m", "paged_attention", 1): 1,
        ("nop", "paged_attention", 1): 1,
        ("nop", "paged_attention", 2): 1,
    }


@pytest.mark.slow
def test_a_provider_that_fails_pauses_its_route(arena: Arena, tmp_path: Path) -> None:
    given = {"retry": {"provider_error": 1, "after": "1s"}, "stop": {"route_failures": 2, "pause": "2s"}}
    cell = {"models": ["dry/m"], "patience": "1s"}
    with started(tmp_path / "stub.jsonl", "--mode", "500") as stub:
        env = asking(arena, stub)
        done = arena("sweep", written(arena, trials=2, cell=cell, place={"parallel": 1}, **given), env=env)
        assert done.code == 1, done.err
        assert "no attempt counts, and no further one is allowed: m on paged_attention, trial 1; " in " ".join(done.err.split())
        assert "route stub is paused for 2s: 2 sessions in a row ended by its failure" in done.err
        assert {trial[2]: len(runs) for trial, runs in trials(arena).items()} == {1: 2, 2: 2}, "one more attempt each"
    entries = [
        entry
        for table in json.loads(arena.board()["leaderboard.json"])["tables"]
        for row in table["rows"]
        for entry in row["entries"].values()
    ]
    assert [entry["counted"] for entry in entries] == [0]


@pytest.mark.slow
@pytest.mark.parametrize(("priced", "done"), [(True, 3), (False, 2)], ids=["known", "unknown"])
def test_a_cost_cap_is_never_passed(arena: Arena, tmp_path: Path, priced: bool, done: int) -> None:
    """An answer costs 0.0001 USD, the second of a session twice as much. A session of unknown cost counts with all it may use."""
    cell = {"models": [{"model": "dry/m", "unpinned": True}], "max_cost": 0.0005}
    with started(tmp_path / "stub.jsonl", *([] if priced else ["--no-price"])) as stub:
        env = asking(arena, stub, broker=True, base_url=f"{stub.url}/api/v1")
        arena.edit("harnesses/dry.yaml", lambda text: text.replace("route: stub", "route: stub, provider: [any]"))
        given = {"trials": 9, "place": {"parallel": 2}, "stop": {"cost_usd": 0.0012}}
        assert "give max_cost" in arena.refused("sweep", written(arena, cell=cell | {"max_cost": None}, **given), env=env)
        ended = arena("sweep", written(arena, cell=cell, **given), "--json", env=env)
        assert ended.code == 3, ended.err
        state = json.loads(ended.out)
        assert state["done"] == done
        assert state["spent_usd"] == pytest.approx(stub.cost_usd() if priced else 0.0005 * done)
        assert state["spent_usd"] <= 0.0012


@pytest.mark.slow
def test_sessions_that_cannot_begin_are_given_up(arena: Arena) -> None:
    model = arena.harness("sleeps", "python", "-c", "import time; time.sleep(3)")
    file = written(arena, trials=2, cell={"models": [model]}, place={"parallel": 1}, retry={"interrupted": 1})
    with killed(arena.start("sweep", file)) as process:
        until(lambda: arena.runs, "the first session")
        arena.edit("harnesses/sleeps.yaml", lambda text: text + "\n")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert err.count("harness sleeps has changed since the sweep began") == 2, err
    assert len(arena.runs) == 1 and (arena.runs[0] / "result.yaml").exists()


def test_the_manifest_names_the_sweep(arena: Arena) -> None:
    assert arena("sweep", written(arena)).code == 0
    [(_, manifest)] = manifests(arena)
    assert manifest["sweep"] == {"name": "made", "trial": 1, "attempt": 1}
    assert (arena.home / "sweeps" / "made" / "children.log").exists()


@pytest.mark.slow
def test_no_session_starts_after_the_time_to_stop(arena: Arena) -> None:
    file = written(arena, stop={"at": "2020-01-01T00:00Z"})
    done = arena("sweep", file)
    assert (done.code, arena.runs) == (3, []) and "the same command goes on" in done.err
    assert "stop.at" in arena.refused("sweep", written(arena, stop={"at": "soon"}))
    assert "stop.at" in arena.refused("sweep", written(arena, stop={"at": "08:00:00"}), "--dry-run")


@pytest.mark.slow
def test_two_parts_of_a_sweep_are_the_whole(arena: Arena) -> None:
    file = written(arena, trials=3, cell={"models": ["nop"]})
    assert "give the part and their number" in arena.refused("sweep", file, "--shard", "3/2")
    assert "do not go together" in arena.refused("sweep", written(arena, stop={"cost_usd": 1}), "--shard", "1/2")
    file = written(arena, trials=3, cell={"models": ["nop"]})
    first = arena("sweep", file, "--shard", "1/2")
    assert first.code == 0 and len(arena.runs) == 2, first.err
    second = arena("sweep", file, "--shard", "2/2")
    assert second.code == 0, second.err
    assert {trial: len(runs) for trial, runs in trials(arena).items()} == {("nop", "paged_attention", n): 1 for n in (1, 2, 3)}
