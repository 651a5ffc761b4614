"""Scores of snapshots: which are chosen, and that a run's own snapshots are scored."""

import hashlib
from pathlib import Path

import pytest
from command import RUN, Arena, needs_sandbox
from records import trial

from arena import catalog, curve
from arena.agents.snapshots import Stored
from arena.errors import UsageError


def snapshots(folder: Path, *texts: bytes) -> list[Stored]:
    found = []
    for number, text in enumerate(texts):
        path = folder / f"{number:08d}_{hashlib.sha256(text).hexdigest()[:8]}.py"
        path.write_bytes(text)
        found.append(Stored(float(number), path))
    return found


@pytest.mark.parametrize(
    ("most", "chosen"), [(1, [6]), (2, [0, 6]), (3, [0, 3, 6]), (4, [0, 2, 4, 6]), (7, [*range(7)]), (9, [*range(7)])]
)
def test_snapshots_are_spread_and_end_with_the_last(tmp_path: Path, most, chosen):
    found = snapshots(tmp_path, *(b"x = %d\n" % n for n in range(7)))
    assert [int(one.at_s) for one in curve.spread(found, most)] == chosen


def test_each_text_is_scored_once_at_its_first_time(tmp_path: Path):
    found = snapshots(tmp_path, b"a = 1\n", b"b = 1\n", b"a = 1\n", b"\xff", b"c = 1\n")
    assert [one.at_s for one in curve.first_of_each(found)] == [0.0, 1.0, 4.0]


def test_a_changed_problem_has_no_curve(tmp_path: Path):
    with pytest.raises(UsageError, match="has changed since"):
        curve.measure(trial(0.5), tmp_path, lambda *_: None, most=3)  # type: ignore[arg-type]


def test_a_run_without_snapshots_has_no_curve(tmp_path: Path):
    run = trial(0.5, problem_digest=catalog.problem_digest("paged_attention"))
    with pytest.raises(UsageError, match="has no snapshots here"):
        curve.measure(run, tmp_path, lambda *_: None, most=3)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_sandbox
def test_a_real_curve_is_on_the_page_and_in_no_table(arena: Arena, tmp_path: Path):
    arena.one_shape()
    assert arena(*RUN, limit_s=400).code == 0
    board = arena.board()
    done = arena("curve", "latest", "--most", "5", limit_s=400)
    assert done.code == 0, done.err
    [file] = arena.home.glob("curves/*.yaml")
    assert arena("leaderboard").code == 0 and arena.board() == board
    assert arena("site", "--out", str(tmp_path / "pages")).code == 0
    assert 'id="curve"' in (tmp_path / "pages" / "r" / f"{file.stem}.html").read_text()
