"""A sweep that is killed again and again ends as one that was not. `python tests/sweep/test_killed_sweeps.py` makes 10 kills."""

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from command import Arena, alive, copy, killed, needs_sandbox  # noqa: E402
from sweeping import trials, verdicts, written  # noqa: E402

VERDICTS = {
    "nop": "missing",
    "cheat/patch_clock": "incorrect",
    "cheat/read_host": "crashed",
    "cheat/lazy_tensor": "incorrect",
    "cheat/forge_reply": "cheated",
    "cheat/exit_zero": "crashed",
}


def kill_and_go_on(arena: Arena, models: list[str], count: int, kills: int, seed: int) -> dict[str, int]:
    """Kill the sweep at random moments, go on each time, and check what is left. How many runs were in which phase."""
    chance = random.Random(seed)
    file = written(arena, trials=count, cell={"models": models}, place={"parallel": 2})
    met = {"at work": 0, "in its judge": 0, "sessions over": 0}
    for _ in range(kills):
        with killed(arena.start("sweep", file)) as process:
            time.sleep(chance.uniform(1.0, 12.0))
            met["at work"] += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait()
        for run in arena.runs:
            events = (run / "events.jsonl").read_text()
            met["in its judge"] += "reopened" in events and not (run / "result.yaml").exists()
        met["sessions over"] = sum((run / "session.json").exists() for run in arena.runs)
    done = arena("sweep", file, limit_s=900)
    assert done.code == 0, done.err
    assert verdicts(arena) == {(model, "paged_attention", VERDICTS[model]): count for model in models}
    found = trials(arena)
    assert set(found) == {(model, "paged_attention", number) for model in models for number in range(1, count + 1)}
    for trial, runs in found.items():
        assert sum((run / "session.json").exists() for run in runs) == 1, (trial, "a session that was over is never played again")
    home = str(arena.home).encode()
    left = [number for number in alive("arena.sweep.child") if home in Path(f"/proc/{number}/environ").read_bytes()]
    assert not left, "the processes of a sweep end with it"
    met["interrupted"] = sum(len(runs) - 1 for runs in found.values())
    return met


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    met = kill_and_go_on(copy(tmp_path), ["nop", "cheat/patch_clock", "cheat/read_host"], count=2, kills=4, seed=1)
    assert met["at work"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.monotonic()
        print(kill_and_go_on(copy(Path(folder)), list(VERDICTS), count=4, kills=10, seed=int(time.time())))
        print(f"24 trials, each counted once, in {time.monotonic() - begun_s:.0f} s")
