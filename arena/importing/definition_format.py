"""Definitions and workloads as FlashInfer-Bench and SOL-ExecBench write them, read strictly. Nothing of theirs runs here."""

from __future__ import annotations

import json
import keyword
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from arena.errors import DataError
from arena.importing.formula import MOST_SIZE, names, value_of
from arena.importing.records import Word

M = TypeVar("M", bound=BaseModel)
MOST_BYTES = 16 << 20
MOST_WORKLOADS = 10_000
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "float4_e2m1fn_x2"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)


class Part(BaseModel):
    """A part of a definition or a workload, in which every key is known."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Const(Part):
    """A size that is the same in every workload."""

    type: Literal["const"]
    value: Size
    description: str | None = None


class Var(Part):
    """A size that each workload gives."""

    type: Literal["var"]
    description: str | None = None


class Expr(Part):
    """A size that follows from others."""

    type: Literal["expr"]
    expression: Annotated[str, Field(max_length=400)]
    description: str | None = None


class Spec(Part):
    """A tensor: the axes of its dimensions, or None for a Python number."""

    shape: Annotated[tuple[Word, ...], Field(max_length=8, strict=False)] | None
    dtype: str
    description: str | None = None

    @model_validator(mode="after")
    def _known(self) -> Spec:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}")
        return self


class Definition(BaseModel):
    """An operator. Keys beside these describe, and are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str | None = None
    axes: Annotated[Mapping[Word, Annotated[Const | Var | Expr, Field(discriminator="type")]], Field(max_length=64)]
    inputs: Annotated[Mapping[Word, Spec], Field(min_length=1, max_length=64)]
    outputs: Annotated[Mapping[Word, Spec], Field(min_length=1, max_length=64)]
    reference: Annotated[str, Field(min_length=1, max_length=200_000)]
    custom_inputs_entrypoint: Word | None = None
    constraints: Annotated[tuple[Annotated[str, Field(max_length=400)], ...], Field(max_length=64, strict=False)] | None = ()

    @model_validator(mode="after")
    def _agrees(self) -> Definition:
        if both := self.inputs.keys() & self.outputs.keys():
            raise ValueError(f"{min(both)!r} is both an input and an output")
        for name, spec in (*self.inputs.items(), *self.outputs.items()):
            if unknown := [axis for axis in spec.shape or () if axis not in self.axes]:
                raise ValueError(f"{name}: {unknown[0]!r} is none of its axes ({', '.join(self.axes)})")
        if wrong := [name for name in (*self.axes, *self.inputs, *self.outputs) if keyword.iskeyword(name)]:
            raise ValueError(f"{wrong[0]!r} is a word of Python's own")
        return self

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """The value of every axis, from those of the variable ones. ValueError where an expression gives none."""
        plain = {name: axis for name, axis in self.axes.items() if not isinstance(axis, Expr)}
        found = {name: axis.value if isinstance(axis, Const) else given[name] for name, axis in plain.items()}
        left = {name: axis.expression for name, axis in self.axes.items() if isinstance(axis, Expr)}
        while left:  # one expression may name another
            ready = [name for name, text in left.items() if names(text) <= found.keys()]
            if not ready:
                raise ValueError(f"axis {min(left)}: {left[min(left)]!r} names something that is no axis, or itself")
            for name in ready:
                text = left.pop(name)
                value = value_of(text, found)
                if not (1 <= value <= MOST_SIZE and float(value).is_integer()):
                    raise ValueError(f"axis {name}: {text!r} is no whole number from 1 to {MOST_SIZE}")
                found[name] = int(value)
        return found

    def broken(self, sizes: Mapping[str, int]) -> str:
        """The first constraint or expression that these sizes break; empty without one. Of those on values nothing is known."""
        follow = {name: axis.expression for name, axis in self.axes.items() if isinstance(axis, Expr)}
        for text in (*(self.constraints or ()), *(f"{name} == ({expression})" for name, expression in follow.items())):
            try:
                if names(text) <= sizes.keys() and not value_of(text, sizes):
                    return text
            except ValueError:
                continue  # of another form: `indptr[-1] == total`
        return ""


