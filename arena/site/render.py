"""Pages from templates: every printed text is made harmless, and each page allows its own style and script alone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

import arena
from arena.site.run_page import spent_by
from arena.site.steps import Step
from arena.site.text import code, printed, shown, style

HERE = Path(__file__).parent
STEPS_A_PAGE = 250
PAGE_BYTES = 1 << 20
"""A page of steps or changes ends before the one that would pass this size. One alone is below 0.8 MB."""


class Paged(NamedTuple):
    """One page of a transcript, or of changes."""

    body: Sequence[Markup]
    first: int
    last: int
    """Lines of trajectory.jsonl, or numbers of changes."""


class Renderer:
    """The templates, with the two assets that every page holds."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=printed,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        css, script = (HERE / "site.css").read_text(encoding="utf-8") + style(), (HERE / "site.js").read_text(encoding="utf-8")
        self._environment.globals |= {
            "css": Markup(css),
            "script": Markup(script),
            "policy": (
                f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; "
                "base-uri 'none'; form-action 'none'"
            ),
            "version": arena.__version__,
            "code": code,
        }
        self._environment.filters |= {"shown": shown, "number": number, "time": time}

    def page(self, template: str, path: str, **variables: object) -> str:
        """The page that is written to `path`, from which its links are relative."""
        root = "../" * path.count("/")
        return self._environment.get_template(f"{template}.html.j2").render(root=root, path=path, **variables)

    def transcript(self, steps: Sequence[Step], spent: Sequence[tuple[float, float]]) -> list[Paged]:
        """The steps in pages."""
        macro = self._macro("step")
        return list(_paged(((step.line, macro(step, spent_by(spent, step.at_s))) for step in steps), STEPS_A_PAGE))

    def changes(self, changes: Sequence[object]) -> list[Paged]:
        """The changes between snapshots in pages."""
        macro = self._macro("change")
        return list(_paged(((at, macro(change, at)) for at, change in enumerate(changes, start=1)), len(changes)))

    def _macro(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._environment.get_template("parts.html.j2").module, name)


def number(value: float | None, form: str = ".3g") -> str:
    """A number, or a dash where it is not known."""
    return "–" if value is None else format(value, form)


def time(seconds: float | None) -> str:
    """Seconds in a unit that fits."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            break
    return f"{seconds * factor:.4g} {unit}"


def csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as comma-separated text. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    lines = [",".join(rows[0])] if rows else []
    for row in rows:
        lines.append(",".join(_quoted(value) for value in row.values()))
    return "\n".join(lines) + "\n" if lines else ""


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = shown(value, 300).replace("\n", " ").replace("\t", " ")
    return '"' + ("'" if text.lstrip()[:1] in ("=", "+", "-", "@") else "") + text.replace('"', '""') + '"'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _paged(parts: Iterator[tuple[int, Markup]], most: int) -> Iterator[Paged]:
    body, numbers, size = list[Markup](), list[int](), 0
    for at, part in parts:
        bytes_ = len(part.encode())
        if body and (len(body) >= most or size + bytes_ > PAGE_BYTES):
            yield Paged(body, numbers[0], numbers[-1])
            body, numbers, size = [], [], 0
        body.append(part)
        numbers.append(at)
        size += bytes_
    if body:
        yield Paged(body, numbers[0], numbers[-1])
