"""`arena export atif`: documents that an independent package accepts, and keys that no document holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Arena
from exports import PROMPT, files, known, session, with_files
from payloads import PAYLOADS
from records import trial
from sites import home, steps

from arena.export import atif, stored_run

validator = pytest.importorskip("nat.atif", reason="nvidia-nat-atif is not installed: scripts/setup test installs it")


def valid(document: dict[str, Any]) -> Any:
    """The document as the independent package reads it."""
    return validator.Trajectory.model_validate(json.loads(json.dumps(document)))


def test_a_run_becomes_a_valid_document(tmp_path: Path):
    found = valid(atif.document(with_files(tmp_path, known(), session())))
    assert (found.schema_version, found.session_id) == ("ATIF-v1.6", known().run_id)
    assert [step.source for step in found.steps] == ["user", "agent", "system", "agent", "agent"]
    user, first, error, second, _ = found.steps
    assert user.message == PROMPT
    assert (first.message, first.reasoning_content) == ("said first", "said to itself")
    assert [result.content for result in first.observation.results] == ["one", "two"]
    assert first.extra["failed_calls"] == ["b"]
    assert (first.metrics.prompt_tokens, first.metrics.completion_tokens, first.metrics.cached_tokens) == (20, 7, 7)
    assert (error.message, error.extra["status"]) == ("try again", 529)
    assert [result.source_call_id for result in second.observation.results] == ["a#2", None]
    assert found.final_metrics.total_prompt_tokens == 1000, "of the gateway, where there is one"
    assert found.extra["peak_fraction"] == 0.4
    assert first.timestamp < second.timestamp


def test_the_version_is_that_of_the_agent_cli(tmp_path: Path):
    run = with_files(tmp_path, known(), session())
    assert valid(atif.document(run)).agent.version == "b" * 12
    manifest = tmp_path / "workspaces" / known().run_id / "manifest.json"
    manifest.write_text(json.dumps({"program": {"version": "2.1.330"}}))
    assert valid(atif.document(stored_run.read(known(), tmp_path / "workspaces"))).agent.version == "2.1.330"
    for odd in ("[]", "{", '{"program": null}'):
        manifest.write_text(odd)
        assert stored_run.read(known(), tmp_path / "workspaces").program is None


def test_without_a_gateway_the_reported_usage_is_added_up(tmp_path: Path):
    run = known()
    run = run.model_copy(update={"session": run.session.model_copy(update={"usage": None})})
    found = valid(atif.document(with_files(tmp_path, run, session())))
    assert found.final_metrics.total_prompt_tokens == 40 and found.final_metrics.total_cost_usd is None


def test_a_run_without_files_or_number_is_valid(tmp_path: Path):
    found = valid(atif.document(stored_run.read(trial("crashed", 1), tmp_path)))
    assert found.steps == [] and found.extra["verdict"] == "crashed"


@pytest.mark.parametrize("number", range(0, len(PAYLOADS), 6))
def test_hostile_texts_are_kept_and_valid(number: int, tmp_path: Path):
    found = valid(atif.document(with_files(tmp_path, known(), steps(PAYLOADS[number]))))
    text = PAYLOADS[number].encode(errors="replace").decode()
    words = found.steps[1].message
    assert words == text or "\udcff" in PAYLOADS[number]


@pytest.mark.slow
def test_the_command_writes_files_lines_and_refuses_keys(arena: Arena, tmp_path: Path):
    runs = [known(1), known(2)]
    home(arena.home, runs)
    for run in runs:
        files(arena.home, run, session())
    one = tmp_path / "one.json"
    done = arena("export", "atif", "latest", "-o", str(one))
    assert (done.code, done.out) == (0, ""), done.err
    assert valid(json.loads(one.read_text())).session_id == runs[1].run_id
    done = arena("export", "atif", *(run.run_id for run in runs), runs[0].run_id)
    assert [valid(json.loads(line)).session_id for line in done.out.splitlines()] == [run.run_id for run in runs]
    assert "unknown run" in arena.refused("export", "atif", "x")
    assert "Missing argument" in arena.refused("export", "atif")
    key = "sk-" + "k" * 20
    (arena.home / "workspaces" / runs[0].run_id / "trajectory.jsonl").write_text(json.dumps({"kind": "text", "text": key}))
    done = arena("export", "atif", runs[0].run_id, "-o", str(tmp_path / "two.json"), env={"OPENAI_API_KEY": key})
    assert done.code == 1 and key not in done.err + done.out and not (tmp_path / "two.json").exists()
