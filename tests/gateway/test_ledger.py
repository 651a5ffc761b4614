"""A ledger, its totals and the stops that follow: the same live and from the file, however the run ended."""

import json
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import DataError
from arena.files import jsonl
from arena.files.jsonl import JsonLines
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.model.ledger import (
    FAILED,
    FAULTS,
    GOOD,
    Began,
    Closed,
    Ended,
    Full,
    Ledger,
    Line,
    Refused,
    Stopped,
    Tokens,
    Totals,
    opened,
    read,
)
from arena.gateway.model.outcome import Doubt, caps_exhausted, failure_reason, request_failed
from arena.gateway.model.usage import with_estimate
from arena.schema import Route, Usage


def began(n: int, s: float = 0.0, **more: Any) -> Began:
    given: dict[str, Any] = {
        "kind": "model",
        "api": "chat",
        "model": "m",
        "effort": None,
        "provider": (),
        "path": "p",
        "bytes": 1,
    }
    return Began(n=n, at="2026-11-20T00:00:00+00:00", s=s, **given | more)


def ended(n: int, s: float = 0.0, how: str = "whole", **more: Any) -> Ended:
    return Ended(n=n, s=s, how=how, **{"status": 200, "finish": "stop"} | more)  # type: ignore[arg-type]


def totals(*lines: Line) -> Totals:
    found = Totals()
    for line in lines:
        found = found.add(line)
    return found


hows = st.sampled_from(("whole", "refused", "incomplete", "cut", "stalled", "error", "rejected", "stopped", "left"))
counts = st.builds(Tokens, *[st.integers(0, 1000)] * 6)
ends = st.builds(
    lambda s, how, status, used, cost, model: ended(
        0, s, how, status=status, tokens=used, cost_usd=cost, cost_source=None if cost is None else "prices", model=model
    ),
    st.floats(0, 1e4).map(lambda s: round(s, 3)),
    hows,
    st.sampled_from((200, 429, None)),
    st.none() | counts,
    st.none() | st.floats(0, 10),
    st.sampled_from((None, "m", "m-2")),
)


@given(
    st.lists(st.tuples(ends, st.booleans(), st.sampled_from(("model", "count")), st.none() | st.sampled_from(("low", "high"))))
)
def test_live_totals_equal_those_of_the_file(tmp_path_factory: pytest.TempPathFactory, requests: list[Any]):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    with opened(path) as ledger:
        for n, (end, comes, kind, effort) in enumerate(requests, 1):
            assert ledger.add(began(n, 0.5, kind=kind, effort=effort)) == ""
            ledger.add(Refused("t", 1.0, 403, "p", "r"))
            if comes:
                ledger.add(Ended(**{**asdict(end), "n": n, "tokens": end.tokens}))
        live = ledger.totals.ended(3e4)
        ledger.add(Closed(3e4, live.backoff_s))
    assert read(path) == live
    with path.open("ab") as file:
        file.write(b'{"event": "began", "n": 9')  # cut off by a kill
    assert read(path) == live
    assert live.requests == sum(kind == "model" for _, _, kind, _ in requests)


def test_totals_add_up_tokens_and_cost():
    one = ended(1, 2.0, tokens=Tokens(10, 20, 30, 5, 40, 50), cost_usd=0.5, cost_source="provider", model="m", provider="P")
    two = ended(2, 3.0, tokens=Tokens(1, 2, 3, 0, 4, 5), cost_usd=0.25, cost_source="prices", model="m-2")
    usage = totals(began(1, effort="high"), began(2, effort="low"), began(3, effort="high"), one, two).usage
    assert usage == Usage(
        requests=3,
        input_tokens=11,
        cache_read_tokens=22,
        cache_write_tokens=33,
        output_tokens=44,
        reasoning_tokens=55,
        cost_usd=0.75,
        cost_source="mixed",
        models=("m", "m-2"),
        providers=("P",),
        efforts=("high", "low"),
    )
    assert totals(began(1), one).tokens == 150


