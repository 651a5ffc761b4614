"""Whatever a worker sends, and however: within its limit the judge has a time that was sent, or a verdict that counts."""

import pytest

pytest.importorskip("torch")

import replies
from hypothesis import HealthCheck, given, settings


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(replies.scenarios())
def test_any_replies_are_answered(scenario):
    replies.play(scenario)


@pytest.mark.parametrize("path", sorted(replies.CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_replies_of_the_corpus_are_answered(path):
    replies.play(replies.read(path))


def test_a_good_reply_is_accepted():
    assert replies.play(replies.Scenario("run", [], [("write", replies.GOOD.hex())])) == "accepted"
