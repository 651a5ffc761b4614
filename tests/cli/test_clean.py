"""`arena clean`: what may go, and what never does."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import Arena
from records import trial

CELL = trial(0.5).cell.model_dump(mode="json")


def run(arena: Arena, name: str, *files: str, days: float = 40, sweep: str = "") -> Path:
    """A run folder with these files beside its manifest."""
    folder = arena.home / "workspaces" / name
    (folder / "work").mkdir(parents=True)
    place = {"sweep": {"name": sweep, "trial": 1, "attempt": 1}} if sweep else {}
    (folder / "manifest.json").write_text(json.dumps({"run_id": name, "cell": CELL, **place}))
    (folder / "work" / "big").write_bytes(b"x" * 100_000)
    (folder / "work" / "link").symlink_to("/etc/passwd")
    for file in ("lock", *files):
        (folder / file).write_text("")
    begun_s = time.time() - days * 86400
    os.utime(folder / "manifest.json", (begun_s, begun_s))
    return folder


@pytest.fixture
def kept(arena: Arena) -> Arena:
    """A home with runs of every kind; only `committed` and `interrupted` may go."""
    (arena.home / "annotations").mkdir(parents=True)
    (arena.home / "sweeps" / "grid").mkdir(parents=True)
    for name in ("committed", "young", "of_a_sweep"):
        (arena.home / "annotations" / f"{name}.yaml").write_text("")
    run(arena, "committed", "session.json", "result.yaml")
    run(arena, "interrupted")
    run(arena, "young", "result.yaml", days=20)
    run(arena, "unjudged", "session.json")
    run(arena, "unpublished", "result.yaml")
    run(arena, "of_a_sweep", "result.yaml", sweep="grid")
    return arena


@pytest.mark.slow
def test_clean_shows_what_it_would_free_and_deletes_nothing(kept: Arena) -> None:
    shown = kept.json("clean")
    assert shown["deleted"] is False
    assert [row["run"] for row in shown["runs"]] == ["committed", "interrupted"]
    assert all(0.1 <= row["mb"] < 0.2 for row in shown["runs"])
    done = kept("clean")
    assert "--yes deletes 2 run folders, 0.2 MB in " in done.out
    assert len(kept.runs) == 6
    assert [row["run"] for row in kept.json("clean", "--days", "10")["runs"]] == ["committed", "interrupted", "young"]


@pytest.mark.slow
def test_clean_deletes_with_yes_and_keeps_annotations(kept: Arena) -> None:
    before = {path: path.read_bytes() for path in kept.annotations}
    assert "deleted 2 run folders" in kept("clean", "--yes").out
    assert [path.name for path in kept.runs] == ["of_a_sweep", "unjudged", "unpublished", "young"]
    assert {path: path.read_bytes() for path in kept.annotations} == before
    assert Path("/etc/passwd").exists()
    assert kept("clean", "--yes").err == "no run folder is older than 30 days and may go\n"
    shutil.rmtree(kept.home / "sweeps" / "grid")
    assert [row["run"] for row in kept.json("clean")["runs"]] == ["of_a_sweep"]


def test_clean_keeps_a_run_at_work(kept: Arena) -> None:
    with (kept.home / "workspaces" / "interrupted" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [row["run"] for row in kept.json("clean", "--yes")["runs"]] == ["committed"]
    assert (kept.home / "workspaces" / "interrupted").exists()


@pytest.mark.slow
def test_clean_deletes_trees_as_deep_as_an_agent_can_make_them(arena: Arena) -> None:
    folder = run(arena, "deep")
    script = "import os\nos.chdir('work')\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')"
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
    assert [row["run"] for row in arena.json("clean", "--yes")["runs"]] == ["deep"]
    assert not folder.exists()
