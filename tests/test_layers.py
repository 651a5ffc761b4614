"""Imports run downward only: a module may use what stands in a lower row, or in its own package."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [
    {"errors", "formula", "strict_yaml"},
    {"schema", "paths", "documents", "collect", "process"},
    {"trajectory", "leaderboard_plot"},
    {
        "catalog",
        "workspace",
        "annotations",
        "baselines",
        "leaderboard",
        "machine",
        "snapshots",
        "transcript",
        "scratch",
        "program",
        "ending",
    },
    {"sandboxes", "gateway", "tape"},
    {"agentbox", "supervise", "origin"},
    {"asking"},
    {"session", "judge"},
    {"run", "gate", "baseline"},
    {"doctor"},
    {"cli"},
    {"__main__"},
]
ROW = {module: row for row, modules in enumerate(LAYERS) for module in modules}
OF_ARENA_ITSELF = {"__version__"}


def modules(path: Path) -> set[str]:
    """Dotted names of all that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names}
    return found


def used(path: Path) -> set[str]:
    """Top-level modules of arena that a file imports."""
    return {name.split(".")[1] for name in modules(path) if name.startswith("arena.")} - OF_ARENA_ITSELF


def owner(path: Path) -> str:
    return path.relative_to(ROOT / "arena").with_suffix("").parts[0]


# A problem like those under problems/, but in no list.
CANARY = sorted((ROOT / "arena" / "canary").rglob("*.py"))
FILES = [path for path in sorted((ROOT / "arena").rglob("*.py")) if path not in (ROOT / "arena" / "__init__.py", *CANARY)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_downward(path):
    own = owner(path)
    assert not [name for name in modules(path) if name.startswith(".")], "write imports out from `arena`"
    assert own in ROW, f"{own}: give it a row in LAYERS"
    for module in used(path) - {own}:
        assert module in ROW, f"{module}: there is no such module in LAYERS"
        assert ROW[module] < ROW[own], f"{path.relative_to(ROOT)} imports arena.{module}, which is not below it"


def test_the_package_itself_imports_nothing():
    assert modules(ROOT / "arena" / "__init__.py") == set()


def test_every_module_of_the_table_exists():
    assert {owner(path) for path in FILES} == set(ROW)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_torch_stays_with_the_judge(path):
    if owner(path) != "judge":
        assert not {name for name in modules(path) if name.split(".")[0] in ("torch", "triton")}


@pytest.mark.parametrize(
    "path",
    CANARY + sorted((ROOT / "problems").rglob("*.py")) + sorted((ROOT / "harnesses").rglob("*.py")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_data_does_not_import_the_engine(path):
    assert not {name for name in modules(path) if name.split(".")[0] == "arena"}
