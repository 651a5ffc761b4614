"""Uses of names that a problem forbids, found in the source by what they resolve to, not by substring.

The search follows aliases through imports, assignments, loops, default arguments and what the source's own functions return, in
one scope. A comment or a string never breaks a rule, nor does a method of the source's own class or of a library that it loads.
This is a notice, not a barrier. It does not see `exec`, names computed at run time (`getattr(torch, "b" + "mm")`), modules passed
as arguments or put into a container later, and native code. Those are for the evidence and for a reviewer to find.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from arena.judge.name_resolution import METHODS, Bound, Seen, Values, bindings, plain, propagated, values_of


class Use(NamedTuple):
    """A forbidden name and the line that uses it."""

    name: str
    line: int


def forbidden(source: str, names: Iterable[str]) -> list[Use]:
    """Every use of a forbidden dotted name, in time linear in the tree of the source; raises what `ast.parse` raises.

    `pkg.*` covers a module, `pkg.x*` all names with that beginning, `torch.Tensor.x` any `.x` of what may be a tensor, and
    `operator.matmul` also `@`.
    """
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:  # The list grows during the loop, parents before children.
        if isinstance(node, ast.Attribute):
            nodes.append(node.value)
        elif not isinstance(node, (ast.Name, ast.Constant)):
            nodes += ast.iter_child_nodes(node)
    exact = set(names)
    stems = {name[:-1]: name for name in exact if name.endswith("*")}
    lines: defaultdict[Values, set[int]] = defaultdict(set)
    for values, line in _uses(nodes, propagated(list(bindings(nodes)))):
        lines[values].add(line)
    uses: set[Use] = set()
    for values, numbers in lines.items():
        for dotted in values:
            rules = {dotted} & exact or {rule for stem, rule in stems.items() if f"{dotted}.".startswith(stem)}
            uses |= {Use(rule, line) for rule in rules for line in numbers}
    return sorted(uses, key=lambda use: (use.line, use.name))


def _uses(nodes: list[ast.AST], bound: Bound) -> Iterator[tuple[Values, int]]:
    """What each name, attribute, call and import of the source may stand for, with its line."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    operands = {side for node in nodes if isinstance(node, (ast.BinOp, ast.Compare)) for side in ast.iter_child_nodes(node)}
    fields = {key[1:] for key in bound if key.startswith(".")}
    seen: Seen = {}
    for node in reversed(nodes):  # From the leaves up: the parts of an expression are known before it, however deep it is.
        match node:
            case ast.Attribute():
                values = seen[node] = values_of(node, bound, seen)
                # A field that the source itself declares, or that it computes with, is not a method.
                if node in operands or (node.attr in fields and node not in called):
                    values = Values(value for value in values if not value.startswith(METHODS))
                if isinstance(node.ctx, ast.Load):
                    yield values, node.lineno
            case ast.Name() | ast.Call() | ast.Subscript():
                values = seen[node] = values_of(node, bound, seen)
                if isinstance(node, ast.Call) or isinstance(node.ctx, ast.Load):
                    yield values, node.lineno
            case ast.Import(names):
                yield Values(plain(alias.name) for alias in names), node.lineno
            case ast.ImportFrom(str() as module, names, 0):
                yield Values(plain(f"{module}.{alias.name}") for alias in names), node.lineno
            case ast.BinOp(_, ast.MatMult(), _) | ast.AugAssign(_, ast.MatMult(), _):
                yield Values({"operator.matmul"}), node.lineno
