"""The examples of CONTRIBUTING.md, run unchanged."""

import json
import re
from pathlib import Path

import pytest
import yaml
from agents import SMALL, against_a_stub, missing
from command import ROOT, needs_sandbox

from arena import paths

pytestmark = [
    pytest.mark.cli,
    needs_sandbox,
]
RUN = ("run", "--problem", "paged_attention", "--hardware", "cpu", "--budget", "2m", "--json")


def example(heading: str) -> str:
    """The YAML below that heading."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def small(folder: Path) -> Path:
    (folder / "small.py").write_text(SMALL)
    return folder / "small.py"


def test_added_model_runs(tmp_path: Path) -> None:
    if reason := missing("opencode"):
        pytest.skip(reason)
    words = ("--check", "true", "--provider", "Vendor")
    with against_a_stub(tmp_path, *words, solution=small(tmp_path)) as (arena, stub, env):
        arena.edit("harnesses/opencode.yaml", lambda text: text + example("Add a model"))
        done = arena(*RUN, "--model", "new-model", env=env)
        assert done.code == 0, done.err
        (annotation,) = json.loads(done.out)
        assert annotation["session"]["agent_status"] == "complete", annotation["session"]["message"]
        assert {line["body"]["model"] for line in stub.requests()} == {"vendor/new-model"}
        listed = arena.json("list", "models")
        assert "new-model" in [row["name"] for row in listed]


def test_added_harness_runs(tmp_path: Path) -> None:
    if reason := missing("claude"):
        pytest.skip(reason)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "my-agent").symlink_to(paths.cli() / "claude")
    with against_a_stub(tmp_path, "--check", "true", solution=small(tmp_path)) as (arena, stub, env):
        text = example("Add a harness")
        assert yaml.safe_load(text)["cli"] == yaml.safe_load((ROOT / "harnesses" / "claude.yaml").read_text())["cli"]
        (arena.tree / "harnesses" / "my-agent.yaml").write_text(text)
        done = arena(*RUN, "--model", "my-model", env=env | {"ARENA_CLI": str(tmp_path / "cli")})
        assert done.code == 0, done.err
        (annotation,) = json.loads(done.out)
        session = annotation["session"]
        assert session["agent_status"] == "complete", session["message"]
        assert session["usage"]["requests"] == len(stub.requests()) == 3
        assert (arena.runs[0] / "work" / "solution.py").read_text() == SMALL
