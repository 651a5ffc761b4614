"""A provider that refuses everything for a while: its route rests, one session tries it, and every trial counts at the end.

`python tests/sweep/test_storm.py 429` does the same with a storm of 429, after which arena asks by itself for a minute a session.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from asking import asking  # noqa: E402
from command import copy, killed, needs_sandbox, until  # noqa: E402
from stub import started  # noqa: E402
from sweeping import trials, verdicts, written  # noqa: E402


def weathered(folder: Path, status: str) -> str:
    """Play a sweep whose provider answers with that status until its route is paused, and then well; what the sweep said."""
    arena, said = copy(folder), folder / "said"
    given = {"retry": {"provider_error": 9, "after": "1s"}, "stop": {"route_failures": 3, "pause": "3s"}}
    with said.open("w") as err, ExitStack() as storm:
        stub = storm.enter_context(started(folder / "storm.jsonl", "--mode", status))
        env = asking(arena, stub)
        file = written(arena, trials=3, cell={"models": ["dry/m", "nop"], "patience": "1s"}, place={"parallel": 2}, **given)
        with killed(arena.start("sweep", file, env=env, stderr=err)) as sweep:
            paused = "route stub is paused for 3s: 3 sessions in a row ended by its failure"
            until(lambda: paused in said.read_text() or sweep.poll() is not None, "a pause", 400)
            storm.close()
            with started(folder / "calm.jsonl", "--port", str(stub.port)):
                assert sweep.wait(180) == 0, said.read_text()
    assert paused in said.read_text()
    assert verdicts(arena)["nop", "paged_attention", "missing"] == 3
    found = trials(arena)
    assert len(found) == 6 and all(sum(map(counts, runs)) == 1 for runs in found.values()), "each trial counts once"
    assert all(len(runs) == 1 for (model, _, _), runs in found.items() if model == "nop")
    assert sum(len(runs) - 1 for runs in found.values()) >= 3, "those that the storm hit are kept"
    return said.read_text()


def counts(run: Path) -> bool:
    return bool(yaml.safe_load((run / "result.yaml").read_text())["session"]["agent_status"] != "provider_error")


@needs_sandbox
@pytest.mark.slow
def test_a_storm_pauses_a_route_until_it_is_over(tmp_path: Path) -> None:
    weathered(tmp_path, "500")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(weathered(Path(made), sys.argv[1]))
