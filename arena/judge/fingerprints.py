"""Fingerprints of code that stay the same when its names, numbers, comments and layout change.

Each run of `RUN` tokens is hashed with its names numbered in the order in which they come. Of each `WINDOW` hashes the smallest
is kept (winnowing). So any copy of RUN + WINDOW - 1 tokens shares a fingerprint with its source. The time is linear in the
code, also in code that was written to be slow to read.
"""

from __future__ import annotations

import ast
import base64
import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator
from hashlib import blake2b

RUN, WINDOW = 24, 8
"""Tokens of one hash, about three lines; and hashes of which one is kept. With 32 tokens honest kernels hold less of others by
chance (0.14 for 0.19), but copies with a foreign statement after every fourth hold much less (0.51 for 0.67)."""
LEAST_TELLING = 4
"""Tokens of a run that are more than names, numbers and separators. Lists of arguments have fewer and are alike everywhere."""
HASH_BYTES = 3
"""Two different runs have one hash once in 16 million."""
NUMBER, STRING = "0", '"'
SEPARATORS = frozenset({NUMBER, STRING, *",()[]{}=:;*&"})
C_TOKEN = re.compile(
    r"""(?P<skip>^[ \t]*\#(?:[^\n\\]|\\.)*|\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
    r"""|(?P<name>[^\W\d]\w*)"""
    r"""|(?P<number>\d[\w.]*|\.\d[\w.]*)"""
    r"""|(?P<mark><<<|>>>|<<=|>>=|[-+*/%&|^=!<>]=|\+\+|--|->|::|<<|>>|&&|\|\||.)""",
    re.DOTALL | re.MULTILINE,
)
"""No alternative can begin to match and then fail far on, so that no text takes more than linear time."""
C_WORDS = """
alignas auto bool break case char class const constexpr continue default do double else enum extern false float for goto if inline
int long namespace new nullptr operator return short signed sizeof static struct switch template this true typedef typename union
unsigned using void volatile while
"""
C_WORD = re.compile(rf"__\w+|{'|'.join(C_WORDS.split())}")
"""Words of C++, which no renaming changes, and names that begin with two underscores: intrinsics and qualifiers."""


def of_python(source: str) -> set[int]:
    """The fingerprints of a Python file and of C or CUDA code in its strings; raises what `ast.parse` and `tokenize` raise."""
    found = fingerprints(python_tokens(source))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "{" in node.value and ";" in node.value:
            found |= fingerprints(c_tokens(node.value))
    return found


def packed(found: set[int]) -> str:
    """Fingerprints as text."""
    return base64.b64encode(b"".join(value.to_bytes(HASH_BYTES) for value in sorted(found))).decode()


def unpacked(text: str) -> set[int]:
    """The fingerprints in such a text."""
    data = base64.b64decode(text)
    return {int.from_bytes(data[at : at + HASH_BYTES]) for at in range(0, len(data), HASH_BYTES)}


def fingerprints(tokens: Iterable[str]) -> set[int]:
    """The fingerprints of one stretch of code; none where it is shorter than a run."""
    hashes = list(_hashes(list(tokens)))
    return {min(hashes[at : at + WINDOW]) for at in range(max(1, len(hashes) - WINDOW + 1))} if hashes else set()


def _hashes(tokens: list[str]) -> Iterator[int]:
    """A hash of each run that tells more than a list of names does."""
    telling = [token[0] != "$" and token not in SEPARATORS for token in tokens]
    count = sum(telling[: RUN - 1])
    for at in range(len(tokens) - RUN + 1):
        count += telling[at + RUN - 1] - (telling[at - 1] if at else 0)
        if count >= LEAST_TELLING:
            numbers: dict[str, int] = {}
            run = (f"${numbers.setdefault(token, len(numbers))}" if token[0] == "$" else token for token in tokens[at : at + RUN])
            yield int.from_bytes(blake2b(" ".join(run).encode(), digest_size=HASH_BYTES).digest())


def python_tokens(source: str) -> Iterator[str]:
    """The tokens of Python code without comments and layout. A name that can change begins with `$`; one after a dot stays."""
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string if keyword.iskeyword(token.string) or before == "." else f"${token.string}"
        elif token.type == tokenize.NUMBER:
            yield NUMBER
        elif token.type == tokenize.STRING:
            yield STRING
        elif token.type == tokenize.OP:
            yield token.string
        before = token.string


def c_tokens(source: str) -> Iterator[str]:
    """The same of C, C++ or CUDA code, without the preprocessor's lines."""
    for match in C_TOKEN.finditer(source):
        text = match.group()
        if match.lastgroup == "name":
            yield text if C_WORD.fullmatch(text) else f"${text}"
        elif match.lastgroup != "skip":
            yield {"number": NUMBER, "string": STRING}.get(str(match.lastgroup), text)
