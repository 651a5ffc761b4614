"""The key stays out of answers and texts, and no size, header or error of an answer confirms a guess at it."""

import base64
import html
import json
import random
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider import KEY, Answer, Provider, Reply, json_answer, run

from arena.gateway.model.redact import KeyGuard, holds_key, scrubbed

ODD_KEY = 'ab"c\\d/+e=f&0123'
CHUNKINGS = 1000


def passed(key: str, data: bytes, sizes: list[int]) -> list[bytes]:
    """What passes the guard after each piece, and at the end."""
    guard, found = KeyGuard(key), []
    for size in [*sizes, len(data)]:
        found.append(guard.feed(data[:size]))
        data = data[size:]
    return [*found, guard.rest()]


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(0, 12), max_size=30), st.booleans())
def test_the_key_never_passes_in_any_pieces(before: bytes, after: bytes, sizes: list[int], there: bool):
    key = "aab-aabc"
    data = before + (key.encode() if there else b"") + after
    came = b"".join(passed(key, data, sizes))
    if holds_key(data, key):
        assert data.startswith(came)
        assert not holds_key(came, key)
        assert key.encode()[:4] not in came.removeprefix(before)
    else:
        assert came == data


def test_no_chunking_of_an_echo_confirms_a_guess():
    """The attack: a provider echoes guesses, and what is held back at the ends of pieces confirms each character."""
    draw, letters = random.Random(7), string.ascii_letters + string.digits
    confirmed = 0
    for _ in range(CHUNKINGS):
        length = draw.randrange(1, len(KEY))
        right, wrong = KEY[:length], KEY[: length - 1] + draw.choice(letters.replace(KEY[length - 1], ""))
        before, after = draw.choice(("", " ", "x" * 50, '{"error": "')), draw.choice(("", '"}', " unknown", "\n\n"))
        sizes = [draw.randrange(0, 20) for _ in range(draw.randrange(20))]
        one, other = (
            [len(piece) for piece in passed(KEY, f"{before}{guess}{after}".encode(), sizes)] for guess in (right, wrong)
        )
        confirmed += one != other
    assert confirmed == 0
    print(f"\n{CHUNKINGS} chunkings of an echo: {confirmed} confirmed a guess")


SPELLINGS = {
    "plain": lambda key: key,
    "upper case": str.upper,
    "lower case": str.lower,
    "backwards": lambda key: key[::-1],
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}\r\n".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"a:{key}".encode()).decode(),
    "hexadecimal": lambda key: key.encode().hex(),
    "percent": lambda key: quote(key, safe=""),
    "percent for all": lambda key: "".join(f"%{ord(sign):02X}" for sign in key),
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON for all": lambda key: "".join(f"\\u{ord(sign):04x}" for sign in key),
    "JSON in JSON": lambda key: "".join(f"\\\\u{ord(sign):04x}" for sign in key),
    "HTML": html.escape,
    "HTML for all": lambda key: "".join(f"&#{ord(sign)};" for sign in key),
    "HTML, hexadecimal": lambda key: "".join(f"&#x{ord(sign):x};" for sign in key),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("key", [KEY, ODD_KEY], ids=["usual", "odd"])
def test_no_spelling_of_the_key_passes(spelling: str, key: str):
    draw = random.Random(spelling)
    spelt = SPELLINGS[spelling](key).encode()
    for _ in range(100):
        data = b'data: {"x": "' + spelt + b'"}\n\n'
        came = b"".join(passed(key, data, [draw.randrange(1, 30) for _ in range(30)]))
        assert len(came) < data.index(spelt) + 1 and data.startswith(came)
    assert "[" in scrubbed(f"a {spelt.decode()} b", key) and spelt.decode() not in scrubbed(f"a {spelt.decode()} b", key)


def test_text_without_the_key_passes_unchanged():
    for text in ('{"a": "100% \\u0041 &#65; \\\\ c2stcmVhbC0wMTIz"}', KEY[:-1], "x" * 9000):
        assert b"".join(passed(KEY, text.encode(), [3] * 400)) == text.encode()
        assert scrubbed(text, KEY) == text


def test_everything_passes_without_a_key():
    guard = KeyGuard(None)
    assert guard.feed(b"abc") == b"abc"
    assert scrubbed("a key", None) == "a key"
    assert scrubbed(f"a {ODD_KEY} here", ODD_KEY) == "a [the key] here"


def echoed(provider: Provider, kind: str, text: str, size: int) -> None:
    """Let the provider answer with that text, in pieces of that size."""
    whole = {"model": "m-1", "choices": [{"finish_reason": "stop", "message": {"content": text}}]}
    body = json.dumps(whole if kind == "body" else {"error": {"message": f"unknown field {text}"}}).encode()
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    provider.answers = [
        {
            "body": Answer(pieces, 200, {"Content-Type": "application/json"}),
            "error": Answer(pieces, 422, {"Content-Type": "application/json"}),
            "header": Answer([b"{}"], 422, {"X-Echo": text}),
            "name of a header": Answer([b"{}"], 422, {f"X-{text}": "1"}),
        }[kind]
    ]


@pytest.mark.parametrize("kind", ["body", "error", "header", "name of a header"])
def test_an_echoing_provider_confirms_no_character(tmp_path: Path, kind: str):
    """Through the whole gateway: for every length, the right guess and a wrong one look the same inside."""

    def shape(reply: Reply) -> tuple[int, bool, int, int]:
        return reply.status, reply.whole, len(reply.body), len(str(reply.headers))

    with run(tmp_path, "chat", json_answer(200, {})) as agent:
        for length in range(1, len(KEY), 3):
            seen = []
            for guess in (KEY[:length], KEY[: length - 1] + ("x" if KEY[length - 1] != "x" else "y")):
                echoed(agent.upstream, kind, guess, 7)
                reply = agent.ask()
                assert guess in str(reply)
                seen.append(shape(reply))
            assert seen[0] == seen[1]
