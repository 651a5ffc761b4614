"""The user's own defaults: arena.toml, environment, and which one comes first. What `arena run --dry-run` shows of them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import RUN, Arena, needs_sandbox

from arena.cli import settings
from arena.errors import DataError

DRY = ("run", "-p", "kahan_softmax", "--dry-run")


@pytest.fixture
def configured(arena: Arena, tmp_path: Path) -> dict[str, str]:
    """A file in each of the two folders; the environment with the second."""
    (arena.tree.parent / "arena.toml").write_text('model = "naive"\nhardware = "cpu"\n')
    config = tmp_path / "config"
    (config / "arena").mkdir(parents=True)
    (config / "arena" / "arena.toml").write_text('model = "oracle"\nbudget = "5m"\nhardware = "h200"\nmax_cost = 2\n')
    return {"XDG_CONFIG_HOME": str(config)}


def planned(arena: Arena, *words: str, env: dict[str, str]) -> tuple[dict[str, Any], str]:
    """The cell of a dry run, and what it says to people."""
    done = arena(*DRY, *words, "--json", env=env)
    assert done.code == 0, done.err
    return json.loads(done.out)["cell"], done.err


@pytest.mark.slow
@needs_sandbox
def test_options_come_before_environment_and_files(arena: Arena, configured: dict[str, str]) -> None:
    pytest.importorskip("torch")
    here, there = arena.tree.parent / "arena.toml", Path(configured["XDG_CONFIG_HOME"]) / "arena" / "arena.toml"
    cell, err = planned(arena, env=configured)
    assert (cell["model"], cell["hardware"], cell["budget_s"]) == ("naive", "cpu", 300.0)
    for line in (
        f"model naive, from {here}",
        f"hardware cpu, from {here}",
        f"budget 5m, from {there}",
        f"max_cost 2, from {there}",
    ):
        assert line in err.splitlines()
    cell, err = planned(arena, env=configured | {"ARENA_MODEL": "nop"})
    assert cell["model"] == "nop" and "model nop, from $ARENA_MODEL" in err
    cell, err = planned(arena, "-m", "oracle", "--budget", "6m", env=configured | {"ARENA_MODEL": "nop"})
    assert cell["budget_s"] == 360.0
    assert cell["model"] == "oracle" and "from $ARENA_MODEL" not in err


@pytest.mark.slow
@needs_sandbox
def test_doctor_shows_each_setting_with_its_origin(arena: Arena, configured: dict[str, str]) -> None:
    checks = {check["name"]: check["detail"] for check in json.loads(arena("doctor", "--json", env=configured).out)}
    assert checks["model"] == f"naive, from {arena.tree.parent / 'arena.toml'}"
    assert checks["budget"] == f"5m, from {configured['XDG_CONFIG_HOME']}/arena/arena.toml"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("modle = 'x'", "modle: unknown setting 'modle': did you mean 'model'? (known: model, "),
        ("budget = 45", 'budget: should be a time in quotes such as "45m" (got 45)'),
        ("max_requests = true", "max_requests: should be a whole number above zero (got True)"),
        ("max_cost = 'ten'", "max_cost: should be a number of USD above zero (got 'ten')"),
        ("ANTHROPIC_API_KEY = 'x'", "ANTHROPIC_API_KEY: no key belongs here: put it into the environment, or into a file of"),
        ("model = ", "not TOML: "),
        ("[caps]\nrequests = 1", "caps: unknown setting 'caps'"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_file(text: str, fault: str, arena: Arena) -> None:
    (arena.tree.parent / "arena.toml").write_text(text + "\n")
    error = arena.refused(*DRY)
    assert error.startswith(f"{arena.tree.parent / 'arena.toml'}: {fault}")
    assert arena("list", "problems").code == 0, "a command that takes no setting does not read the file"


def test_a_wrong_value_of_a_variable_is_refused(shared: Arena) -> None:
    error = shared.refused(*RUN, env={"ARENA_MAX_REQUESTS": "many"})
    assert error.startswith("Invalid value for '--max-requests': 'many' is not a valid integer")


def test_every_setting_fills_a_parameter_of_its_commands() -> None:
    from importlib import import_module

    for command, names in settings.USED.items():
        [found] = [each for each in vars(import_module(f"arena.cli.{command}")).values() if getattr(each, "name", "") == command]
        parameters = {parameter.name for parameter in found.params}
        assert {settings.PARAMETERS[name] for name in names} <= parameters


@pytest.mark.slow
@needs_sandbox
def test_dry_run_shows_prompt_command_and_cost(shared: Arena) -> None:
    pytest.importorskip("torch")
    done = shared(*DRY, "--hardware", "cpu", "-n", "2")
    assert done.code == 0, done.err
    assert "trials  2, each with a budget of 2700 s and a score" in done.out
    assert "cost    none: no model is asked" in done.out
    assert "command python -I /opt/harness/builtin.py" in done.out
    assert "# Softmax with rows that sum to 1 far beyond fp32" in done.out and "45 minutes" in done.out
    assert not shared.runs


@pytest.mark.slow
@needs_sandbox
def test_dry_run_reports_every_refusal(shared: Arena) -> None:
    lines = shared.refused("run", "-p", "gemm", "-m", "opsu", "--budget", "45", "--dry-run").splitlines()
    assert lines[0] == "3 faults:"
    assert [word for word, line in zip(("gemm", "opsu", "45m"), lines[1:], strict=True) if word not in line] == []


def test_settings_that_an_agent_may_have_written_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "workspaces" / "run" / "work"
    work.mkdir(parents=True)
    for folder in (work, tmp_path):
        (folder / "arena.toml").write_text('hardware = "h20"\n')
    monkeypatch.chdir(tmp_path)
    assert [each.value for each in settings.settings()] == ["h20"]  # the user's own
    monkeypatch.chdir(work)
    with pytest.raises(DataError, match="agents write in this folder"):
        settings.settings()
    if os.geteuid() == 0:
        os.chown(tmp_path / "arena.toml", 64100, 64100)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError, match="another user owns it"):
            settings.settings()
