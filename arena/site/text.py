"""Hostile text made fit for a page: visible control characters, caps, highlighted source. Nothing else here makes markup."""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Token, _TokenType

from arena.acceptable import BLANK_LETTERS

CHARACTERS = 4000
"""Shown of any one text."""
HIGHLIGHTED_CHARACTERS, BLANK_LINES = 20_000, 100
"""A source that is longer, or has more blank lines in a row, has line numbers and no colours. The lexers are regular expressions:
20,000 blank lines take them 25 s."""
NUMBERED_LINES = 10_000
"""A source of more lines has no line numbers, as its page would be larger."""
SOURCE_BYTES = 1_500_000
"""Of a source's markup. A larger one loses its colours, then its line numbers, then its end."""
BLANK = BLANK_LETTERS | set("\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800") | {chr(n) for n in range(0xFE00, 0xFE10)}
BLANK |= {chr(n) for n in range(0xE0100, 0xE01F0)}
"""Letters and marks that Python calls printable, and that no reader sees."""
LINE_CHARACTERS = 500
"""Shown of a line in a difference."""
TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and cursor moves of a terminal."""
ODD = re.compile(r"[^\n\t\x20-\x7e]")
FORMATTER = HtmlFormatter(classprefix="p-", linenos="inline", lineanchors="L", anchorlinenos=True, wrapcode=True)
QUOTES = ('"""', "'''")


def shown(text: object, most: int = CHARACTERS) -> str:
    """The text as a page may hold it, unescaped: characters that cannot be seen become `⟨U+202E⟩`, and a long text is cut."""
    whole = str(text)
    visible = ODD.sub(_visible, TERMINAL.sub("", whole[:most].replace("\r\n", "\n")))
    return visible if len(whole) <= most else f"{visible} [{len(whole) - most:,} more characters]"


def printed(value: object) -> object:
    """What an expression of a template prints: every text through `shown`. Only templates, `code` and `marked` make markup."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def code(source: str) -> Markup:
    """A solution as lines with numbers, each with an anchor `L-<number>`; CUDA in long strings is highlighted as such."""
    text = shown(source, max(len(source), 1))
    lines = text.split("\n")
    blank = max((len(list(run)) for is_blank, run in groupby(lines, lambda line: not line.strip()) if is_blank), default=0)
    attempts = [iter([(Token.Text, text)])] if len(lines) <= NUMBERED_LINES else []
    if len(text) <= HIGHLIGHTED_CHARACTERS and blank <= BLANK_LINES:
        attempts.insert(0, _tokens(text))
    for tokens in attempts:
        output = io.StringIO()
        FORMATTER.format(tokens, output)
        if len(output.getvalue().encode()) <= SOURCE_BYTES:
            return Markup(output.getvalue())
    kept = bisect_right(range(len(text) + 1), SOURCE_BYTES, key=lambda most: len(escape(text[:most]).encode())) - 1
    left_out = f" [{len(text) - kept:,} more characters]" if kept < len(text) else ""
    return Markup('<pre tabindex="0">{}{}</pre>').format(Markup("") + text[:kept], left_out)


def style() -> str:
    """The style sheet of highlighted source, in light and dark."""
    light, dark = (
        HtmlFormatter(style=name, classprefix="p-", nobackground=True).get_style_defs(".highlight")
        for name in ("xcode", "native")
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def marked(line: str, kind: str) -> Markup:
    """One line of a difference."""
    return Markup('<span class="{}">{}</span>').format(kind, shown(line, LINE_CHARACTERS))


def _tokens(source: str) -> Iterator[tuple[_TokenType, str]]:
    """Python's tokens, where long strings that hold CUDA are replaced by the tokens of that language."""
    text: list[tuple[_TokenType, str]] = []
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        if kind in Token.Literal.String:
            text.append((kind, value))
            continue
        yield from _string(text)
        text = []
        yield kind, value
    yield from _string(text)


def _string(tokens: list[tuple[_TokenType, str]]) -> Iterator[tuple[_TokenType, str]]:
    first = next((number for number, (_, value) in enumerate(tokens) if value in QUOTES), None)
    inner = "".join(value for _, value in tokens[first + 1 : -1]) if first is not None else ""
    if "#include" not in inner and "__global__" not in inner:
        yield from tokens
        return
    yield from tokens[: (first or 0) + 1]
    yield from CudaLexer(stripnl=False, ensurenl=False).get_tokens(inner)
    yield tokens[-1]


def _visible(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() and character not in BLANK else f"⟨U+{ord(character):04X}⟩"
