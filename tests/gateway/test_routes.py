"""Routes, built-in and own, and the places of a key."""

import os
from pathlib import Path

import pytest

from arena import paths
from arena.errors import DataError, UsageError
from arena.gateway.routes import key, route, routes
from arena.schema import Route

OWN = """
schema_version: 1
routes:
  openai: {title: Ours, apis: [responses], base_url: "https://llm.corp.test/openai/v1", key: CORP_KEY}
  lab: {title: The lab, apis: [chat], base_url: "http://10.0.0.7:8000/v1", key: null, allow: {fields: [priority]}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and an environment without keys."""
    for name in ("ARENA_ROUTES", "ARENA_KEYS", *(entry.key for entry in routes().values() if entry.key)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "arena" / "keys").mkdir(parents=True, mode=0o700)
    return tmp_path / "config" / "arena"


@pytest.mark.parametrize("name", sorted(routes()))
def test_every_built_in_route_is_valid(name: str):
    found = route(name)
    assert found.base_url.startswith("https://") or name == "local"
    assert (found.key is None) == (name == "local")
    assert found.prices is None or found.prices in PRICED


PRICED = {"anthropic", "openai", "google", "openrouter", "moonshotai", "deepseek", "zai", "minimax", "x-ai"}


def test_the_price_table_has_the_routes_names():
    from genai_prices.data_snapshot import get_snapshot

    assert {provider.id for provider in get_snapshot().providers} >= PRICED


def test_own_routes_replace_and_add(home: Path):
    (home / "routes.yaml").write_text(OWN)
    assert route("openai").base_url == "https://llm.corp.test/openai/v1"
    assert route("lab").key is None
    assert (route("lab").allow.fields, route("lab").allow.headers) == (("priority",), ())
    assert route("anthropic").title == "Anthropic"


def test_the_environment_names_another_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "routes.yaml").write_text("nonsense")
    (tmp_path / "mine.yaml").write_text(OWN)
    monkeypatch.setenv("ARENA_ROUTES", str(tmp_path / "mine.yaml"))
    assert route("lab").title == "The lab"
    monkeypatch.setenv("ARENA_ROUTES", str(tmp_path / "none.yaml"))
    with pytest.raises(DataError, match=r"none\.yaml: cannot be read"):
        routes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema_version: 1\nroutes: {a: {title: A, apis: [chat], base_url: 'https://a.test/', key: null}}", "without a slash"),
        ("schema_version: 1\nroutes: {a: {title: A, apis: [chat], base_url: 'https://u:p@a.test', key: null}}", "base_url"),
        ("schema_version: 1\nroutes: {a: {title: A, apis: [soap], base_url: 'https://a.test', key: null}}", "apis"),
        ("schema_version: 1\nroutes: {a: {title: A, apis: [chat], base_url: 'https://a.test', kee: X}}", "did you mean 'key'"),
    ],
)
def test_errors_name_the_file_and_line(home: Path, text: str, words: str):
    (home / "routes.yaml").write_text(text)
    with pytest.raises(DataError, match=r"routes\.yaml:2:") as found:
        routes()
    assert words in str(found.value)


def test_an_unknown_route_lists_the_choices():
    with pytest.raises(UsageError, match=r"unknown route 'antropic': did you mean 'anthropic'\? \(known: .*openrouter"):
        route("antropic")


def route_with_key(name: str | None = "SOME_KEY") -> Route:
    return Route(title="Some", apis=("chat",), base_url="https://a.test", key=name)


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_KEY", " sk-0123456789\n")
    assert key(route_with_key()) == "sk-0123456789"
    assert key(route_with_key(None)) is None


def test_a_key_comes_from_a_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = home / "keys" / "SOME_KEY"
    file.write_text("sk-0123456789\n")
    file.chmod(0o600)
    assert key(route_with_key()) == "sk-0123456789"
    file.chmod(0o400)
    assert key(route_with_key()) == "sk-0123456789"
    monkeypatch.setenv("ARENA_KEYS", str(tmp_path))
    with pytest.raises(UsageError, match="SOME_KEY"):
        key(route_with_key())
    file.rename(tmp_path / "SOME_KEY")
    assert key(route_with_key()) == "sk-0123456789"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_readable_key_file_is_refused_with_its_chmod(home: Path, mode: int):
    file = home / "keys" / "SOME_KEY"
    file.write_text("sk-0123456789")
    file.chmod(mode)
    with pytest.raises(UsageError, match=f"chmod 600 {file}") as found:
        key(route_with_key())
    assert "sk-0123456789" not in str(found.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_key_file_is_refused(home: Path):
    file = home / "keys" / "SOME_KEY"
    file.write_text("sk-0123456789")
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        key(route_with_key())


def test_a_folder_in_place_of_a_key_is_refused(home: Path):
    (home / "keys" / "SOME_KEY").mkdir()
    with pytest.raises(UsageError, match="SOME_KEY"):
        key(route_with_key())


def test_a_missing_key_names_both_places(home: Path):
    with pytest.raises(UsageError) as found:
        key(route_with_key())
    assert "environment variable SOME_KEY" in str(found.value)
    assert str(home / "keys" / "SOME_KEY") in str(found.value)


@pytest.mark.parametrize("value", ["short", "two words of it", "new\nline-in-it", "umläut-in-it"])
def test_an_invalid_key_is_never_shown(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(UsageError, match="not a key") as found:
        key(route_with_key())
    assert value not in str(found.value)


def test_keys_are_hidden_from_every_sandbox(home: Path):
    assert {home, home / "keys"} <= set(paths.secrets())
