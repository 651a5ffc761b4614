"""Files that hold records. Reading is strict and reports every fault with its place; writing is atomic."""

from __future__ import annotations

import difflib
import json
import math
import os
import secrets
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from arena.errors import DataError
from arena.files import strict_yaml
from arena.files.strict_yaml import Fault, Node, Place

F = TypeVar("F")
R = TypeVar("R")
MAX_BYTES = 16 << 20
MOST_GUESSES = 3
"""Names that begin with or contain an unknown one of two letters or more: so many are suggested."""
LEAST_LIKENESS = 0.6
"""Of another name that is suggested, by difflib's ratio."""
"""Largest document read: far above any annotation, far below the machine's memory."""
WORDING = {
    "missing": "is required and missing",
    "model_type": "should be a mapping",
    "mapping_type": "should be a mapping",
    "dict_type": "should be a mapping",
    "tuple_type": "should be a list",
    "string_type": "should be text: put it in quotes",
}
"""Own words where pydantic's message describes Python and not the file."""


def read_yaml(path: Path, model: type[R], **given: object) -> R:
    """The record in a YAML file. `given` are fields set by the file's path, such as `name`; the file may not hold them."""
    top, faults = strict_yaml.parse(_text(path))
    if top is None:
        raise DataError(_listing(path, faults))
    data = top.data()
    if isinstance(data, dict):
        for key in data.keys() & given:
            node = top.child(key) or top
            faults.append(Fault(node.key_at, f"{key}: remove it, the file's path sets it to {given[key]!r}"))
        data |= given
    try:
        record = TypeAdapter(model).validate_python(data)
    except ValidationError as error:
        known = {fault.at for fault in faults}
        faults += [fault for fault in _faults(error, top, model, given) if fault.at not in known]
    if faults:
        raise DataError(_listing(path, faults))
    return record


def read_json(path: Path, model: type[R] | TypeAdapter[R]) -> R:
    """The record in a JSON file. A duplicate key is an error; the strings Infinity and NaN of `to_json` become floats again."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise DataError(f"{path}: {key}: is written twice")
        return dict(pairs)

    try:
        data = json.loads(_text(path), object_pairs_hook=unique)
        return (model if isinstance(model, TypeAdapter) else TypeAdapter(model)).validate_python(data)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{path}: nested too deep") from None
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise DataError("\n".join(f"{path}: {'.'.join(map(str, d['loc']))}: {_message(d)}{_got(d)}" for d in details)) from None


def read_all(files: Iterable[F], read: Callable[[F], R]) -> list[R]:
    """What `read` returns for each file, which is a path or a name. One error lists the faults of all files."""
    records, faults = [], []
    for file in files:
        try:
            records.append(read(file))
        except DataError as error:
            faults.append(str(error))
    if faults:
        raise DataError("\n".join(faults))
    return records


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown problem 'paged_atention': did you mean 'paged_attention'? (known: ...)`, with the nearest name first.

    Nearest is the same name in other letters, then names that begin with what was written, that contain it, that resemble it.
    """
    written = name.lower()

    def nearness(other: str) -> tuple[int, float]:
        low = other.lower()
        holds = (low == written) + low.startswith(written) + (written in low) if len(written) > 1 else 0
        return holds, difflib.SequenceMatcher(None, written, low).ratio()

    nearest = sorted(sorted(known), key=nearness, reverse=True)
    best = nearness(nearest[0]) if nearest else (0, 0.0)
    if best[0]:
        guesses = [other for other in nearest if nearness(other)[0] == best[0]][:MOST_GUESSES]
    else:
        guesses = nearest[:1] if best[1] >= LEAST_LIKENESS else []
    guess = f": did you mean {' or '.join(map(repr, guesses))}?" if guesses else ""
    return f"unknown {kind} {name!r}{guess} (known: {', '.join(nearest) or 'none'})"


