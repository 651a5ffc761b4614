"""Run folders: names, order of writing, states, what an agent is given; and snapshots of a hostile workspace."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arena.agents.snapshots import Snapshots, stored
from arena.errors import ArenaError, DataError
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.schema import Annotation, Cell, Problem, Rejected, Session, Timings


def cell(**given) -> Cell:
    known = {
        "problem": "add",
        "problem_version": 1,
        "problem_digest": "0" * 64,
        "harness": "builtin",
        "harness_digest": "1" * 64,
        "model": "oracle",
        "hardware": "cpu",
        "budget_s": 60,
    }
    return Cell(**known | given)


def problem() -> Problem:
    return Problem.model_validate(
        {
            "schema_version": 1,
            "name": "add",
            "version": 1,
            "title": "Addition",
            "operator": "out = a + b",
            "inputs": [{"name": "a", "shape": ["N"], "dtype": "float32"}, {"name": "b", "shape": ["N"], "dtype": "float32"}],
            "outputs": [{"name": "out", "shape": ["N"], "dtype": "float32"}],
            "shapes": {"cpu": [{"N": 16}, {"N": 32}], "gpu": [{"N": 1 << 20}]},
            "tolerance": {"rel_fro": 1e-6, "row": 1e-6, "el": 1e-6},
            "work": {"flops": "N", "bytes": "12*N"},
            "distribution": "standard normal",
            "stress": ["very large values"],
            "forbidden": ["torch.add"],
        }
    )


def annotation(run: RunFolder) -> Annotation:
    timings = Timings(build_s=0, check_s=0, benchmark_s=0, total_s=0)
    return Annotation(
        run_id=run.run_id,
        arena_version="0",
        cell=cell(),
        session=Session(agent_status="complete", exit_code=0, started_at=datetime.now(UTC), elapsed_s=1.0, sandbox="bwrap"),
        submission=None,
        score=Rejected(
            problem="add",
            problem_digest="0" * 64,
            hardware="cpu",
            timings=timings,
            verdict="missing",
            message="there is no solution.py",
        ),
    )


def folders(tmp_path: Path) -> dict[str, Path]:
    """A problem's folder, with things in it that no agent may see, and a kit."""
    home, kit = tmp_path / "problems" / "add", tmp_path / "problems" / "kit"
    (home / "solutions").mkdir(parents=True)
    kit.mkdir()
    (home / "reference.py").write_text("# the reference\n")
    (home / "hidden.py").write_text("# HIDDEN\n")
    (home / "solutions" / "oracle.py").write_text("# ORACLE\n")
    (kit / "check.py").write_text("# check\n")
    (kit / "benchmark.py").write_text("# benchmark\n")
    (kit / "prompt.md.j2").write_text(
        "{{ problem.title }} on {{ machine }} ({{ profile }})\n{% for shape in shapes %}\n- N = {{ shape.N }}\n{% endfor %}\n"
    )
    return {"problem_folder": home, "kit_folder": kit}


def test_a_run_from_first_file_to_last(tmp_path: Path) -> None:
    with run_folder.create(cell(), manifest={"arena_version": "0"}, root=tmp_path / "runs") as run:
        assert {path.name for path in run.folder.iterdir()} == {
            "lock",
            "manifest.json",
            "events.jsonl",
            "agent",
            "work",
            "snapshots",
        }
        manifest = json.loads(run.manifest.read_text())
        assert manifest["run_id"] == run.run_id
        assert manifest["cell"]["model"] == "oracle"
        assert manifest["arena_version"] == "0"
        assert str(tmp_path) not in run.manifest.read_text()
        assert [state.state for state in run_folder.runs(tmp_path / "runs")] == ["running"]
        run.event("note", text="a\nb", number=1)
        run_folder.commit(run, annotation(run))
        assert [state.state for state in run_folder.runs(tmp_path / "runs")] == ["committed"]
    (state,) = run_folder.runs(tmp_path / "runs")
    assert (state.run, state.state, state.cell) == (run, "committed", cell())
    assert [event["kind"] for event in run_folder.events(run)] == ["created", "note", "committed"]
    assert datetime.fromisoformat(run_folder.events(run)[0]["at"]).tzinfo is not None


def test_a_run_that_raises_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run_folder.create(cell(), manifest={}, root=tmp_path):
        raise KeyboardInterrupt
    assert [state.state for state in run_folder.runs(tmp_path)] == ["interrupted"]


def test_a_killed_process_leaves_an_interrupted_run(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(run_folder.__file__).parents[2])!r}]
        from test_run_folder import cell
        from arena.results import run_folder
        with run_folder.create(cell(), manifest={{}}, root=Path({str(tmp_path)!r})) as run:
            print("ready", flush=True)
            time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert [state.state for state in run_folder.runs(tmp_path)] == ["running"]
        process.send_signal(signal.SIGKILL)
    assert [state.state for state in run_folder.runs(tmp_path)] == ["interrupted"]


def test_states_without_a_lock_or_a_manifest(tmp_path: Path) -> None:
    """A run copied from elsewhere has no lock; a stray folder is no run; a manifest of another version has no cell."""
    assert run_folder.runs(tmp_path / "nowhere") == []
    (tmp_path / "stray").mkdir()
    copied = tmp_path / "20250101T000000Z_x_y_z_0000"
    copied.mkdir()
    (copied / "manifest.json").write_text('{"schema_version": 99, "cell": {"other": 1}}')
    (state,) = run_folder.runs(tmp_path)
    assert (state.run.folder, state.state, state.cell) == (copied, "interrupted", None)


