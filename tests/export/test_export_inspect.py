"""`arena export inspect`: logs that Inspect's own reader takes, with the board's means, and keys that no log holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import Arena
from exports import PROMPT, files, known, session
from payloads import PAYLOADS
from records import trial
from sites import SOURCE, home, steps

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: scripts/setup inspect installs it")
INSPECT = Path(sys.executable).with_name("inspect")


def dumped(file: Path, *words: str) -> Any:
    """The log as Inspect's own command prints it."""
    done = subprocess.run([INSPECT, "log", "dump", str(file), *words], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def exported(made: Path, *run_ids: str) -> list[Path]:
    from arena.export import inspect_log, stored_run
    from arena.results import annotations

    found = [annotations.read(made / "annotations" / f"{run_id}.yaml") for run_id in run_ids]
    return inspect_log.write([stored_run.read(one, made / "workspaces") for one in found], made / "logs")


def test_a_cell_becomes_a_log_that_inspect_reads(tmp_path: Path):
    cell = {"harness": "claude", "model": "opus"}
    runs = [known(1, **cell), trial("incorrect", 2, **cell), trial("missing", 3, status="provider_error", **cell)]
    runs += [trial("judge_failed", 4, **cell), trial(0.8, 5, review="reward_hack", **cell)]
    other = known(6, harness="claude", model="opus", turns=3)
    made = home(tmp_path, [*runs, other])
    files(made, runs[0], session())
    logs = exported(made, *(run.run_id for run in [*runs, other]))
    assert [log.name for log in logs] == [f"{runs[0].run_id}.eval", f"{other.run_id}.eval"], "one a cell"
    log = dumped(logs[0])
    assert (log["status"], log["eval"]["task"], log["eval"]["model"]) == ("success", "arena/paged_attention", "claude/opus")
    assert log["eval"]["viewer"]["trust_content"] is False
    assert [sample["epoch"] for sample in log["samples"]] == [1, 2, 3, 4, 5]
    values = [(sample.get("scores") or {}).get("arena_judge", {}).get("value") for sample in log["samples"]]
    assert values == [0.4, 0.0, None, None, 0.0], "what does not count has no score; what was withdrawn failed"
    answers = [(sample.get("scores") or {}).get("arena_judge", {}).get("answer") for sample in log["samples"]]
    assert answers == ["passed", "incorrect", None, None, "withdrawn"]
    assert [sample.get("error") is None for sample in log["samples"]] == [True, True, False, False, True]
    assert log["results"]["scores"][0]["metrics"]["mean"]["value"] == pytest.approx(0.4 / 3)
    first = log["samples"][0]
    roles = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [message["role"] for message in first["messages"]] == roles
    assert first["messages"][0]["content"] == PROMPT and first["store"]["solution.py"] == SOURCE
    assert first["messages"][1]["content"][0]["reasoning"] == "said to itself"
    assert first["messages"][3]["error"]["message"]
    assert first["model_usage"]["claude/opus"]["input_tokens"] == 1000
    kinds = [event["event"] for event in first["events"]]
    assert (kinds.count("model"), kinds.count("tool"), kinds.count("score")) == (3, 3, 1)
    assert {event["source"] for event in first["events"] if event["event"] == "info"} == {"error", "result", "snapshot"}


def test_a_deadline_is_a_limit(tmp_path: Path):
    made = home(tmp_path, [trial(0.3, 1, status="deadline")])
    [log] = exported(made, trial(0.3, 1).run_id)
    assert dumped(log)["samples"][0]["limit"]["type"] == "time"


def test_hostile_texts_open_and_stay_untrusted(tmp_path: Path):
    runs = [known(number, model=f"m{number}") for number in range(len(PAYLOADS))]
    made = home(tmp_path, runs)
    for run, text in zip(runs, PAYLOADS, strict=True):
        files(made, run, [*steps(text), {"at_s": 9, "kind": "call", "id": 1, "tool": "x", "input": {"n": 10**30}}])
    from inspect_ai.log import read_eval_log

    for file in exported(made, *(run.run_id for run in runs)):
        assert read_eval_log(str(file)).eval.viewer.trust_content is False


def test_the_command_refuses_keys(shared: Arena, tmp_path: Path):
    made = home(tmp_path / "home", [known(1)])
    key = 'sk-"x\\y' + "k" * 20
    files(made, known(1), session(key))
    env = {"ARENA_HOME": str(made)}
    done = shared("export", "inspect", "latest", "--out", str(tmp_path / "logs"), env=env)
    assert done.code == 0 and len(list((tmp_path / "logs").iterdir())) == 1, done.err
    done = shared("export", "inspect", "latest", "--out", str(tmp_path / "more"), env=env | {"OPENAI_API_KEY": key})
    assert done.code == 1 and key not in done.err and not (tmp_path / "more").exists()
