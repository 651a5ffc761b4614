"""Arithmetic formulas in YAML, such as `4*B*mean_len*Hq*D`: names, numbers and `+ - * / // **`, nothing else."""

import ast
import operator
from collections.abc import Callable, Mapping

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class FormulaError(ValueError):
    """The text is not a formula, or names a size that the shape does not have."""


def evaluate(formula: str, names: Mapping[str, int]) -> float:
    """The value of `formula` with the sizes in `names`."""
    try:
        tree = ast.parse(formula, mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"not a formula ({error.msg})") from None
    try:
        return float(_value(tree.body, names))
    except (ZeroDivisionError, OverflowError) as error:
        raise FormulaError(str(error)) from None


def _value(node: ast.expr, names: Mapping[str, int]) -> float:
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Name(name):
            raise FormulaError(f"unknown name {name!r} (the shape has {', '.join(names)})")
    raise FormulaError(f"{ast.unparse(node)!r} is not allowed: use names, numbers and + - * / // **")