@pytest.mark.parametrize("model", ["oracle", "cheat/patch_timer", "../../etc/x y\n", "replay/" + "r" * 200, "模型/é"])
def test_run_ids_are_file_names(model: str, tmp_path: Path) -> None:
    ids = set()
    for _ in range(20):
        with run_folder.create(cell(model=model), manifest={}, root=tmp_path) as run:
            ids.add(run.run_id)
            assert run.folder.parent == tmp_path
    assert len(ids) == 20
    assert all(
        len(name) < 200 and set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") for name in ids
    )


def test_torn_last_event_is_left_out(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.event("one")
    with run.events.open("a") as file:
        file.write('{"at": "2025-01-01T00:0')
    assert [event["kind"] for event in run_folder.events(run)] == ["one"]
    with run.events.open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match=r"events\.jsonl: not one JSON object a line"):
        run_folder.events(run)


def test_fill_gives_the_public_facts_and_nothing_else(tmp_path: Path) -> None:
    given = folders(tmp_path)
    with run_folder.create(cell(), manifest={}, root=tmp_path / "runs") as run:
        prompt = run_folder.fill(run, problem(), "cpu", problem().shapes["cpu"], "some CPU", **given)
    assert {path.name for path in run.work.iterdir()} == {"reference.py", "check.py", "benchmark.py", "problem.json", "PROMPT.md"}
    assert prompt == run.work.joinpath("PROMPT.md").read_text() == "Addition on some CPU (cpu)\n- N = 16\n- N = 32\n"
    facts = json.loads(run.work.joinpath("problem.json").read_text())
    names = "bytes flops forbidden inputs latency name operator outputs outputs_given profile shapes stress title tolerance"
    assert " ".join(sorted(facts)) == names
    assert facts["shapes"] == [{"N": 16}, {"N": 32}]
    assert (facts["flops"], facts["bytes"]) == ([16.0, 32.0], [192.0, 384.0])
    assert facts["inputs"][0] == {"name": "a", "shape": ["N"], "dtype": "float32", "note": ""}
    everything = b"".join(path.read_bytes() for path in run.work.iterdir())
    assert b"HIDDEN" not in everything and b"ORACLE" not in everything and str(tmp_path).encode() not in everything


@pytest.mark.parametrize(
    ("template", "words"),
    [("{{ problem.title }} {{ budget }}", "'budget' is undefined"), ("{{ problem.titel }}", "titel"), ("\n{% if %}", ":2:")],
)
def test_a_prompt_with_an_unknown_name_is_refused(template: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "prompt.md.j2").write_text(template)
    with pytest.raises(DataError, match=words) as error:
        run_folder.render_prompt(tmp_path / "prompt.md.j2", problem=problem())
    assert "prompt.md.j2" in str(error.value)


def watch(tmp_path: Path, **limits) -> tuple[Path, Path, list[tuple[str, dict]], Snapshots]:
    work, kept, said = tmp_path / "work", tmp_path / "snapshots", []
    work.mkdir()
    kept.mkdir()
    return work, kept, said, Snapshots(work, kept, lambda kind, **data: said.append((kind, data)), period_s=0.05, **limits)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_snapshots_keep_each_state_with_its_time(tmp_path: Path) -> None:
    work, kept, said, snapshots = watch(tmp_path)
    with snapshots:
        for number, states in (
            (1, 1),
            (2, 2),
            (2, 2),
            (1, 3),
        ):  # the same content written anew is no new state; going back to it is one
            (work / "solution.py").write_text(f"x = {number}\n")
            until(lambda states=states: snapshots.count == states)
            time.sleep(0.2)
        (work / "solution.py").write_text("x = 4\n")  # caught by the last look
    assert [item.path.read_text() for item in stored(kept)] == ["x = 1\n", "x = 2\n", "x = 1\n", "x = 4\n"]
    assert snapshots.count == 4
    assert not said
    times = [item.at_s for item in stored(kept)]
    assert times == sorted(times)
    assert times[0] < 1 and 0.8 <= times[-1] < 10
    assert all(len(item.path.name) == len("00001000_01234567.py") for item in stored(kept))


def test_a_torn_snapshot_is_left_out(tmp_path: Path) -> None:
    work, kept, _, snapshots = watch(tmp_path)
    (work / "solution.py").write_text("x = 1\n")
    with snapshots:
        pass
    (kept / "00000500_01234567.py").write_text("x =")
    assert [item.path.read_text() for item in stored(kept)] == ["x = 1\n"]


@pytest.mark.parametrize(("limits", "count"), [({"max_count": 2}, 2), ({"max_bytes": 13}, 2)])
def test_snapshots_stop_at_their_cap(limits: dict[str, int], count: int, tmp_path: Path) -> None:
    work, kept, said, snapshots = watch(tmp_path, **limits)
    with snapshots:
        for number in range(4):
            (work / "solution.py").write_text(f"x = {number}\n")
            time.sleep(0.2)
    assert len(list(kept.iterdir())) == count
    assert [kind for kind, _ in said] == ["snapshots_full"]


@pytest.mark.timeout(20)
def test_snapshots_of_a_hostile_workspace(tmp_path: Path) -> None:
    work, kept, said, snapshots = watch(tmp_path)
    file = work / "solution.py"
    with snapshots:
        file.symlink_to("/etc/passwd")
        time.sleep(0.2)
        file.unlink()
        os.mkfifo(file)
        time.sleep(0.2)
        file.unlink()
        with file.open("wb") as sparse:
            sparse.truncate(10 << 30)
        time.sleep(0.2)
        file.unlink()
        file.mkdir()
    assert not list(kept.iterdir())
    assert not said


def test_snapshots_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    work, kept, _, snapshots = watch(tmp_path)
    (work / "solution.py").write_text("x = 1\n")
    with pytest.raises(ArenaError, match="snapshots cannot be kept: No such file or directory"), snapshots:
        kept.rmdir()
