"""The names a problem forbids, found in the source by what they resolve to, not by substring.

Aliases are followed through imports, assignments, loops, default arguments and what the source's own functions return, in one
scope. A comment or a string never trips a rule, nor does a method of the source's own class or of a library that it loads.
This is a notice, not a wall: `exec`, names computed at run time (`getattr(torch, "b" + "mm")`), modules handed over as
arguments or put into a container later, and native code are not seen. They are the auditor's business.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

ANY = "torch.Tensor"
"""What an expression stands for when it may be a tensor. Other values: a dotted path, the next two, and `f()` for the source's
own function or class f; under the key `f()` stands what a call of it gives, and under `.x` what is stored as an attribute x."""
OWN = "<own>"
"""A constant or an instance of the source's own class: a method of it is no tensor's, a field of it may be a tensor."""
NATIVE = "<native>"
"""A library that the source built or loaded: all in it is its own, and what a call returns may be a tensor."""
METHODS = ANY + "."
LOADERS = ("ctypes.", "torch.utils.cpp_extension.", "torch.ops.load_library", "importlib.util.", "triton.")
PLAIN = {"builtins.int", "builtins.float", "builtins.bool", "builtins.str", "types.SimpleNamespace"}
IMPORTERS = {"builtins.__import__", "importlib.__import__", "importlib.import_module"}
GETTERS = ("operator.attrgetter:", "operator.methodcaller:")
MOST = 8
"""Parts of a dotted path, values of a name, levels of an assigned expression, rounds of propagation: past this we look no
further, so that no source takes long."""
SPELLINGS = (
    (r"^torch\..*\btorch\b", "torch"),
    (r"^torch\.(functional|_VF|_C\._VariableFunctions)\b", "torch"),
    (r"^torch\.(F|_C\._nn|nn\.modules\.\w+\.F)\b", "torch.nn.functional"),
    (r"^torch\.nn\.modules\.(\w+\.)?(?=[A-Z])", "torch.nn."),
    (r"^torch\._C\._linalg\.linalg_", "torch.linalg."),
    (r"^torch\.(_C\._?TensorBase|_tensor\.Tensor)\b", ANY),
    (r"^_operator\b", "operator"),
    (r"^(.*\.__[ri]?matmul__|operator\.imatmul)$", "operator.matmul"),
    (r"^torch\.Tensor\.(\w*[^\W_])_$", METHODS + r"\1"),
)
SPELT = re.compile("|".join(spelling for spelling, _ in SPELLINGS))

Values = frozenset[str]
Bound = Mapping[str, Values]
Seen = dict[object, Values]
Binding = tuple[str, ast.expr | str]
UNKNOWN = Values({ANY})


class Found(NamedTuple):
    """A forbidden name and the line that uses it."""

    name: str
    line: int


def forbidden(source: str, names: Iterable[str]) -> list[Found]:
    """Every use of a forbidden dotted name. `pkg.*` covers a module, `pkg.x*` all names that start so, `torch.Tensor.x` any `.x`
    of what may be a tensor, `operator.matmul` also `@`. In time linear in the source; raises what `ast.parse` raises."""
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:  # It grows meanwhile, parents before children.
        if isinstance(node, ast.Attribute):
            nodes.append(node.value)
        elif not isinstance(node, (ast.Name, ast.Constant)):
            nodes += ast.iter_child_nodes(node)
    exact = set(names)
    stems = {name[:-1]: name for name in exact if name.endswith("*")}
    lines: defaultdict[Values, set[int]] = defaultdict(set)
    for values, line in _uses(nodes, _propagated(list(_bindings(nodes)))):
        lines[values].add(line)
    found: set[Found] = set()
    for values, places in lines.items():
        for dotted in values:
            rules = {dotted} & exact or {rule for stem, rule in stems.items() if f"{dotted}.".startswith(stem)}
            found |= {Found(rule, line) for rule in rules for line in places}
    return sorted(found, key=lambda use: (use.line, use.name))


def _uses(nodes: list[ast.AST], bound: Bound) -> Iterator[tuple[Values, int]]:
    """What each name, attribute, call and import of the source may stand for, with its line."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    numbers = {side for node in nodes if isinstance(node, (ast.BinOp, ast.Compare)) for side in ast.iter_child_nodes(node)}
    fields = {key[1:] for key in bound if key.startswith(".")}
    seen: Seen = {}
    for node in reversed(nodes):  # From the leaves up: however deep an expression is, its parts are known.
        match node:
            case ast.Attribute():
                values = seen[node] = _values(node, bound, seen)
                # A field that the source itself declares, or that it reckons with, is no method.
                if node in numbers or (node.attr in fields and node not in called):
                    values = Values(value for value in values if not value.startswith(METHODS))
                if isinstance(node.ctx, ast.Load):
                    yield values, node.lineno
            case ast.Name() | ast.Call() | ast.Subscript():
                values = seen[node] = _values(node, bound, seen)
                if isinstance(node, ast.Call) or isinstance(node.ctx, ast.Load):
                    yield values, node.lineno
            case ast.Import(names):
                yield Values(_plain(alias.name) for alias in names), node.lineno
            case ast.ImportFrom(str() as module, names, 0):
                yield Values(_plain(f"{module}.{alias.name}") for alias in names), node.lineno
            case ast.BinOp(_, ast.MatMult(), _) | ast.AugAssign(_, ast.MatMult(), _):
                yield Values({"operator.matmul"}), node.lineno


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[Binding]:
    """What the source binds: the key (see ANY), and the expression or the value bound to it."""
    instance: dict[ast.arg, ast.expr] = {}
    for node in nodes:
        match node:
            case ast.Attribute() | ast.Name() | ast.Constant():
                pass  # Most of a long source.
            case ast.Import(names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    yield alias.asname or root, _plain(alias.name if alias.asname else root)
            case ast.ImportFrom(module, names, level):
                for alias in names:
                    if alias.name != "*":
                        yield alias.asname or alias.name, OWN if level else _plain(f"{module}.{alias.name}")
                    elif not level:
                        yield "*", _plain(str(module))
            case ast.Assign(targets, value):
                for target in targets:
                    yield from _assigned(target, value)
            case ast.AnnAssign(target, annotation, value):
                yield from _assigned(target, value or _call(annotation))
            case ast.AugAssign(target):
                yield from _assigned(target, ANY)
            case ast.NamedExpr(target, value):
                yield from _assigned(target, value)
            case ast.For(target, iterated) | ast.AsyncFor(target, iterated) | ast.comprehension(target, iterated):
                yield from _assigned(target, _item(iterated))
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name, f"{name}()"
                yield from ((f"{name}()", value) for value in _returned(node))
            case ast.ClassDef(name, bases, _, body):
                yield name, f"{name}()"
                yield f"{name}()", OWN
                yield from ((f"{name}()", base) for base in bases)
                yield from (("." + key, value) for key, value in _bindings(s for s in body) if key.isidentifier())
                for method in body:
                    if isinstance(method, ast.FunctionDef) and method.args.args and not _is_static(method):
                        instance[method.args.args[0]] = _call(ast.Name(name))
            case ast.arguments():
                yield from _parameters(node, instance)


def _assigned(target: ast.expr, value: ast.expr | str) -> Iterator[Binding]:
    """The bindings of `target = value`."""
    match target, value:
        case ast.Name(name), _:
            yield name, value
        case ast.Attribute(_, name), _:
            yield "." + name, value
        case ast.Starred(inner), _:
            yield from _assigned(inner, value)
        case ((ast.Tuple(targets) | ast.List(targets)), (ast.Tuple(values) | ast.List(values))) if len(targets) == len(values):
            for each, part in zip(targets, values, strict=True):
                yield from _assigned(each, part)
        case ((ast.Tuple(targets) | ast.List(targets)), _):
            for each in targets:
                yield from _assigned(each, value if isinstance(value, str) else _item(value))


def _parameters(node: ast.arguments, instance: Mapping[ast.arg, ast.expr]) -> Iterator[Binding]:
    """What a caller passes is unknown but for its annotation; a default that is no constant is taken for what is passed."""
    places = [*node.posonlyargs, *node.args]
    defaults = [None] * (len(places) - len(node.defaults)) + node.defaults + node.kw_defaults
    for each, default in zip(places + node.kwonlyargs, defaults, strict=True):
        if default is None or isinstance(default, ast.Constant):
            yield each.arg, instance.get(each) or (_call(each.annotation) if each.annotation else ANY)
        else:
            yield each.arg, default
    yield from ((each.arg, ANY) for each in (node.vararg, node.kwarg) if each)


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """What a function returns, leaving out functions within it."""
    left: list[ast.AST] = list(function.body)
    while left:
        match left.pop():
            case ast.Return(ast.expr() as value):
                yield value
            case ast.expr() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case statement:
                left += ast.iter_child_nodes(statement)


def _is_static(method: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in method.decorator_list)


def _call(function: ast.expr) -> ast.expr:
    """An instance of `function`: what an annotation or `self` stands for."""
    return ast.Call(function, [], [])


def _item(container: ast.expr) -> ast.expr:
    return ast.Subscript(container, ast.Constant(0))


def _propagated(bindings: list[Binding]) -> Bound:
    """What each key may stand for, through chains of aliases in any order."""
    bound: dict[str, Values] = {key: Values() for key, _ in bindings}
    for _ in range(MOST):
        grown = False
        for key, value in bindings:
            if len(before := bound[key]) <= MOST:
                new = Values({value}) if isinstance(value, str) else _values(value, bound, {})
                bound[key] = _union([before, {ANY if each.startswith(METHODS) else each for each in new}])
                grown |= bound[key] != before
        if not grown:
            break
        bindings = bindings[::-1]
    return bound


def _values(node: ast.expr, bound: Bound, seen: Seen, levels: int = MOST) -> Values:
    """What an expression may stand for; nothing, as long as nothing is known to reach it."""
    if (known := seen.get(node)) is not None:
        return known
    if not levels:
        return UNKNOWN
    if isinstance(node, ast.Attribute):
        step = _values(node.value, bound, seen, levels - 1), node.attr
        if (known := seen.get(step)) is None:
            known = seen[step] = _union(_member(value, node.attr, bound) for value in step[0])
        return known

    def values(part: ast.expr) -> Values:
        return _values(part, bound, seen, levels - 1)

    match node:
        case ast.Name(name) if name in bound:
            return bound[name]
        case ast.Name(name):
            plain = Values({f"builtins.{name}"}) if hasattr(builtins, name) else UNKNOWN
            return plain | {_plain(f"{module}.{name}") for module in bound.get("*", ())}
        case ast.Subscript(owner, key):
            return _union(_part(value, key, bound) for value in values(owner))
        case ast.Call(function, arguments):
            given = values(arguments[0]) if arguments else Values()
            return _union(_result(value, given, arguments, bound) for value in values(function))
        case ast.Constant():
            return Values({OWN})
        case ast.NamedExpr(_, value):
            return values(value)
        case ast.IfExp(_, one, other):
            return values(one) | values(other)
        case ast.BoolOp(_, sides) | ast.Tuple(sides) | ast.List(sides) | ast.Set(sides) | ast.Dict(_, sides) if sides:
            return _union(values(side) for side in sides)
    return UNKNOWN


def _member(owner: str, name: str, bound: Bound) -> Values:
    """`owner.name`."""
    if owner == NATIVE:
        return Values({NATIVE})
    if owner == OWN or owner.endswith("()"):
        return bound.get("." + name, UNKNOWN)
    if owner == ANY or owner.startswith(METHODS):
        return bound.get("." + name, UNKNOWN) | {_plain(METHODS + name)}
    return Values({_plain(f"{owner}.{name}")}) if owner.count(".") < MOST else UNKNOWN


def _part(owner: str, key: ast.expr, bound: Bound) -> Values:
    """`owner[key]`, where a container stands for all that is in it."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        if owner == "sys.modules":
            return Values({_plain(key.value)})
        if owner.endswith(".__dict__"):
            return _member(owner.removesuffix(".__dict__"), key.value, bound)
    return UNKNOWN if owner == OWN or owner.endswith("()") or owner.startswith(METHODS) else Values({owner})


def _result(function: str, given: Values, arguments: list[ast.expr], bound: Bound) -> Values:
    """`function(*arguments)`, where the first argument stands for `given`."""
    owner, _, last = function.rpartition(".")
    match arguments:
        case [_, ast.Constant(str() as name), *_] if function == "builtins.getattr":
            return _union(_member(value, name, bound) for value in given)
        case [_] if function == "builtins.vars":
            return Values(f"{value}.__dict__" for value in given)
        case [_] if function.startswith(GETTERS):
            for name in function.partition(":")[2].split("."):
                given = _union(_member(value, name, bound) for value in given)
            return given
        case [ast.Constant(str() as name), *_] if function in IMPORTERS:
            return Values({_plain(name), _plain(name.partition(".")[0])} if last == "__import__" else {_plain(name)})
        case [ast.Constant(str() as name), *_] if f"{function}:" in GETTERS:
            return Values({f"{function}:{name}"})
        case [ast.Constant(str() as name), *_] if last == "__getattribute__":
            return _member(owner, name, bound)
        case [ast.Constant(str()) as key, *_] if last == "get" and (owner == "sys.modules" or owner.endswith(".__dict__")):
            return _part(owner, key, bound)
    if function.endswith("()"):
        return bound.get(function, UNKNOWN)
    if function.startswith(LOADERS):
        return Values({NATIVE})
    return Values({OWN}) if function in PLAIN else UNKNOWN


def _union(parts: Iterable[Iterable[str]]) -> Values:
    every = Values().union(*parts)
    return every if len(every) <= MOST else UNKNOWN.union(sorted(every)[:MOST])


@functools.lru_cache(maxsize=4096)
def _plain(dotted: str) -> str:
    """The documented name of what has several."""
    if not SPELT.search(dotted):
        return dotted
    for spelling, name in SPELLINGS:
        dotted = re.sub(spelling, name, dotted)
    return dotted