class Random(Part):
    """New values for each call."""

    type: Literal["random"]


class Custom(Part):
    """Values of the definition's own function."""

    type: Literal["custom"]


class Scalar(Part):
    """A Python number."""

    type: Literal["scalar"]
    value: bool | int | Annotated[float, Field(allow_inf_nan=False)]


class Safetensors(Part):
    """Values out of a file."""

    type: Literal["safetensors"]
    path: str
    tensor_key: str


class Workload(BaseModel):
    """One call: the variable sizes, and where each input comes from. Keys beside these are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    uuid: Annotated[str, Field(min_length=1, max_length=200)]
    axes: Mapping[str, Size]
    inputs: Mapping[str, Annotated[Random | Custom | Scalar | Safetensors, Field(discriminator="type")]]
    tolerance: Mapping[str, Any] | None = None

    @field_validator("tolerance")
    @classmethod
    def _finite(cls, value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        for name, each in (value or {}).items():
            if isinstance(each, int | float) and not abs(each) <= sys.float_info.max:
                raise ValueError(f"{name} is no finite number")
        return value

    def fault(self, definition: Definition) -> str:
        """Why it is no workload of that definition; empty when it is one."""
        variable = [name for name, axis in definition.axes.items() if isinstance(axis, Var)]
        for what, given, wanted in (("axes", self.axes, variable), ("inputs", self.inputs, definition.inputs)):
            if unknown := sorted(given.keys() - {*wanted}):
                return f"{what}.{unknown[0]}: the definition has {', '.join(wanted) or 'none'}"
            if missing := [name for name in wanted if name not in given]:
                return f"{what}: {missing[0]!r} is missing"
        for name, source in self.inputs.items():
            if isinstance(source, Custom):
                if definition.custom_inputs_entrypoint is None:
                    return f"inputs.{name}: is custom, and the definition has no custom_inputs_entrypoint"
            elif isinstance(source, Scalar) != (definition.inputs[name].shape is None):
                wanted_form = "a scalar" if definition.inputs[name].shape is None else "a tensor"
                return f"inputs.{name}: is {source.type}, and the definition has {wanted_form} there"
        if 0 < sum(isinstance(source, Custom) for source in self.inputs.values()) < len(self.inputs):
            return "inputs: all of them are custom, or none"
        try:
            sizes = definition.sizes(self.axes)
        except ValueError as error:
            return str(error)
        broken = definition.broken(sizes)
        return f"axes: break the constraint {broken!r}" if broken else ""


def read_definition(path: Path) -> Definition:
    """The definition in a JSON file. DataError names the file, and the place within it."""
    return _validated(Definition, _json(path, _text(path)), str(path))


def read_workloads(path: Path, definition: Definition) -> tuple[Workload, ...]:
    """The workloads in a file of JSON lines, or traces that hold them. DataError names the line that is none of `definition`."""
    found = list[Workload]()
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        data = _json(path, line, number)
        if isinstance(data, dict) and "workload" in data:  # a trace of FlashInfer-Bench
            if data.get("definition") != definition.name:
                raise DataError(f"{place}: is for the definition {data.get('definition')!r}, not for {definition.name!r}")
            data = data["workload"]
        workload = _validated(Workload, data, place)
        if fault := workload.fault(definition):
            raise DataError(f"{place}: {fault}")
        found.append(workload)
        if len(found) > MOST_WORKLOADS:
            raise DataError(f"{path}: holds more than {MOST_WORKLOADS} workloads")
    if not found:
        raise DataError(f"{path}: holds no workload: one JSON object a line")
    return tuple(found)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise DataError(f"{path}: is larger than {MOST_BYTES >> 20} MiB")
        return data.decode()
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8") from None


def _json(path: Path, text: str, line: int | None = None) -> Any:  # noqa: ANN401
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{line or error.lineno}: is not JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}{f':{line}' if line else ''}: is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("one object holds the same name twice")
    return found


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _validated(model: type[M], data: object, place: str) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise DataError(f"{place}: {f'{at}: ' if at else ''}{first['msg'].removeprefix('Value error, ')[:300]}") from None
