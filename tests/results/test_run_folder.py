"""Run folders: names, order of writing, states, and what an agent gets."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest
from records import cell, folders, problem

from arena.errors import ArenaError, DataError
from arena.files.text import render
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.schema import Annotation, Rejected, Session, Timings


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


def test_a_run_holds_room_until_it_ends(tmp_path: Path) -> None:
    with run_folder.create(cell(), manifest={}, root=tmp_path / "runs") as run:
        assert run.room is not None
        held = []
        for keep_bytes in (run_folder.ROOM_BYTES, 1 << 20, 0, 1 << 20):
            run.free_room(keep_bytes)
            held.append(os.fstat(run.room.fileno()).st_blocks * 512)
        assert held[0] >= run_folder.ROOM_BYTES and 1 << 20 <= held[1] < 2 << 20 and held[2:] == [0, 0]
        # Without a name, so that a kill of arena leaves nothing of it.
        assert os.fstat(run.room.fileno()).st_nlink == 0
    assert run.room is None


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    refused = pytest.raises(ArenaError, match=r"runs: a run needs 8 MiB here .*: No space left")
    with refused, run_folder.create(cell(), manifest={}, root=tmp_path / "runs"):
        pass
    assert list((tmp_path / "runs").iterdir()) == []


def test_run_writes_its_files_in_order(tmp_path: Path) -> None:
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
        assert [state.state for state in run_folder.list_runs(tmp_path / "runs")] == ["running"]
        run.event("note", text="a\nb", number=1)
        run_folder.commit(run, annotation(run))
        assert [state.state for state in run_folder.list_runs(tmp_path / "runs")] == ["committed"]
    (state,) = run_folder.list_runs(tmp_path / "runs")
    assert (state.run, state.state, state.cell) == (run, "committed", cell())
    assert [event["kind"] for event in run_folder.read_events(run)] == ["created", "note", "committed"]
    assert datetime.fromisoformat(run_folder.read_events(run)[0]["at"]).tzinfo is not None


def test_run_that_raises_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run_folder.create(cell(), manifest={}, root=tmp_path):
        raise KeyboardInterrupt
    assert [state.state for state in run_folder.list_runs(tmp_path)] == ["interrupted"]


def test_killed_process_leaves_an_interrupted_run(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        sys.path[:0] = [{str(Path(__file__).parents[1])!r}, {str(Path(run_folder.__file__).parents[2])!r}]
        from records import cell
        from arena.results import run_folder
        with run_folder.create(cell(), manifest={{}}, root=Path({str(tmp_path)!r})) as run:
            print("ready", flush=True)
            time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert [state.state for state in run_folder.list_runs(tmp_path)] == ["running"]
        process.send_signal(signal.SIGKILL)
    assert [state.state for state in run_folder.list_runs(tmp_path)] == ["interrupted"]


def test_states_without_a_lock_or_a_manifest(tmp_path: Path) -> None:
    """A run copied from elsewhere has no lock; a stray folder is no run; a manifest of another version has no cell."""
    assert run_folder.list_runs(tmp_path / "nowhere") == []
    (tmp_path / "stray").mkdir()
    copied = tmp_path / "20250101T000000Z_x_y_z_0000"
    copied.mkdir()
    (copied / "manifest.json").write_text('{"schema_version": 99, "cell": {"other": 1}}')
    (state,) = run_folder.list_runs(tmp_path)
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
    assert [event["kind"] for event in run_folder.read_events(run)] == ["one"]
    with run.events.open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match=r"events\.jsonl: not one JSON object a line"):
        run_folder.read_events(run)


def test_fill_workspace_writes_only_public_facts(tmp_path: Path) -> None:
    given = folders(tmp_path)
    with run_folder.create(cell(), manifest={}, root=tmp_path / "runs") as run:
        prompt = run_folder.fill_workspace(run, problem(), "cpu", problem().shapes["cpu"], "some CPU", None, **given)
    names = {"reference.py", "check.py", "benchmark.py", "problem.json", "PROMPT.md", "rules"}
    assert {path.name for path in run.work.iterdir()} == names
    copies = sorted((run.work / "rules").iterdir())
    assert {path.name for path in copies} == {"acceptable.py", "forbidden.py", "name_resolution.py"}
    imported = {name for path in copies for name in re.findall(r"^from rules\.(\w+) import", path.read_text(), re.MULTILINE)}
    assert imported <= {path.stem for path in copies} and not any("arena" in path.read_text() for path in copies)
    assert prompt == run.work.joinpath("PROMPT.md").read_text() == "Addition on some CPU (cpu)\n- N = 16\n- N = 32\n"
    facts = json.loads(run.work.joinpath("problem.json").read_text())
    public = "bytes flops forbidden inputs latency name operator outputs profile shapes stress title tolerance"
    assert " ".join(sorted(facts)) == public
    assert facts["shapes"] == [{"N": 16}, {"N": 32}]
    assert (facts["flops"], facts["bytes"]) == ([16.0, 32.0], [192.0, 384.0])
    assert facts["inputs"][0] == {"name": "a", "shape": ["N"], "dtype": "float32", "note": ""}
    everything = b"".join(path.read_bytes() for path in run.work.rglob("*") if path.is_file())
    assert b"HIDDEN" not in everything and b"ORACLE" not in everything and str(tmp_path).encode() not in everything


def test_a_budget_in_words() -> None:
    assert [run_folder.duration(seconds) for seconds in (2700, 60, 90, 0.5)] == [
        "45 minutes",
        "1 minute",
        "90 seconds",
        "0.5 seconds",
    ]


@pytest.mark.parametrize(
    ("template", "words"),
    [("{{ problem.title }} {{ budget }}", "'budget' is undefined"), ("{{ problem.titel }}", "titel"), ("\n{% if %}", ":2:")],
)
def test_prompt_with_an_unknown_name_raises(template: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "prompt.md.j2").write_text(template)
    with pytest.raises(DataError, match=words) as error:
        render(tmp_path / "prompt.md.j2", problem=problem())
    assert "prompt.md.j2" in str(error.value)
