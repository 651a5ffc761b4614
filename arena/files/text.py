"""Text: one plain line for a terminal or a record, and files rendered from Jinja2 templates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2

from arena.errors import DataError

SHOWN = 160
"""Characters of a line that the progress line shows."""


def plain(text: str, max_chars: int = SHOWN) -> str:
    """One short line that a terminal shows unchanged: no control or format characters, no escape codes, no surrogates."""
    spaced = " ".join(text[: 8 * max_chars].split())
    return "".join(character for character in spaced if unicodedata.category(character)[0] != "C")[:max_chars]


def render(
    template: Path, *, autoescape: bool = False, filters: Mapping[str, Callable[..., object]] | None = None, **variables: object
) -> str:
    """The text of a template with `variables` filled in. A name that is not given is an error, never an empty string."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=autoescape, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(filters or {})
    try:
        return environment.from_string(template.read_text(encoding="utf-8")).render(**variables)
    except jinja2.TemplateSyntaxError as error:
        raise DataError(f"{template}:{error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise DataError(f"{template}: {error.message} (given: {', '.join(variables)})") from None
