"""What a page is made of, as a parser sees it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

WORD = re.compile(r"[a-z0-9-]+")
ELEMENTS = frozenset(
    WORD.findall(
        "html head meta title style body a header nav main footer script h1 h2 h3 p b i br span small code pre div section table "
        "thead tbody tfoot tr th td dl dt dd ul li details summary figure figcaption svg path line circle text output input label"
    )
)
ATTRIBUTES = frozenset(
    WORD.findall(
        "lang charset name content http-equiv class href id aria-label aria-labelledby aria-current aria-hidden role tabindex "
        "scope colspan data-v data-sort data-kind data-first data-last data-pages hidden d cx cy r x y x1 x2 y1 y2 width height "
        "viewbox text-anchor transform type placeholder value checked"
    )
)
OWN_LINK = re.compile(r"(\.\./)*[A-Za-z0-9][A-Za-z0-9_./-]*(#[A-Za-z0-9_-]+)?|#[A-Za-z0-9_-]+")
INVISIBLE = re.compile(r"[^\n\t\x20-\x7e]")


class Page(HTMLParser):
    """One file, parsed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words = ""
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        self._inside = tag if tag in self.inline else ""
        if name := given.get("id"):
            self.ids.append(name)
        if link := given.get("href"):
            self.links.append(link)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.inline[self._inside].append(data)
        else:
            self.words += data

    def faults(self) -> list[str]:
        """Elements, attributes and links that arena's templates do not make."""
        found = [f"<{tag}>" for tag, _ in self.elements if tag not in ELEMENTS]
        found += [
            f"{tag} {name}={value}" for tag, given in self.elements for name, value in given.items() if name not in ATTRIBUTES
        ]
        found += [f"link {link}" for link in self.links if not OWN_LINK.fullmatch(link)]
        found += [f"{len(self.inline[tag])} x <{tag}>" for tag in self.inline if len(self.inline[tag]) != 1]
        found += [f"id {name} twice" for name in set(self.ids) if self.ids.count(name) > 1]
        odd = {character for character in INVISIBLE.findall(self.words) if not character.isprintable() and character != "\xa0"}
        return found + [f"U+{ord(character):04X}" for character in odd]
