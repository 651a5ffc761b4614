"""The source of a task in KernelBench's form: what it may hold, its sizes, its text as one function. No task runs here."""

from __future__ import annotations

import ast
import textwrap
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from arena.errors import ArenaError
from arena.judge.forbidden import forbidden

MODULES = ("torch", "math", "typing", "numpy", "functools", "itertools", "collections", "copy", "einops")
"""What a task may import. The judge runs an imported reference in its own process: nothing else belongs there."""
BUILTINS = (
    *("open", "exec", "eval", "compile", "__import__", "getattr", "setattr", "delattr", "globals", "locals", "vars", "input"),
    "breakpoint",
)
BARRED = (
    *(f"{prefix}{name}" for prefix in ("", "builtins.") for name in BUILTINS),
    *("torch.load", "torch.save", "torch.hub.*", "torch.ops.load_library", "torch.utils.*"),
    *("torch.classes.*", "torch.library.*", "torch.jit.*", "torch.package.*", "torch.multiprocessing.*", "torch.distributed.*"),
    *("torch.cuda.*", "torch.backends.*", "torch.manual_seed", "torch.seed", "torch.set_*", "torch._*", "numpy.random.*"),
    *("numpy.load*", "numpy.save*", "numpy.fromfile", "numpy.memmap", "numpy.ctypeslib.*", "math.__*", "copy.__*"),
)
"""Names that reach beyond tensors, and those that change what is global. A notice for honest files: a hostile one can hide a
name, so tasks run in a sandbox, and a person reads a problem before judging with it."""
REACHING = {
    *("os", "_os", "sys", "_sys", "subprocess", "builtins", "importlib", "ctypes", "socket", "shutil", "inspect", "pickle"),
    "f2py",
}
"""Modules of the host that torch, numpy and typing hold under these names."""
NEEDED = ("Model", "get_inputs", "get_init_inputs")
MOST_BYTES = 200_000
ONE_AT_A_TIME = threading.RLock()
"""Early versions of CPython count how deep they are in a tree once for all threads, and several tasks are read at once. Where two
threads make trees, `ast.parse` raises SystemError there (seen on 3.11.7; https://github.com/python/cpython/issues/106905)."""


class Unfit(ArenaError):  # noqa: N818  no error of anybody's: some tasks are so
    """A task that cannot become a problem, with the reason in a few words."""


@dataclass(frozen=True)
class Task:
    """A parsed task. `numbers` are the whole numbers that its module names, by name; some of them are sizes."""

    imports: str
    body: tuple[ast.stmt, ...]
    numbers: dict[str, int]
    arguments: tuple[str, ...]
    """The names of forward's arguments."""

    def function(self, sizes: Collection[str], names: Sequence[str] = NEEDED) -> str:
        """`def task(shape)`: the module, in which these sizes come from the shape. It returns `names`, some of `NEEDED`; without
        `Model` it holds no class."""
        lines = ["def task(shape):", '    """The task as its authors wrote it, at the sizes of `shape`."""']
        for statement in self.body:
            if isinstance(statement, ast.ClassDef) and "Model" not in names:
                continue
            if getattr(statement, "name", "") in set(NEEDED) - set(names):
                continue
            lines.append(textwrap.indent("\n".join(_written(statement, self.numbers, sizes)), "    "))
        return "\n".join([*lines, f"    return {', '.join(names)}"])

    def model(self) -> str:
        """The text of the classes and of get_init_inputs, for the prompt."""
        shown = (each for each in self.body if isinstance(each, ast.ClassDef) or getattr(each, "name", "") == "get_init_inputs")
        return "\n\n\n".join(ast.unparse(each) for each in shown)


def parse(source: bytes) -> Task:
    """The task in a file. Unfit when it is not one, or uses what a task needs not."""
    if len(source) > MOST_BYTES:
        raise Unfit(f"too large: the file has {len(source)} bytes, at most {MOST_BYTES}")
    try:
        with ONE_AT_A_TIME:
            tree = ast.parse(source)
            uses = forbidden(source.decode(), BARRED)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfit(f"does not parse: {type(error).__name__}") from None
    if uses:
        raise Unfit(f"uses {uses[0].name} in line {uses[0].line}, which a task has no need of")
    imports, body = list[str](), list[ast.stmt]()
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports += [] if getattr(statement, "module", "") == "__future__" else [_checked_import(statement)]
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef):
            body.append(statement)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):  # a docstring
            raise Unfit(f"line {statement.lineno} runs at import: `{ast.unparse(statement).splitlines()[0][:60]}`")
    for node in ast.walk(tree):
        _check_node(node)
    names = {getattr(each, "name", "") for each in body}
    if missing := [name for name in NEEDED if name not in names]:
        raise Unfit(f"defines no {missing[0]}")
    numbers = {name: value for statement in body for name, value in _numbers(statement)}
    return Task(
        "\n".join(dict.fromkeys(line for line in imports if line != "import torch")), tuple(body), numbers, _arguments(body)
    )


