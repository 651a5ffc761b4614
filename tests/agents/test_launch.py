"""How an agent is started, with everything filled in."""

from pathlib import Path

import pytest

from arena.agents import launch
from arena.agents.select import SelectedModel
from arena.errors import DataError, UsageError
from arena.schema import Harness, Model


def selected(model: Model | None = None, **given) -> SelectedModel:
    entry = {
        "schema_version": 1,
        "name": "tool",
        "title": "Tool",
        "command": ["tool", "--model", "{id}", "--json={}", "{other}"],
        "models": {"m": {}},
    }
    return SelectedModel(
        Harness.model_validate(entry | given), "m", model or Model(id="vendor/m", route="anthropic", effort="high"), ""
    )


def spec(made: SelectedModel, *, key: str = "", **given):
    """The sandbox in which the harness starts."""
    found = launch.resolve_launch(made, Path("/h"), **given)
    return found.sandbox_spec(made.harness.prompt, Path("/w"), "Write.", key=key)


def test_values_are_filled_in_and_other_braces_stay():
    made = selected(env={"URL": "{gateway}/v1", "KEY": "{key}"}, prompt="argument")
    found = spec(made, key="arena-1")
    assert found.command == ("tool", "--model", "vendor/m", "--json={}", "{other}", "Write.")
    assert found.env == {"URL": "http://127.0.0.1:3127/v1", "KEY": "arena-1"}


def test_home_is_rendered():
    text = 'url = "{{ gateway }}"\nby = {{ provider | tojson }}\neffort = "{{ effort }}"\n'
    made = selected(
        Model(id="vendor/m", route="anthropic", effort="max", provider=("a", "b")),
        home={".tool/config": text},
        efforts={"max": "32768"},
    )
    assert spec(made).home == {".tool/config": b'url = "http://127.0.0.1:3127"\nby = ["a", "b"]\neffort = "32768"\n'}


def test_a_misspelt_variable_names_the_file():
    with pytest.raises(DataError, match=r"harness tool: home\.\.tool: 'gatewy' is undefined"):
        spec(selected(home={".tool": "{{ gatewy }}"}))


def test_unknown_efforts_list_the_choices():
    with pytest.raises(UsageError, match=r"no effort 'high' \(it has low, max\)"):
        spec(selected(efforts={"low": "1", "max": "9"}))


@pytest.mark.parametrize("given", [{"command": ["t", "{effort}"]}, {"env": {"E": "{effort}"}}, {"home": {"f": "{{ effort }}"}}])
def test_an_effort_is_needed(given):
    with pytest.raises(UsageError, match="give --effort"):
        spec(selected(Model(id="m"), **given))


def test_prompt_arrives_on_standard_input():
    assert spec(selected(prompt="stdin")).stdin == b"Write."


LOGIN = {"files": [".tool/login.json"], "hosts": ["api.tool.test"]}


def test_a_login_replaces_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".tool").mkdir()
    (tmp_path / ".tool" / "login.json").write_text("token")
    made = selected(
        login=LOGIN, env={"URL": "{gateway}", "KEY": "{key}", "QUIET": "1"}, home={"c": "{% if gateway %}x{% endif %}"}
    )
    found = spec(made, login=True)
    assert found.home == {"c": b"", ".tool/login.json": b"token"}
    assert found.env == {"QUIET": "1"}


def test_missing_logins_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="log in with Tool first"):
        spec(selected(login=LOGIN), login=True)
    with pytest.raises(UsageError, match="has no login"):
        spec(selected(), login=True)


def test_logins_are_read_at_each_start_and_never_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".tool").mkdir()
    token = tmp_path / ".tool" / "login.json"
    token.write_text("first {key}")
    made = selected(login=LOGIN)
    found = launch.resolve_launch(made, Path("/h"), login=True)
    token.write_text("renewed {key}")
    home = found.sandbox_spec("stdin", Path("/w"), "Write.", key="arena-1").home
    assert home[".tool/login.json"] == b"renewed {key}", "a login file is no template"
    assert "first" not in repr(found)
