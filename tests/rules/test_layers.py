"""Imports run downward only, between packages and inside them; programs for the sandbox import nothing of arena."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARENA = ROOT / "arena"
LAYERS = [
    {"errors", "paths", "acceptable"},
    {"submission", "schema"},
    {"system", "files"},
    {"catalog", "results"},
    {"sandboxes", "gateway"},
    {"agents", "judge"},
    {"plan", "run_cell", "authoring", "importing", "curve"},
    {"doctor", "api", "sweep", "site", "inspect_model"},
    {"export", "inspect_task"},
    {"cli"},
    {"__main__"},
]
"""Packages and top-level modules; a package may import those of the rows above its own."""
FORBIDDEN_PAIRS = [
    ("arena.judge.window", "arena.judge.scoring"),
    ("arena.gateway.model", "arena.gateway.egress"),
]
"""(importer, imported), each a module or a package with all it holds."""
WITH_TORCH = ("arena.judge", "arena.authoring", "arena.doctor.programs", "arena.importing.programs")
OUTSIDE = (
    "arena/sandboxes/programs",
    "arena/judge/worker",
    "arena/doctor/programs",
    "arena/doctor/canary",
    "arena/importing/programs",
    "problems",
    "harnesses",
)
"""Folders whose files run outside arena's interpreter, or are data."""


def name_of(path: Path) -> str:
    """The dotted name of a file under arena/."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ARENA.rglob("*.py")) if "canary" not in path.parts}


def imports(path: Path, *, for_types: bool = True) -> Iterator[str]:
    """Dotted names of all that a file imports, wherever in the file; `for_types`: also under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    guarded = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = set() if for_types else {id(inner) for block in guarded for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def modules_used(path: Path, *, for_types: bool = True) -> set[str]:
    """Modules of arena that a file imports."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name in imports(path, for_types=for_types)}
    return {name for name in found if name.startswith("arena.")}


def row(name: str) -> int:
    """The row of a module's package in LAYERS; -1 when it has none."""
    package = name.split(".")[1]
    return next((number for number, names in enumerate(LAYERS) if package in names), -1)


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_every_package_has_a_layer():
    packages = {name.split(".")[1] for name in MODULES if name != "arena"}
    assert packages == set().union(*LAYERS)


def test_imports_between_packages_run_downward():
    upward = [
        f"{name} imports {used}"
        for name, path in MODULES.items()
        for used in modules_used(path)
        if name != "arena" and name.split(".")[1] != used.split(".")[1] and row(used) >= row(name)
    ]
    assert upward == []


def test_imports_inside_packages_form_no_circle():
    graph = {name: modules_used(path, for_types=False) - {name} for name, path in MODULES.items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_imports_are_written_out():
    relative = [name for name, path in MODULES.items() for used in imports(path) if used.startswith(".")]
    assert relative == [], "write imports out from `arena`"


def test_forbidden_pairs_do_not_import_each_other():
    found = [
        f"{name} imports {used}"
        for importer, imported in FORBIDDEN_PAIRS
        for name, path in MODULES.items()
        if inside(name, importer)
        for used in modules_used(path)
        if inside(used, imported)
    ]
    assert found == []


def test_programs_and_data_import_nothing_of_arena():
    found = [
        f"{path.relative_to(ROOT)} imports {used}"
        for folder in OUTSIDE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for used in imports(path)
        if used.split(".")[0] == "arena" and not used.startswith(folder.replace("/", "."))
    ]
    assert found == []


def test_torch_stays_with_judge_and_authoring():
    found = [
        name
        for name, path in MODULES.items()
        if not any(inside(name, package) for package in WITH_TORCH)
        for used in imports(path)
        if used.split(".")[0] in ("torch", "triton")
    ]
    assert found == []


def test_the_package_itself_imports_nothing():
    assert set(imports(ARENA / "__init__.py", for_types=False)) <= {
        "__future__.annotations",
        "importlib.import_module",
        "typing.TYPE_CHECKING",
    }
