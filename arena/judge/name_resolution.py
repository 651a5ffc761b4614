"""What a name in a source may stand for: imports, assignments, loops, defaults and returns, followed to dotted paths in a scope.

A static guess that errs towards too much (`may be a tensor`), in time linear in the tree of the source.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterable, Iterator, Mapping

ANY = "torch.Tensor"
"""The value of an expression that may be a tensor. Other values: a dotted path, OWN, NATIVE, and `f()` for the source's own
function or class f. The key `f()` holds what a call of f returns, and the key `.x` holds what is stored as an attribute x."""
OWN = "<own>"
"""A constant, a container or an instance of the source's own class. Its methods are not a tensor's; its fields and parts may be
tensors."""
NATIVE = "<native>"
"""A library that the source built or loaded. Its members are its own; what a call returns may be a tensor."""
METHODS = ANY + "."
LOADERS = ("ctypes.", "torch.utils.cpp_extension.", "torch.ops.load_library", "importlib.util.", "triton.")
PLAIN = {"builtins.int", "builtins.float", "builtins.bool", "builtins.str", "types.SimpleNamespace"}
CONTAINERS = {"builtins.dict", "builtins.list", "builtins.set", "builtins.sorted", "builtins.tuple"}
"""What makes a container of what it is given. Without arguments it may be an annotation, and callers may pass anything."""
IMPORTERS = {"builtins.__import__", "importlib.__import__", "importlib.import_module"}
GETTERS = ("operator.attrgetter:", "operator.methodcaller:")
MOST, LONGEST = 8, 200
"""Limit for the parts of a dotted path, the values of a name, the levels of an assigned expression and the rounds of propagation;
and for the characters of a dotted path. The search stops there, so that no source takes long, or much memory."""
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


def bindings(nodes: Iterable[ast.AST]) -> Iterator[Binding]:
    """What the source binds: the key (see ANY), and the expression or the value bound to it."""
    instance: dict[ast.arg, ast.expr] = {}
    for node in nodes:
        match node:
            case ast.Attribute() | ast.Name() | ast.Constant():
                pass  # These are most nodes of a long source.
            case ast.Import(names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    yield alias.asname or root, plain(alias.name if alias.asname else root)
            case ast.ImportFrom(module, names, level):
                for alias in names:
                    if alias.name != "*":
                        yield alias.asname or alias.name, OWN if level else plain(f"{module}.{alias.name}")
                    elif not level:
                        yield "*", plain(str(module))
            case ast.Assign(targets, value):
                for target in targets:
                    yield from _assigned(target, value)
            case ast.AnnAssign(target, annotation, value):
                yield from _assigned(target, value or _call(annotation))
            case ast.AugAssign(target, _, ast.List() | ast.ListComp() as added):
                yield from _assigned(target, added)
            case ast.AugAssign(target) | ast.withitem(_, ast.expr() as target):
                yield from _assigned(target, ANY)
            case ast.MatchAs(_, str() as name) | ast.MatchStar(str() as name) | ast.MatchMapping(_, _, str() as name):
                yield name, ANY
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
                yield from (("." + key, value) for key, value in bindings(s for s in body) if key.isidentifier())
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
            shared = value if isinstance(value, str) else _item(value)
            for each in targets:
                yield from _assigned(each, shared)


def _parameters(node: ast.arguments, instance: Mapping[ast.arg, ast.expr]) -> Iterator[Binding]:
    """A parameter is unknown but for its annotation; a default that is a name stands for what callers pass."""
    positional = [*node.posonlyargs, *node.args]
    defaults = [None] * (len(positional) - len(node.defaults)) + node.defaults + node.kw_defaults
    for each, default in zip(positional + node.kwonlyargs, defaults, strict=True):
        if default is None or isinstance(default, ast.Constant):
            yield each.arg, instance.get(each) or (_call(each.annotation) if each.annotation else ANY)
        else:
            yield each.arg, default
            if not isinstance(default, ast.Name | ast.Attribute):
                yield each.arg, ANY
    yield from ((each.arg, ANY) for each in (node.vararg, node.kwarg) if each)


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """What a function returns, without the functions defined in it."""
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


def propagated(bindings: list[Binding]) -> Bound:
    """What each key may stand for, through chains of aliases in any order."""
    bound: dict[str, Values] = {key: Values() for key, _ in bindings}
    for _ in range(MOST):
        grown, seen = False, Seen()
        for key, value in bindings:
            if len(before := bound[key]) <= MOST:
                new = Values({value}) if isinstance(value, str) else values_of(value, bound, seen)
                bound[key] = _union([before, {ANY if each.startswith(METHODS) else each for each in new}])
                grown |= bound[key] != before
        if not grown:
            break
        bindings = bindings[::-1]
    return bound


def values_of(node: ast.expr, bound: Bound, seen: Seen, levels: int = MOST) -> Values:
    """What an expression may stand for; empty as long as no value is known to reach it."""
    if (known := seen.get(node)) is not None:
        return known
    if not levels:
        return UNKNOWN
    match node:
        case ast.Name(name) if name in bound:
            return bound[name]
        case ast.Name(name):
            built_in = Values({f"builtins.{name}"}) if hasattr(builtins, name) else UNKNOWN
            return built_in | {plain(f"{module}.{name}") for module in bound.get("*", ())}
        case ast.Constant():
            return Values({OWN})
        case ast.Attribute(owner, name):
            owners = values_of(owner, bound, seen, levels - 1)
            step = owners, name, bound.get("." + name)  # all that it depends on
            if (known := seen.get(step)) is None:
                known = seen[step] = _union(_member(value, name, bound) for value in owners)
            return known
    if (known := seen.get((node, levels))) is None:  # one expression may be assigned to many names
        known = seen[node, levels] = _values_of_parts(node, bound, seen, levels)
    return known


def _values_of_parts(node: ast.expr, bound: Bound, seen: Seen, levels: int) -> Values:
    """What an expression may stand for that has parts, and is no attribute."""

    def values(part: ast.expr) -> Values:
        return values_of(part, bound, seen, levels - 1)

    match node:
        case ast.Subscript(owner, key):
            return _union(_part(value, key, bound) for value in values(owner))
        case ast.Call(function, arguments):
            given = values(arguments[0]) if arguments else Values()
            return _union(_result(value, given, arguments, bound) for value in values(function))
        case ast.NamedExpr(_, value):
            return values(value)
        case ast.IfExp(_, one, other):
            return values(one) | values(other)
        case ast.BoolOp(_, sides) | ast.Tuple(sides) | ast.List(sides) | ast.Set(sides) | ast.Dict(_, sides) if sides:
            return _union(values(side) for side in sides)
        case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            return Values({OWN})
    return UNKNOWN


def _member(owner: str, name: str, bound: Bound) -> Values:
    """`owner.name`."""
    if owner == NATIVE:
        return Values({NATIVE})
    if owner == OWN or owner.endswith("()"):
        return bound.get("." + name, UNKNOWN)
    if owner == ANY or owner.startswith(METHODS):
        return bound.get("." + name, UNKNOWN) | {plain(METHODS + name)}
    return Values({plain(f"{owner}.{name}")}) if owner.count(".") < MOST else UNKNOWN


def _part(owner: str, key: ast.expr, bound: Bound) -> Values:
    """`owner[key]`. A container stands for everything in it."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        if owner == "sys.modules":
            return Values({plain(key.value)})
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
            return Values(plain(f"{value}.__dict__") for value in given)
        case [_] if function.startswith(GETTERS):
            for name in function.partition(":")[2].split("."):
                given = _union(_member(value, name, bound) for value in given)
            return given
        case [ast.Constant(str() as name), *_] if function in IMPORTERS:
            return Values({plain(name), plain(name.partition(".")[0])} if last == "__import__" else {plain(name)})
        case [ast.Constant(str() as name), *_] if f"{function}:" in GETTERS:
            return Values({f"{function}:{name}"}) if len(name) <= LONGEST else UNKNOWN
        case [ast.Constant(str() as name), *_] if last == "__getattribute__":
            return _member(owner, name, bound)
        case [ast.Constant(str()) as key, *_] if last == "get" and (owner == "sys.modules" or owner.endswith(".__dict__")):
            return _part(owner, key, bound)
    if function.endswith("()"):
        return bound.get(function, UNKNOWN)
    if function.startswith(LOADERS):
        return Values({NATIVE})
    return Values({OWN}) if function in PLAIN or (arguments and function in CONTAINERS) else UNKNOWN


def _union(parts: Iterable[Iterable[str]]) -> Values:
    every = Values().union(*parts)
    return every if len(every) <= MOST else UNKNOWN.union(sorted(every)[:MOST])


def plain(dotted: str) -> str:
    """The documented name of an object that has several; ANY for one that is longer than any name of a rule."""
    return _documented(dotted) if len(dotted) <= LONGEST else ANY


@functools.lru_cache(maxsize=4096)
def _documented(dotted: str) -> str:
    if not SPELT.search(dotted):
        return dotted
    for spelling, name in SPELLINGS:
        dotted = re.sub(spelling, name, dotted)
    return dotted