def _checked_import(statement: ast.Import | ast.ImportFrom) -> str:
    names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [each.name for each in statement.names]
    for name in names:
        if name.partition(".")[0] not in MODULES or (isinstance(statement, ast.ImportFrom) and statement.level):
            raise Unfit(f"imports {name or 'a relative module'}: only {', '.join(MODULES)} are known")
    for each in statement.names:
        if each.name == "*" or REACHING & set(each.name.split(".")):
            raise Unfit(f"imports {each.name}, which a task has no need of")
    return ast.unparse(statement)


def _check_node(node: ast.AST) -> None:
    """Unfit for attributes with two underscores, by which Python's own machinery is reached, and for nested imports."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if name.startswith("__") and name not in ("__init__", "__name__"):
        raise Unfit(f"line {getattr(node, 'lineno', 0)} uses {name}")
    if name in REACHING:
        raise Unfit(f"line {getattr(node, 'lineno', 0)} uses {name}, which a task has no need of")
    if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset:
        raise Unfit(f"line {node.lineno} imports inside a function")
    if isinstance(node, ast.Global | ast.Nonlocal):
        raise Unfit(f"line {node.lineno} changes a variable outside its function")


def _arguments(body: list[ast.stmt]) -> tuple[str, ...]:
    models = [each for each in body if isinstance(each, ast.ClassDef) and each.name == "Model"]
    for each in models[0].body if models else ():
        if isinstance(each, ast.FunctionDef) and each.name == "forward":
            if each.args.vararg or each.args.kwonlyargs:
                raise Unfit("forward takes a number of arguments that its text does not say")
            return tuple(argument.arg for argument in each.args.args[1:])
    raise Unfit("Model defines no forward")


def _pairs(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment of the module gives, each with its own expression."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        yield statement.target.id, statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Name):
            yield target.id, statement.value  # type: ignore[attr-defined]
        elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):  # type: ignore[attr-defined]
            for one, value in zip(target.elts, statement.value.elts, strict=False):  # type: ignore[attr-defined]
                if isinstance(one, ast.Name):
                    yield one.id, value


def _numbers(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    """The whole numbers of an assignment: `N = 4 * 16`, and `shape = (64, 32)` as `shape_0` and `shape_1`."""
    for name, value in _pairs(statement):
        if (number := _whole(value)) is not None:
            yield name, number
        elif isinstance(value, ast.Tuple | ast.List):
            for place, part in enumerate(value.elts):
                if (number := _whole(part)) is not None:
                    yield f"{name}_{place}", number


def _whole(node: ast.expr) -> int | None:
    """The value of an expression of literal whole numbers and `+ - * //`."""
    match node:
        case ast.Constant(int() as value) if not isinstance(value, bool) and 0 <= value < 2**40:
            return value
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as op, right):
            a, b = _whole(left), _whole(right)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
            return a // b if b else None
    return None


def _written(statement: ast.stmt, numbers: dict[str, int], sizes: Collection[str]) -> list[str]:
    """A statement of the module, in which the sizes come from the shape."""
    pairs = list(_pairs(statement))
    if not any(name == size or size.startswith(f"{name}_") for name, _ in pairs for size in sizes):
        return [ast.unparse(statement)]
    lines = []
    for name, value in pairs:
        if name in sizes and name in numbers:
            lines.append(f"{name} = shape[{name!r}]")
        elif isinstance(value, ast.Tuple | ast.List):
            parts = [
                f"shape[{f'{name}_{place}'!r}]"
                if f"{name}_{place}" in sizes and f"{name}_{place}" in numbers
                else ast.unparse(part)
                for place, part in enumerate(value.elts)
            ]
            lines.append(f"{name} = ({', '.join(parts)},)")
        else:
            lines.append(f"{name} = {ast.unparse(value)}")
    return lines
