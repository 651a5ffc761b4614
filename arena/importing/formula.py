"""Formulas of a definition: sizes that follow from others, and constraints. Arithmetic and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

MOST_SIZE = 1 << 40
MOST_POWER = 16
OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def names(text: str) -> set[str]:
    """The names in a formula. ValueError when it is none."""
    return {node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name)}


def value_of(text: str, sizes: Mapping[str, int]) -> float:
    """The value of a formula of sizes, numbers, `+ - * / // % **` and comparisons. ValueError when it is anything else."""
    try:
        return _value(_tree(text).body, sizes)
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"{text!r}: {error}") from None


def _tree(text: str) -> ast.Expression:
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no formula") from None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> float:
    match node:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool) and abs(number) <= MOST_SIZE:
            return number
        case ast.Name(name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, sizes)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _value(operand, sizes)
        case ast.BinOp(left, ast.Pow(), right):
            base, power = _value(left, sizes), _value(right, sizes)
            if not (isinstance(power, int) and 0 <= power <= MOST_POWER and abs(base) <= MOST_SIZE):
                raise ValueError(f"a power of {MOST_POWER} at most, and of a size")
            return base**power
        case ast.BinOp(left, op, right) if operation := OPERATORS.get(type(op)):
            return operation(_value(left, sizes), _value(right, sizes))
        case ast.Compare(left, [op], [right]) if operation := OPERATORS.get(type(op)):
            return operation(_value(left, sizes), _value(right, sizes))
    raise ValueError(f"{ast.unparse(node)!r} is not allowed: use axes, numbers and + - * / // % **")
