"""The text of a module that computes a definition at the sizes of one workload: a task of the other import's form. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from arena.importing.definition_format import Definition, Scalar, Spec, Workload
from arena.importing.task import Unfit

OWN_NAMES = {"run", "self", "shape", "torch", "task", "Model", "get_inputs", "get_init_inputs", "custom_inputs"}
"""Names of the module that is written here."""


def module(definition: Definition, workload: Workload) -> str:
    """The text of a module that computes the definition, at the sizes of one workload."""
    try:
        tree = ast.parse(definition.reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfit(f"its reference does not parse: {type(error).__name__}") from None
    functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    if "run" not in functions:
        raise Unfit("its reference defines no function `run`")
    custom = definition.custom_inputs_entrypoint
    if custom is not None and custom not in functions:
        raise Unfit(f"its reference defines no function {custom!r}, its custom_inputs_entrypoint")
    # An axis of the same name would stand after the text's own number, and change what `run` computes.
    if taken := sorted(({*_bound(tree)} - {custom}) & ((OWN_NAMES - {"run"}) | {*definition.axes})):
        raise Unfit(f"its reference defines {taken[0]}, a name that the import or an axis has")
    if custom is not None:
        tree = _Renamed(custom, "custom_inputs").visit(tree)
    sizes, arguments = definition.sizes(workload.axes), ", ".join(definition.inputs)
    shown = {axis for spec in definition.inputs.values() for axis in spec.shape or ()}
    numbers = [f"{axis} = {sizes[axis]}" for axis in definition.axes if axis in shown or custom]
    [output] = definition.outputs
    lines = [
        "import torch",
        ast.unparse(tree),
        "class Model(torch.nn.Module):",
        f"    def forward(self, {arguments}):",
        f"        found = run({arguments})",
        f"        found = found[{output!r}] if isinstance(found, dict) else found",
        "        return found[0] if isinstance(found, (tuple, list)) and len(found) == 1 else found",
        *numbers,
        "def get_inputs():",
        *(f"    {line}" for line in _draws(definition, workload)),
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def _bound(tree: ast.Module) -> Iterable[str]:
    """The names that a module gives a value, but for `torch` by `import torch`."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for each in names:
                    if each.asname or not (isinstance(statement, ast.Import) and each.name.partition(".")[0] == "torch"):
                        yield each.asname or each.name.partition(".")[0]
            case _:
                yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


class _Renamed(ast.NodeTransformer):
    """Gives a function another name, wherever the text uses it."""

    def __init__(self, name: str, other: str) -> None:
        self.name, self.other = name, other

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A definition, and all that is in it."""
        node.name = self.other if node.name == self.name else node.name
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A use."""
        return ast.copy_location(ast.Name(self.other, node.ctx), node) if node.id == self.name else node


def _draws(definition: Definition, workload: Workload) -> Iterable[str]:
    """The lines that return the inputs."""
    if any(source.type == "custom" for source in workload.inputs.values()):
        axes = ", ".join(f"{axis!r}: {axis}" for axis in definition.axes)
        yield f"drawn = custom_inputs({{{axes}}}, torch.empty(0).device)"
        yield f"return [{', '.join(f'drawn[{name!r}]' for name in definition.inputs)}]"
        return
    drawn = []
    for name, spec in definition.inputs.items():
        source = workload.inputs[name]
        drawn.append(repr(source.value) if isinstance(source, Scalar) else _draw(definition, spec))
    yield f"return [{', '.join(drawn)}]"


def _draw(definition: Definition, spec: Spec) -> str:
    """An expression for random values, of the distribution of FlashInfer-Bench."""
    dims = "".join(f"{axis}, " for axis in spec.shape or ())
    if spec.dtype == "bool":
        return f"torch.randint(0, 2, ({dims})) > 0"
    if spec.dtype in ("int8", "uint8", "int16", "int32", "int64"):
        low, high = {"int8": (-128, 128), "uint8": (0, 256)}.get(spec.dtype, (-1024, 1024))
        return f"torch.randint({low}, {high}, ({dims}), dtype=torch.{spec.dtype})"
    if spec.dtype.startswith("float8"):
        return f"torch.randn(({dims})).clamp(-2, 2).to(torch.{spec.dtype})"
    return f"torch.randn(({dims}), dtype=torch.{spec.dtype})"


def scalars(workload: Workload) -> dict[str, bool | int | float]:
    """The inputs of a workload that are Python numbers."""
    return {name: source.value for name, source in workload.inputs.items() if isinstance(source, Scalar)}
