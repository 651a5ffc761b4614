"""The judge without an agent: score and calibrate."""

import json
import os
import re
from pathlib import Path

import pytest
from busy import spinning
from command import Arena, needs_sandbox

from arena.system import load


@pytest.mark.slow
@needs_sandbox
def test_score_of_an_unacceptable_file(arena: Arena, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    link, broken = tmp_path / "link.py", tmp_path / "real" / "broken.py"
    broken.parent.mkdir()
    broken.write_text("def f(:\n")
    link.symlink_to(broken)
    (tmp_path / "folder").symlink_to(broken.parent)
    problem = ("-p", "paged_attention", "--hardware", "cpu")
    assert arena.json("score", str(broken), *problem)["message"] == "solution.py does not parse: line 1: invalid syntax"
    assert arena.json("score", str(tmp_path / "folder" / "broken.py"), *problem)["verdict"] == "crashed"
    assert arena.json("score", str(broken.parent), *problem)["message"] == "real is a directory; only a regular file is taken"
    done = arena("score", str(link), *problem)
    assert (done.code, done.out) == (0, "")
    assert "verdict missing: link.py is a symbolic link; only a regular file is taken" in done.err


@pytest.mark.slow
@needs_sandbox
def test_score_exits_1_when_the_judge_failed(arena: Arena) -> None:
    pytest.importorskip("torch")
    arena.edit("problems/paged_attention/hidden.py", lambda text: text.replace("INPUT_CLASSES", "MOODS"))
    score = arena.json("score", str(arena.solution("fine", "x = 1\n")), "-p", "paged_attention", "--hardware", "cpu", code=1)
    assert score["verdict"] == "judge_failed"


@pytest.mark.slow
def test_calibrate_refuses_while_others_use_the_machine(shared: Arena, tmp_path: Path) -> None:
    with spinning(2 * len(os.sched_getaffinity(0))):
        error = shared.refused("calibrate", "--hardware", "cpu", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert re.match(r"other processes use \d+\.\d of \d+ processors: .*\(pid \d+\) ", error)
    assert error.endswith("What is measured now would be too slow: end them or wait, then calibrate again")
    assert not (tmp_path / "arena").exists()


@pytest.mark.slow
def test_calibrate_measures_and_stores_the_cpu(shared: Arena, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if (seen := load.look()).busy:
        pytest.skip(seen.share())
    done = shared("calibrate", "--hardware", "cpu", "--json", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["bandwidth_gb_s"] > 0
    assert set(found["tflops"]) == {"fp32", "bf16"}
    assert len(list((tmp_path / "arena" / "calibration").iterdir())) == 1