def to_yaml(record: BaseModel | Mapping[str, Any]) -> str:
    """The record as YAML in the order of its fields. The same record gives the same bytes on every machine."""
    return strict_yaml.dump(record.model_dump(mode="json") if isinstance(record, BaseModel) else record)


def to_json(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> str:
    """Records or plain data as indented JSON. Numbers that JSON lacks become the strings Infinity, -Infinity and NaN."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_yaml(path: Path, record: BaseModel | Mapping[str, Any]) -> None:
    """Write `to_yaml` of the record atomically."""
    write_text(path, to_yaml(record))


def write_json(path: Path, value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Write `to_json` of the value atomically."""
    write_text(path, to_json(value))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, flush, rename, flush the folder: no reader and no crash leaves half a file."""
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Flush the names of a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return _plain(value.model_dump(mode="json"))
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {key: _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
    return value


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise DataError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, the largest file that arena reads")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None


def _listing(path: Path, faults: Iterable[Fault]) -> str:
    return "\n".join(f"{path}:{fault.at.line}:{fault.at.column}: {fault.text}" for fault in sorted(set(faults)))


def _faults(error: ValidationError, top: Node, model: object, given: Mapping[str, object]) -> list[Fault]:
    """One fault per place. The messages of a union's members about one value are joined by `or`."""
    texts_at: dict[tuple[Place, str, str], list[str]] = {}
    for detail in error.errors(include_url=False):
        text, loc = _message(detail), detail["loc"]
        if loc and loc[0] in given:
            texts_at[Place(1, 1), str(loc[0]), " (set by the file's path)"] = [text + _got(detail)]
            continue
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # pydantic counts only valid items, and each invalid one has its own fault
        if detail["type"] == "value_error":
            # The message of a check of a whole record begins with the faulty key (`work: ...`): point at that key.
            key, colon, rest = text.partition(": ")
            inner = tuple(key.split("."))
            if colon and len(_descend(top, (*loc, *inner))[1]) == len(_descend(top, loc)[1]) + len(inner):
                loc, text = (*loc, *inner), rest
        node, keys = _descend(top, loc)
        place, got = node.at, _got(detail)
        if detail["type"] == "missing":
            keys = (*keys, str(loc[-1]))
        elif detail["type"] == "extra_forbidden":
            place, got, text = node.key_at, "", unknown("key", keys[-1], _fields(model, keys[:-1]) - given.keys())
        elif loc[-1:] == ("[key]",):
            place = node.key_at
        texts_at.setdefault((place, ".".join(keys), got), []).append(text)
    return [
        Fault(at, f"{key + ': ' if key else ''}{' or '.join(dict.fromkeys(texts))}{got}")
        for (at, key, got), texts in texts_at.items()
    ]


def _descend(node: Node, loc: Sequence[int | str]) -> tuple[Node, tuple[str, ...]]:
    """The node of an error, and its keys: `loc` without the names of union members, which no file holds."""
    keys: list[str] = []
    for part in loc:
        if child := node.child(part):
            node = child
            keys.append(str(part))
    return node, tuple(keys)


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] == "too_short":
        return f"needs {detail['ctx']['min_length']} or more entries"
    return WORDING.get(detail["type"]) or detail["msg"].removeprefix("Input ")


def _got(detail: ErrorDetails) -> str:
    if detail["type"] in ("missing", "value_error", "extra_forbidden"):
        return ""
    text = repr(detail["input"])
    return f" (got {text if len(text) < 80 else text[:77] + '...'})"


def _fields(kind: Any, keys: Sequence[str]) -> set[str]:
    """Keys that a record type allows at this place."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if not keys:
            return set(kind.model_fields)
        return _fields(kind.model_fields[keys[0]].annotation, keys[1:]) if keys[0] in kind.model_fields else set()
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fields(arguments[0], keys)
    if origin in (Union, types.UnionType):
        return set().union(*(_fields(member, keys) for member in arguments))
    if not arguments or not keys:
        return set()
    return _fields(arguments[1] if origin is Mapping else arguments[0], keys[1:])