@pytest.mark.parametrize(("cost", "source", "total"), [(None, None, None), (0.5, "prices", None)])
def test_one_unknown_cost_makes_the_total_unknown(cost: float | None, source: Any, total: float | None):
    priced = ended(1, tokens=Tokens(1), cost_usd=cost, cost_source=source)
    unknown = ended(2, tokens=Tokens(1))
    assert totals(began(1), began(2), priced, unknown).usage.cost_usd is total
    assert totals(began(1), began(2), unknown, priced).usage.cost_usd is total
    assert totals(began(1), began(2), priced, ended(2)).usage.cost_usd == cost  # without tokens: unmetered


@pytest.mark.parametrize(
    ("how", "status", "is_failed", "unmetered"),
    [
        ("whole", 200, 0, 1),
        ("refused", 200, 0, 1),
        ("incomplete", 200, 1, 1),
        ("cut", 200, 1, 1),
        ("error", 500, 1, 0),
        ("error", None, 1, 0),
        ("rejected", 400, 1, 0),
        ("stopped", 200, 1, 1),
        ("left", None, 0, 1),
        ("left", 200, 0, 1),
    ],
)
def test_each_ending_counts_as_failed_or_unmetered(how: str, status: int | None, is_failed: int, unmetered: int):
    usage = totals(began(1), ended(1, how=how, status=status)).usage
    assert (usage.failed, usage.unmetered) == (is_failed, unmetered)
    assert (how in FAILED) == bool(is_failed)
    assert not set(FAULTS) & set(GOOD)


def test_back_off_ends_when_the_next_good_request_begins():
    found = totals(
        began(1, 0.0),
        ended(1, 10.0, "error", status=429),
        began(2, 12.0),
        ended(2, 13.0, "cut"),
        began(3, 20.0),
        ended(3, 90.0),
        began(4, 91.0),
        ended(4, 92.0, "error", status=500),
        began(5, 91.5),  # beside the failed one
        ended(5, 95.0),
    )
    assert found.usage.backoff_s == 10.0
    assert found.failing_since_s is None


def test_back_off_is_bounded_and_counts_while_it_lasts():
    failing = totals(began(1), ended(1, 10.0, "error", status=429))
    assert [failing.backoff_s(until_s) for until_s in (5.0, 15.0, 310.0, 9999.0)] == [0.0, 5.0, 300.0, 300.0]
    again = failing.add(began(2, 900.0)).add(ended(2, 901.0)).add(began(3, 902.0)).add(ended(3, 903.0, "error", status=500))
    assert (again.usage.backoff_s, again.backoff_s(904.0)) == (300.0, 301.0)
    assert again.add(Closed(950.0, 333.0)).ended(999.0).backoff_s == 333.0


def test_429_beside_other_requests_is_no_back_off():
    """A program that sends many requests at once causes the limit itself."""
    limited = [ended(n, 10.0 + n, "error", status=429) for n in (1, 2, 3)]
    together = totals(began(1), began(2), began(3), *limited)
    assert (together.failing_since_s, together.usage.failed, together.backoff_s(99.0)) == (None, 3, 0.0)
    apart = totals(began(1), limited[0], began(2), limited[1])
    assert (apart.failing_since_s, apart.backoff_s(31.0)) == (11.0, 20.0)
    busy = totals(began(1), began(2), ended(1, 11.0, "error", status=503), ended(2, 12.0, "error", status=503))
    assert busy.failing_since_s == 11.0  # the provider's own failure, however many ask


def test_an_unknown_cost_leaves_what_is_known_as_the_least():
    priced: Any = {"tokens": Tokens(1), "cost_usd": 0.5, "cost_source": "prices"}
    unpriced: Any = {"tokens": Tokens(1)}
    assert totals(began(1), ended(1, **priced)).usage.cost_at_least_usd is None
    assert totals(began(1), ended(1, **unpriced)).usage.cost_at_least_usd is None
    both = totals(began(1), ended(1, **priced), began(2), ended(2, **unpriced)).usage
    assert (both.cost_usd, both.cost_at_least_usd) == (None, 0.5)


