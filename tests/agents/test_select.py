"""The route, the key and the providers of a selected model."""

import pytest

from arena.agents import select
from arena.agents.select import SelectedModel
from arena.errors import UsageError
from arena.gateway.config import Caps
from arena.gateway.network import Network, network
from arena.schema import Harness, Model

ROUTES = """
schema_version: 1
routes:
  broker: {title: Broker, apis: [chat], base_url: "https://broker.test/v1", key: BROKER_KEY, broker: true}
  own: {title: Own, apis: [chat, responses], base_url: "http://127.0.0.1:8000/v1", key: null}
"""


@pytest.fixture(autouse=True)
def routes(tmp_path, monkeypatch):
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES)
    monkeypatch.setenv("ARENA_ROUTES", str(file))
    monkeypatch.setenv("BROKER_KEY", "sk-a-real-one")


def selected(api="chat", login=None, **model) -> SelectedModel:
    entry = {"schema_version": 1, "name": "tool", "title": "Tool", "command": ["tool"], "models": {"m": {}}}
    entry |= {"api": api, "login": login, "home": {"config": "{{ provider | tojson }}"}}
    return SelectedModel(Harness.model_validate(entry), "m", Model(**model), "")


def test_a_broker_needs_a_pin():
    with pytest.raises(UsageError, match=r"Broker would choose a provider for a/b.*--provider P.*--unpinned"):
        select._with_providers(selected(route="broker", id="a/b"), (), unpinned=False)


@pytest.mark.parametrize(
    ("own", "given", "unpinned", "found"),
    [(("x",), (), False, ("x",)), (("x",), ("y", "z"), False, ("y", "z")), (("x",), (), True, ()), ((), (), True, ())],
)
def test_providers_of_the_run_replace_the_models(own, given, unpinned, found):
    made = select._with_providers(selected(route="broker", id="a/b", provider=own), given, unpinned=unpinned)
    assert made.model.provider == found
    assert (access := select.model_access(made)) is not None and access.provider == found


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        ({"route": "own"}, {"providers": ["x"]}, "answers by itself"),
        ({"route": "own"}, {"unpinned": True}, "answers by itself"),
        ({"route": "broker"}, {"providers": ["x"], "unpinned": True}, "exclude each other"),
        ({}, {"unpinned": True}, "has no provider"),
        ({"route": "brokr"}, {}, "brokr"),
    ],
)
def test_options_without_meaning_are_refused(model, given, words):
    with pytest.raises(UsageError, match=words):
        select._with_providers(selected(**model), **({"providers": (), "unpinned": False} | given))


def test_access_holds_route_key_and_caps():
    found = select.model_access(selected(route="broker", id="a/b", provider=("x",)), Caps(requests=3), 9.0)
    assert found is not None
    assert (found.model, found.key, found.route.title, found.caps.requests, found.patience_s) == (
        "a/b",
        "sk-a-real-one",
        "Broker",
        3,
        9.0,
    )
    assert "sk-a-real-one" not in repr(found)
    assert (own := select.model_access(selected(route="own"))) is not None and own.model == "m"
    assert select.model_access(selected()) is None


def test_routes_of_another_interface_are_refused():
    with pytest.raises(UsageError, match="speaks gemini, and route own only chat, responses"):
        select.model_access(selected(api="gemini", route="own"))


def test_missing_keys_are_named(monkeypatch):
    monkeypatch.delenv("BROKER_KEY")
    with pytest.raises(UsageError, match="BROKER_KEY"):
        select.model_access(selected(route="broker", provider=("x",)))


def test_logins_reach_their_hosts():
    harness = selected(login={"files": ["a"], "hosts": ["api.tool.test", "mirror.test"]}).harness
    found = select.login_network(network("allow", ("mirror.test",)), harness)
    assert (found.mode, [str(rule) for rule in found.allowed]) == ("allow", ["mirror.test", "api.tool.test"])
    assert select.login_network(Network(), harness).mode == "allow"
    assert select.login_network(Network(mode="open"), harness).mode == "open"


def test_harnesses_without_providers_are_refused():
    made = selected(route="broker", provider=("x",))
    mute = made._replace(harness=made.harness.model_copy(update={"home": {}}))
    with pytest.raises(UsageError, match="harness tool cannot pass the providers on"):
        select._with_providers(mute, (), unpinned=False)
    assert select._with_providers(mute, (), unpinned=True).model.provider == ()
