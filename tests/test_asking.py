"""Which provider is asked, with which key, and who may answer."""

import pytest

from arena import asking
from arena.catalog import Chosen
from arena.errors import UsageError
from arena.gateway import Network, network
from arena.gateway.asked import Caps
from arena.schema import Harness, Model

ROUTES = """
schema_version: 1
routes:
  broker: {title: Broker, apis: [chat], base_url: "https://broker.test/v1", key: BROKER_KEY, pinned: true}
  own: {title: Own, apis: [chat, responses], base_url: "http://127.0.0.1:8000/v1", key: null}
"""


@pytest.fixture(autouse=True)
def routes(tmp_path, monkeypatch):
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES)
    monkeypatch.setenv("ARENA_ROUTES", str(file))
    monkeypatch.setenv("BROKER_KEY", "sk-a-real-one")


def chosen(api="chat", login=None, **model) -> Chosen:
    entry = {"schema_version": 1, "name": "tool", "title": "Tool", "command": ["tool"], "models": {"m": {}}}
    entry |= {"api": api, "login": login, "home": {"config": "{{ provider | tojson }}"}}
    return Chosen(Harness.model_validate(entry), "m", Model(**model), "")


def test_a_broker_needs_a_pin():
    with pytest.raises(UsageError, match=r"Broker would choose who answers for a/b.*--provider P.*--unpinned"):
        asking.pinned(chosen(route="broker", id="a/b"))


@pytest.mark.parametrize(
    ("own", "given", "unpinned", "found"),
    [(("x",), (), False, ("x",)), (("x",), ("y", "z"), False, ("y", "z")), (("x",), (), True, ()), ((), (), True, ())],
)
def test_who_may_answer(own, given, unpinned, found):
    made = asking.pinned(chosen(route="broker", id="a/b", provider=own), given, unpinned=unpinned)
    assert made.model.provider == found
    assert asking.asked(made).provider == found


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
        asking.pinned(chosen(**model), **given)


def test_asked():
    found = asking.asked(chosen(route="broker", id="a/b", provider=("x",)), Caps(requests=3), 9.0)
    assert (found.model, found.key, found.route.title, found.caps.requests, found.patience_s) == (
        "a/b",
        "sk-a-real-one",
        "Broker",
        3,
        9.0,
    )
    assert "sk-a-real-one" not in repr(found)
    assert asking.asked(chosen(route="own")).model == "m"
    assert asking.asked(chosen()) is None


def test_a_route_that_speaks_otherwise():
    with pytest.raises(UsageError, match="speaks gemini, and route own only chat, responses"):
        asking.asked(chosen(api="gemini", route="own"))


def test_a_key_that_is_missing_is_named_and_not_shown(monkeypatch):
    monkeypatch.delenv("BROKER_KEY")
    with pytest.raises(UsageError, match="BROKER_KEY"):
        asking.asked(chosen(route="broker", provider=("x",)))


def test_a_login_may_reach_its_hosts():
    harness = chosen(login={"files": ["a"], "hosts": ["api.tool.test", "mirror.test"]}).harness
    found = asking.for_login(network("allow", ("mirror.test",)), harness)
    assert (found.mode, [str(rule) for rule in found.allowed]) == ("allow", ["mirror.test", "api.tool.test"])
    assert asking.for_login(Network(), harness).mode == "allow"
    assert asking.for_login(Network(mode="open"), harness).mode == "open"


def test_a_harness_that_cannot_say_who_may_answer():
    made = chosen(route="broker", provider=("x",))
    mute = made._replace(harness=made.harness.model_copy(update={"home": {}}))
    with pytest.raises(UsageError, match="harness tool cannot say who may answer"):
        asking.pinned(mute)
    assert asking.pinned(mute, unpinned=True).model.provider == ()
