"""A sweep that is killed again and again ends as one that was not. `python tests/sweep/test_killed_sweeps.py` makes 10 kills."""

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from command import Arena, alive, copy, killed, needs_sandbox, until  # noqa: E402
from sweeping import trials, verdicts, written  # noqa: E402

from arena.results import run_folder  # noqa: E402

VERDICTS = {
    "nop": "missing",
    "cheat/patch_clock": "incorrect",
    "cheat/read_host": "crashed",
    "cheat/lazy_tensor": "incorrect",
    "cheat/forge_reply": "cheated",
    "cheat/exit_zero": "crashed",
}


def at_work(arena: Arena) -> Counter[str]:
    """How many runs of the sweep are in their session, and in their judge."""
    running = [state.run for state in run_folder.list_runs(arena.home / "workspaces") if state.state == "running"]
    return Counter("judge" if run.session.exists() else "session" for run in running)


def kill_and_go_on(arena: Arena, models: list[str], count: int, kills: int, seed: int) -> dict[str, int]:
    """Kill the sweep at random moments, go on each time, and check what is left. How many kills met what.

    Every third kill waits for a judge at work, and comes within a second and a half of its start; the others come at any moment.
    """
    chance = random.Random(seed)
    file = written(arena, trials=count, cell={"models": models}, place={"parallel": 2})
    met = Counter({"at work": 0, "session": 0, "judge": 0})
    for number in range(kills):
        with killed(arena.start("sweep", file)) as process:
            seen = [at_work(arena)]

            def a_judge_is_at_work(process: Any = process, seen: list[Counter[str]] = seen) -> bool:
                seen.append(at_work(arena))
                return process.poll() is not None or seen[-1]["judge"] > 0

            if number % 3 == 1:
                until(a_judge_is_at_work, "a judge", 300)
                time.sleep(chance.uniform(0.0, 1.5))
                until(a_judge_is_at_work, "a judge", 300)  # that one may be over
            else:
                time.sleep(chance.uniform(1.0, 12.0))
                seen.append(at_work(arena))
            working = seen[-1]  # not one more look: judges are short
            met["at work"] += process.poll() is None
            met.update(kind for kind in ("session", "judge") if working[kind])
            process.send_signal(signal.SIGKILL)
            process.wait()
    met["sessions over before the last start"] = sum((run / "session.json").exists() for run in arena.runs)
    done = arena("sweep", file, limit_s=900)
    assert done.code == 0, done.err
    assert verdicts(arena) == {(model, "paged_attention", VERDICTS[model]): count for model in models}
    found = trials(arena)
    assert set(found) == {(model, "paged_attention", number) for model in models for number in range(1, count + 1)}
    for trial, runs in found.items():
        started = [(run / "events.jsonl").read_text().count('"session_started"') for run in runs]
        assert max(started) == 1, (trial, "a folder has one session")
        assert sum((run / "session.json").exists() for run in runs) == 1, (trial, "a session that was over is never played again")
    home = str(arena.home).encode()
    left = [number for number in alive("arena.sweep.child") if home in Path(f"/proc/{number}/environ").read_bytes()]
    assert not left, "the processes of a sweep end with it"
    met["interrupted"] = sum(len(runs) - 1 for runs in found.values())
    return dict(met)


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    met = kill_and_go_on(copy(tmp_path), ["nop", "cheat/patch_clock", "cheat/read_host"], count=2, kills=4, seed=1)
    assert met["at work"] and met["judge"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.monotonic()
        print(kill_and_go_on(copy(Path(folder)), list(VERDICTS), count=4, kills=10, seed=int(time.time())))
        print(f"24 trials, each counted once, in {time.monotonic() - begun_s:.0f} s")
