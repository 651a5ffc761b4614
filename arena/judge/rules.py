"""The names a problem forbids, found in the source by what they resolve to, not by substring.

A comment, docstring or string never trips a rule, and an alias never escapes one. What cannot be seen this way
(`getattr` with a computed name, `exec`, native code) is the auditor's business: this is a notice, not a wall.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

METHODS = "torch.Tensor."
"""A forbidden name that starts so is matched on any attribute of that name whose owner is not a module."""


class Found(NamedTuple):
    """A forbidden name and the line that uses it."""

    name: str
    line: int


def forbidden(source: str, names: Iterable[str]) -> list[Found]:
    """Every use of a forbidden dotted name. `pkg.*` covers a module; `torch.Tensor.x` any `.x`; `operator.matmul` also `@`."""
    tree = ast.parse(source)
    rules = set(names)
    aliases = dict(_imports(tree))
    found = [Found(rule, line) for dotted, line in _uses(tree, aliases) if (rule := _rule(dotted, rules))]
    return sorted(set(found), key=lambda use: (use.line, use.name))


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Local name -> the dotted name it stands for."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                for alias in names:
                    yield (
                        alias.asname or alias.name.partition(".")[0],
                        alias.name if alias.asname else alias.name.partition(".")[0],
                    )
            case ast.ImportFrom(module, names, 0) if module:
                for alias in names:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def _uses(tree: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Dotted names that the source imports, touches, or reaches by `getattr` with a constant."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                for alias in names:
                    yield alias.name, node.lineno
            case ast.ImportFrom(module, names, 0) if module:
                for alias in names:
                    yield f"{module}.{alias.name}", node.lineno
            case ast.Name(name) if name in aliases:
                yield aliases[name], node.lineno
            case ast.Attribute(owner, name):
                yield _dotted(owner, aliases) + "." + name, node.lineno
            case ast.Call(ast.Name("getattr"), [owner, ast.Constant(str() as name), *_]):
                yield _dotted(owner, aliases) + "." + name, node.lineno
            case ast.Call(ast.Name("__import__") | ast.Attribute(_, "import_module"), [ast.Constant(str() as name), *_]):
                yield name, node.lineno
            case ast.BinOp(_, ast.MatMult(), _) | ast.AugAssign(_, ast.MatMult(), _):
                yield "operator.matmul", node.lineno


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """The full name of an attribute's owner; `torch.Tensor` when it is not a module path, since it may be one."""
    match node:
        case ast.Name(name) if name in aliases:
            return aliases[name]
        case ast.Attribute(owner, name):
            inner = _dotted(owner, aliases)
            return METHODS[:-1] if inner == METHODS[:-1] else f"{inner}.{name}"
    return METHODS[:-1]


def _rule(dotted: str, rules: set[str]) -> str | None:
    if dotted in rules:
        return dotted
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        rule = ".".join(parts[:end]) + ".*"
        if rule in rules:
            return rule
    return None