def test_only_the_first_names_are_kept():
    many = totals(*[began(n, effort=f"e{n}") for n in range(99)], *[ended(n, model=f"m{n}", provider=f"p{n}") for n in range(99)])
    assert (len(many.usage.efforts), len(many.usage.models), len(many.usage.providers)) == (16, 16, 16)


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"tokens": Tokens(1, output=1)}, 0),
        ({"tokens": Tokens(1, output=1), "finish": None}, 1),
        ({"tokens": None}, 1),
        ({"how": "left", "tokens": Tokens(1, output=1)}, 0),
        ({"how": "cut", "finish": None, "tokens": Tokens(1)}, 1),
        ({"how": "stalled", "status": None, "finish": None}, 1),
        ({"how": "error", "status": None, "finish": None}, 0),
    ],
)
def test_an_answer_without_its_end_is_unmetered(more: Any, missing: int):
    assert totals(began(1), ended(1, **more)).usage.unmetered == missing


def about_to_charge(prices: str | None = "openai") -> ModelAccess:
    route = Route(title="The provider", apis=("chat",), base_url="https://p.test", key=None, prices=prices)
    return ModelAccess("chat", route, None, "gpt-5.5")


def test_unmetered_answers_are_charged_by_estimate():
    whole = ended(1, tokens=Tokens(10, output=5), cost_usd=0.5)
    assert with_estimate(about_to_charge(), began(1, bytes=9999), whole) == whole
    lost = with_estimate(about_to_charge(), began(1, bytes=3000), ended(1, how="left", finish=None, bytes=600))
    assert (lost.charged_tokens, lost.tokens) == (1200, None)
    assert lost.charged_usd is not None
    assert lost.charged_usd > 0
    thinking = with_estimate(
        about_to_charge(), began(1, bytes=3000, max_tokens=10), ended(1, how="left", status=None, finish=None, seconds=60.0)
    )
    assert thinking.charged_tokens == 7000
    for bound, tokens in ((20_000, 21_000), (None, 65_000)):  # no answer began: the provider may generate all that it may
        gone = ended(1, how="left", status=None, finish=None, seconds=0.1)
        assert with_estimate(about_to_charge(), began(1, bytes=3000, max_tokens=bound), gone).charged_tokens == tokens
    partly = with_estimate(
        about_to_charge(), began(1, bytes=3000), ended(1, how="cut", finish=None, tokens=Tokens(50, output=1), bytes=600)
    )
    assert partly.charged_tokens == 199
    assert with_estimate(about_to_charge(None), began(1), ended(1, finish=None)).charged_usd is None
    tier = with_estimate(about_to_charge(), began(1), ended(1, tier="priority", tokens=Tokens(1000, output=1000)))
    assert (tier.charged_tokens, (tier.charged_usd or 0.0) > 0.0, tier.cost_usd) == (0, True, None)
    assert with_estimate(about_to_charge(), began(1, kind="count"), ended(1)) == ended(1)


def test_estimates_count_against_the_caps_only():
    used = totals(began(1), ended(1, finish=None, charged_tokens=15, charged_usd=0.5))
    assert (used.usage.cost_usd, used.usage.input_tokens, used.usage.output_tokens) == (None, 0, 0)
    assert caps_exhausted(about(tokens=16, cost_usd=0.6), used) is None
    for caps in ({"tokens": 15}, {"cost_usd": 0.5}):
        stop = caps_exhausted(about(**caps), used)
        assert stop is not None
        assert (stop.status, "estimated" in stop.message) == ("budget_exhausted", True)
    unknown = totals(began(1), ended(1, finish=None, charged_usd=None))
    assert caps_exhausted(about(tokens=1000), unknown) is None
    stop = caps_exhausted(about(cost_usd=1000.0), unknown)
    assert stop is not None
    assert "the cost of an answer is unknown" in stop.message


