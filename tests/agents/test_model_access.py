"""Which provider is asked, with which key, and who may answer."""

import pytest

from arena.agents import model_access
from arena.catalog import SelectedModel
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


def chosen(api="chat", login=None, **model) -> SelectedModel:
    entry = {"schema_version": 1, "name": "tool", "title": "Tool", "command": ["tool"], "models": {"m": {}}}
    entry |= {"api": api, "login": login, "home": {"config": "{{ provider | tojson }}"}}
    return SelectedModel(Harness.model_validate(entry), "m", Model(**model), "")


def test_a_broker_needs_a_pin():
    with pytest.raises(UsageError, match=r"Broker would choose who answers for a/b.*--provider P.*--unpinned"):
        model_access.pinned(chosen(route="broker", id="a/b"))


@pytest.mark.parametrize(
    ("own", "given", "unpinned", "found"),
    [(("x",), (), False, ("x",)), (("x",), ("y", "z"), False, ("y", "z")), (("x",), (), True, ()), ((), (), True, ())],
)
def test_who_may_answer(own, given, unpinned, found):
    made = model_access.pinned(chosen(route="broker", id="a/b", provider=own), given, unpinned=unpinned)
    assert made.model.provider == found
    assert model_access.asked(made).provider == found


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        ({"route": "own"}, {"provider": ["x"]}, "answers by itself"),
        ({"route": "own"}, {"unpinned": True}, "answers by itself"),
        ({"route": "broker"}, {"provider": ["x"], "unpinned": True}, "exclude each other"),
        ({}, {"unpinned": True}, "asks no provider"),
        ({"route": "brokr"}, {}, "brokr"),
    ],
)
def test_what_means_nothing_is_refused(model, given, words):
    with pytest.raises(UsageError, match=words):
        model_access.pinned(chosen(**model), **given)


def test_asked():
    found = model_access.asked(chosen(route="broker", id="a/b", provider=("x",)), Caps(requests=3), 9.0)
    assert (found.model, found.key, found.route.title, found.caps.requests, found.patience_s) == (
        "a/b",
        "sk-a-real-one",
        "Broker",
        3,
        9.0,
    )
    assert "sk-a-real-one" not in repr(found)
    assert model_access.asked(chosen(route="own")).model == "m"
    assert model_access.asked(chosen()) is None


def test_a_route_that_speaks_otherwise():
    with pytest.raises(UsageError, match="speaks gemini, and route own only chat, responses"):
        model_access.asked(chosen(api="gemini", route="own"))


def test_a_key_that_is_missing_is_named_and_not_shown(monkeypatch):
    monkeypatch.delenv("BROKER_KEY")
    with pytest.raises(UsageError, match="BROKER_KEY"):
        model_access.asked(chosen(route="broker", provider=("x",)))


def test_a_login_may_reach_its_hosts():
    harness = chosen(login={"files": ["a"], "hosts": ["api.tool.test", "mirror.test"]}).harness
    found = model_access.for_login(network("allow", ("mirror.test",)), harness)
    assert (found.mode, [str(rule) for rule in found.allowed]) == ("allow", ["mirror.test", "api.tool.test"])
    assert model_access.for_login(Network(), harness).mode == "allow"
    assert model_access.for_login(Network(mode="open"), harness).mode == "open"


def test_a_harness_that_cannot_say_who_may_answer():
    made = chosen(route="broker", provider=("x",))
    mute = made._replace(harness=made.harness.model_copy(update={"home": {}}))
    with pytest.raises(UsageError, match="harness tool cannot say who may answer"):
        model_access.pinned(mute)
    assert model_access.pinned(mute, unpinned=True).model.provider == ()
