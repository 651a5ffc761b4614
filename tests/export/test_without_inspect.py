"""Without Inspect's package arena says what to install, and nothing else of it fails."""

import importlib.util
from pathlib import Path

import pytest
from command import Arena
from exports import known
from sites import home


@pytest.mark.skipif(importlib.util.find_spec("inspect_ai") is not None, reason="inspect-ai is installed here")
def test_a_missing_inspect_is_named(shared: Arena, tmp_path: Path):
    made = home(tmp_path / "home", [known(1)])
    said = shared.refused("export", "inspect", "latest", "--out", str(tmp_path / "logs"), env={"ARENA_HOME": str(made)})
    assert "pip install 'arena[inspect]'" in said
