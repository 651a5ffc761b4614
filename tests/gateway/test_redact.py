"""The key stays out of answers and texts."""

from hypothesis import given
from hypothesis import strategies as st

from arena.gateway.model.redact import KeyGuard, scrubbed


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(0, 12), max_size=30), st.booleans())
def test_the_key_never_passes_in_any_pieces(before: bytes, after: bytes, sizes: list[int], there: bool):
    key = "aab-aabc"
    data = before + (key.encode() if there else b"") + after
    guard, passed, rest = KeyGuard(key), b"", data
    for size in [*sizes, len(data)]:
        passed += guard.feed(rest[:size])
        rest = rest[size:]
    passed += guard.rest()
    if key.encode() in data:
        assert guard.found
        assert data.startswith(passed)
        assert not any(passed.endswith(key.encode()[:length]) for length in range(4, 9))
    else:
        assert passed == data


def test_everything_passes_without_a_key():
    guard = KeyGuard(None)
    assert guard.feed(b"abc") == b"abc"
    assert scrubbed("a key", None) == "a key"
    assert scrubbed("a KEY here", "KEY") == "a [the key] here"
