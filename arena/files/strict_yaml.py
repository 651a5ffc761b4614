"""The YAML that arena reads and writes: YAML 1.2 scalars, a place for every value; no tags, aliases or duplicate keys.

PyYAML's own loaders are not used. They read `no` as False, `12:30:00` as 45000 and `1e-3` as text. They keep the last of two
equal keys in silence, expand aliases without bound, and crash the process (segmentation fault) on 100,000 open brackets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

MAX_DEPTH = 50
INTEGER = re.compile(r"[-+]?[0-9]+")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
WORDS: Mapping[str, float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


class Place(NamedTuple):
    """A position in a file, both counted from 1."""

    line: int
    column: int


class Fault(NamedTuple):
    """One thing wrong with a file."""

    at: Place
    text: str


@dataclass(frozen=True)
class Node:
    """One value of a file."""

    value: str | int | float | list[Node] | dict[str, Node] | None
    """A scalar, or the nodes of a list or a mapping."""
    at: Place
    key_at: Place
    """The place of its key; `at` when it has none."""

    def child(self, key: int | str) -> Node | None:
        """The entry of a mapping or list, or None."""
        if isinstance(self.value, dict) and isinstance(key, str):
            return self.value.get(key)
        return self.value[key] if isinstance(self.value, list) and isinstance(key, int) and key < len(self.value) else None

    def data(self) -> Any:
        """Plain dicts, lists and scalars."""
        match self.value:
            case dict() as entries:
                return {key: node.data() for key, node in entries.items()}
            case list() as entries:
                return [node.data() for node in entries]
            case scalar:
                return scalar


def parse(text: str) -> tuple[Node | None, list[Fault]]:
    """The one document in `text`, and the faults of its form. The node is None when `text` is not YAML."""
    faults: list[Fault] = []
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    documents = []
    try:
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                documents.append(_node(event, events, faults, 0))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return None, [Fault(_place(mark) if mark else Place(1, 1), " ".join(filter(None, (error.context, error.problem))))]
    except yaml.YAMLError as error:
        return None, [Fault(Place(1, 1), f"not YAML: {' '.join(str(error).split())}")]
    if len(documents) > 1:
        faults.append(Fault(documents[1].at, "a second document: one file holds one record"))
    return documents[0] if documents else Node(None, Place(1, 1), Place(1, 1)), faults


def _node(event: Any, events: Iterator[Any], faults: list[Fault], depth: int, key_at: Place | None = None) -> Node:
    at = _place(event.start_mark)
    if depth > MAX_DEPTH:
        raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=event.start_mark)
    if isinstance(event, yaml.AliasEvent):
        faults.append(Fault(at, f"alias *{event.anchor} is not allowed: write the value out"))
        return Node(None, at, key_at or at)
    if event.tag not in (None, "!"):
        faults.append(Fault(at, f"tag {event.tag} is not allowed: write the plain value"))
    if isinstance(event, yaml.ScalarEvent):
        return Node(_scalar(event.value) if event.implicit[0] else event.value, at, key_at or at)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events, faults, depth + 1))
        return Node(items, at, key_at or at)
    entries: dict[str, Node] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        _entry(event, events, faults, depth + 1, entries)
    return Node(entries, at, key_at or at)


def _entry(event: Any, events: Iterator[Any], faults: list[Fault], depth: int, entries: dict[str, Node]) -> None:
    """Read one key and its value. Every key is text: `no`, `1` and `null` are names."""
    at = _place(event.start_mark)
    if isinstance(event, yaml.ScalarEvent):
        key = event.value
        if key in entries:
            faults.append(Fault(at, f"{key}: is written twice (first on line {entries[key].key_at.line})"))
        entries[key] = _node(next(events), events, faults, depth, at)
    else:
        faults.append(Fault(at, "a key must be a plain word"))
        _node(event, events, faults, depth)
        _node(next(events), events, faults, depth)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _scalar(text: str) -> str | int | float | None:
    if text in WORDS:
        return WORDS[text]
    # int() raises above 4300 digits. Such a number stays text, and the record reports that it is not a number.
    if INTEGER.fullmatch(text) and len(text) < 4000:
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


class _Dumper(yaml.SafeDumper):
    """The pure Python emitter. The C emitter breaks lines differently, so files would differ between machines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Several lines as a literal block; quotes around text that YAML 1.2 would read as another type."""
    style = None
    if re.search("[\x85\u2028\u2029]", text):
        style = '"'  # YAML reads these line breaks as newlines unless they are escaped
    elif "\n" in text:
        style = "|"
    elif not isinstance(_scalar(text), str):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _mapping(dumper: _Dumper, data: Mapping[str, Any]) -> yaml.MappingNode:
    flow = bool(data) and all(isinstance(value, (int, float)) for value in data.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=flow)


def _list(dumper: _Dumper, data: list[Any]) -> yaml.SequenceNode:
    flow = all(isinstance(value, (int, float)) for value in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _list)


def dump(data: Mapping[str, Any]) -> str:
    """`data` as YAML in its own order: multi-line text as literal blocks, lists and mappings of numbers on one line."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