def test_a_request_without_its_end_is_unmetered(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        for line in (began(1), ended(1, 10.0, "error", status=429), began(2, 12.0), began(3, 17.0, kind="count")):
            assert ledger.add(line) == ""
    usage = read(path)
    assert (usage.requests, usage.unmetered, usage.backoff_s) == (2, 1, 7.0)


def test_refusals_and_counting_leave_room_for_the_model(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        for n in range(1, 3000):
            assert ledger.add(Refused("t", 1.0, 403, "p" * 1024, "r" * 1024)) == ""
            assert ledger.add(began(n, kind="count", path="p" * 1024)) == ""
            assert ledger.add(ended(n, error="e" * 1024)) == ""
        assert path.stat().st_size < 5 << 20
        assert ledger.add(began(3000)) == ""
    assert read(path).requests == 1


@pytest.mark.parametrize(
    "text", ["{}\n", "nonsense\n", '{"event": "ended"}\n', '{"event": "other"}\n', "\n", b"\xff\n".decode("latin-1")]
)
def test_invalid_ledgers_name_the_line(tmp_path: Path, text: str):
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps(asdict(Full())) + "\n" + text, encoding="latin-1")
    with pytest.raises(DataError, match=r"ledger\.jsonl:2: not a line of a ledger"):
        read(path)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "none")


def test_a_ledger_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("")
    with pytest.raises(FileExistsError), opened(path):
        pass


def test_a_full_ledger_ends_with_a_full_line(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b" " * (jsonl.BYTES - 400))
    with FileIO(path, "a") as file:
        ledger = Ledger(JsonLines(file))
        while ledger.add(began(2)) == "":
            pass
        assert ledger.add(began(3)) == "the ledger is full"
    assert path.stat().st_size <= jsonl.BYTES + 100
    assert path.read_bytes().endswith(b'{"event": "full"}\n')


def test_a_full_disk_is_reported():
    with FileIO("/dev/full", "a") as file:
        assert Ledger(JsonLines(file)).add(began(1)) == "the ledger cannot be written (No space left on device)"


def about(**caps: Any) -> ModelAccess:
    route = Route(title="The provider", apis=("chat",), base_url="https://p.test", key=None)
    return ModelAccess("chat", route, None, "m", caps=Caps(**caps), patience_s=300.0)


def test_used_up_caps_give_a_stop():
    used = totals(began(1), ended(1, tokens=Tokens(10, output=5), cost_usd=0.5, cost_source="provider"))
    assert caps_exhausted(about(), used) is None
    assert caps_exhausted(about(requests=2, tokens=16, cost_usd=0.51), used) is None
    for caps in ({"requests": 1}, {"tokens": 15}, {"cost_usd": 0.5}):
        stop = caps_exhausted(about(**caps), used)
        assert stop is not None
        assert stop.status == "budget_exhausted"


def test_a_cap_in_dollars_counts_known_costs():
    used = totals(began(1), began(2), ended(1, tokens=Tokens(1)), ended(2, tokens=Tokens(1), cost_usd=2.0, cost_source="prices"))
    assert used.usage.cost_usd is None
    assert caps_exhausted(about(cost_usd=1.0), used) is not None


def test_patience_ends_without_a_good_answer():
    first, last = ended(1, 10.0, "error", status=503, error="busy"), ended(2, 310.0, "error", status=503, error="busy")
    assert request_failed(about(), totals(began(1), first), first, other_arriving=False) is None
    both = totals(began(1), first, began(2), last)
    assert request_failed(about(), both, last, other_arriving=True) is None
    assert request_failed(about(), both, last, other_arriving=False) == Doubt(
        "The provider: no good answer for 300 s; the last: status 503: busy", ends=True
    )
    good = totals(began(1), first, began(3, 20.0), ended(3, 30.0), began(2), last)
    assert request_failed(about(), good, last, other_arriving=False) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ended(1, how="error", status=None, error="gone"), "no answer: gone"),
        (ended(1, how="error", status=500), "status 500"),
        (ended(1, how="cut"), "an answer that broke off"),
        (ended(1, how="stalled"), "an answer that stalled"),
        (ended(1, how="incomplete"), "an answer without a finish reason"),
        (ended(1, how="error", error="overloaded"), "an error inside an answer: overloaded"),
        (ended(1, how="stopped", error="model 'x' answered"), "model 'x' answered"),
    ],
)
def test_failure_reasons_name_the_cause(line: Ended, words: str):
    assert failure_reason(line) == words


def test_every_line_has_its_event_name():
    for line in (
        began(1),
        ended(1),
        Refused("t", 0.0, 403, "p", "r"),
        Stopped("t", 0.0, "provider_error", "m"),
        Full(),
        Closed(0.0, 0.0),
    ):
        assert asdict(line)["event"] == type(line).__name__.lower()
