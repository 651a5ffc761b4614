"""What an agent is started with, filled in."""

from pathlib import Path

import pytest

from arena.agents import launch
from arena.catalog import SelectedModel
from arena.errors import DataError, UsageError
from arena.sandboxes import Limits
from arena.schema import Harness, Model


def chosen(model: Model | None = None, **given) -> SelectedModel:
    entry = {
        "schema_version": 1,
        "name": "tool",
        "title": "Tool",
        "command": ["tool", "--model", "{id}", "--json={}", "{other}"],
        "models": {"m": {}},
    }
    return SelectedModel(Harness.model_validate(entry | given), "m", model or Model(id="vendor/m", effort="high"), "")


def box(made: SelectedModel, **given):
    return launch.agent_box(made, Path("/w"), "Write.", folder=Path("/h"), limits=Limits(), **given)


def test_words_are_filled_in_and_other_braces_stay():
    made = chosen(env={"URL": "{gateway}/v1", "KEY": "{key}"}, prompt="argument")
    found = box(made, gateway="http://127.0.0.1:3127", key="arena-1")
    assert found.command == ("tool", "--model", "vendor/m", "--json={}", "{other}", "Write.")
    assert found.env == {"URL": "http://127.0.0.1:3127/v1", "KEY": "arena-1"}


def test_home_is_rendered():
    text = 'url = "{{ gateway }}"\nby = {{ provider | tojson }}\neffort = "{{ effort }}"\n'
    made = chosen(Model(id="vendor/m", effort="max", provider=("a", "b")), home={".tool/config": text}, efforts={"max": "32768"})
    assert box(made, gateway="g").home == {".tool/config": b'url = "g"\nby = ["a", "b"]\neffort = "32768"\n'}


def test_a_misspelt_variable_names_the_file():
    with pytest.raises(DataError, match=r"harness tool: home\.\.tool: 'gatewy' is undefined"):
        box(chosen(home={".tool": "{{ gatewy }}"}))


def test_an_effort_that_the_harness_does_not_know():
    with pytest.raises(UsageError, match=r"no effort 'high' \(it has low, max\)"):
        box(chosen(efforts={"low": "1", "max": "9"}))


@pytest.mark.parametrize("given", [{"command": ["t", "{effort}"]}, {"env": {"E": "{effort}"}}, {"home": {"f": "{{ effort }}"}}])
def test_an_effort_is_needed(given):
    with pytest.raises(UsageError, match="give --effort"):
        box(chosen(Model(id="m"), **given))


def test_the_prompt_on_standard_input():
    assert box(chosen(prompt="stdin")).stdin == b"Write."


LOGIN = {"files": [".tool/login.json"], "hosts": ["api.tool.test"]}


def test_a_login_replaces_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".tool").mkdir()
    (tmp_path / ".tool" / "login.json").write_text("token")
    made = chosen(login=LOGIN, env={"URL": "{gateway}", "KEY": "{key}", "QUIET": "1"}, home={"c": "{% if gateway %}x{% endif %}"})
    found = box(made, login=True)
    assert found.home == {"c": b"", ".tool/login.json": b"token"}
    assert found.env == {"QUIET": "1"}


def test_a_login_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="log in with Tool first"):
        box(chosen(login=LOGIN), login=True)
    with pytest.raises(UsageError, match="knows no login"):
        box(chosen(), login=True)
