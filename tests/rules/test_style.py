"""Rules of the house that a linter does not know."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A submission may raise anything, and its crash has to become a record: here, and nowhere else.
MAY_CATCH_ALL = {"arena/judge/worker/main.py", "arena/authoring/check.py"}
"""The first makes a record of it, the second carries it from a thread to whoever asks for the result."""
# Programs of their own, started inside a box: what they print is for the log.
INSIDE_A_BOX = {"arena/judge/worker/main.py", "arena/sandboxes/programs/init.py"}

CODE = [path for folder in ("arena", "harnesses", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(path: Path, kind: type[ast.AST], wrong) -> list[int]:
    """Numbers of the lines with a node of that kind for which `wrong` holds."""
    return [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind) and wrong(node)]


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it would hide a bug: everything caught, and not raised again."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    everything = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )
    return everything and not any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


@pytest.mark.parametrize("path", CODE, ids=name)
def test_a_bug_shows_its_traceback(path):
    if name(path) not in MAY_CATCH_ALL:
        assert lines(path, ast.ExceptHandler, catches_all) == []


@pytest.mark.parametrize("path", CODE, ids=name)
def test_no_error_is_raised_in_a_group_by_some_versions_of_python_only(path):
    """Before 3.11.4 what is raised inside `except*` comes out wrapped in a group, and nobody's `except` is ready for that."""
    assert lines(path, ast.TryStar, lambda _: True) == []


@pytest.mark.parametrize("path", CODE, ids=name)
def test_folders_for_a_moment_are_those_that_get_swept(path):
    if name(path).startswith("arena/") and name(path) != "arena/system/tempdirs.py":
        made = ("tempfile.TemporaryDirectory", "tempfile.mkdtemp")
        assert lines(path, ast.Attribute, lambda node: ast.unparse(node) in made) == []


@pytest.mark.parametrize("path", CODE, ids=name)
def test_no_command_goes_through_a_shell(path):
    def through_a_shell(call: ast.Call) -> bool:
        by_name = isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in (
            "os.system",
            "os.popen",
            "subprocess.getoutput",
        )
        return by_name or any(keyword.arg == "shell" for keyword in call.keywords)

    assert lines(path, ast.Call, through_a_shell) == []


@pytest.mark.parametrize("path", CODE, ids=name)
def test_only_the_command_line_prints(path):
    if name(path).startswith("arena/") and not name(path).startswith("arena/cli/") and name(path) not in INSIDE_A_BOX:
        assert lines(path, ast.Call, lambda call: isinstance(call.func, ast.Name) and call.func.id == "print") == []


@pytest.mark.parametrize("path", [*CODE, *sorted((ROOT / "problems").rglob("*.py"))], ids=name)
def test_nothing_is_left_for_later(path):
    assert not [word for word in ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error") if word in path.read_text()]
