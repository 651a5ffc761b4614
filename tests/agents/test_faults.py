"""Hostile agents beside an honest one, and arenas killed while agents run, by scripts/measure_faults.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import needs_sandbox

ROOT = Path(__file__).parents[2]
pytestmark = needs_sandbox


def measured(*words: str) -> list[str]:
    """The script's report, line by line."""
    done = subprocess.run(
        [sys.executable, "scripts/measure_faults.py", *words],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.timing
def test_honest_agents_finish_beside_hostile_ones():
    cells = ["honest 1", "fork bomb", "memory hog", "many files"]
    *played, host, left, _ = measured("load", "--cells", ",".join(cells), "--budget", "15")
    status = {line[:22].strip(): line[22:32].strip() for line in played}
    assert status["honest 1"] == "complete", played
    assert set(status) == set(cells)
    assert (median := re.search(r"median ([0-9.]+) ms", host)) and float(median[1]) < 100
    assert left == "left: nothing"


@pytest.mark.slow
@pytest.mark.timing
def test_nothing_is_left_of_a_killed_arena():
    """Alone, since it looks at all control groups: another test may have killed an arena together with its keeper."""
    counts, left, _ = measured("ended", "--count", "4")
    assert left == "left: nothing"
    assert re.fullmatch(r"4 kills, (\d) runs, of which interrupted: \1", counts)
