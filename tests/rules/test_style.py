"""Rules of this code that a linter does not know. Each test lists every offender."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = [path for folder in ("arena", "harnesses", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
PROBLEMS = sorted((ROOT / "problems").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PROSE = [
    *(path for path in CODE if "canary" not in path.parts),
    *sorted((ROOT / "arena").rglob("*.yaml")),
    *sorted((ROOT / "arena").rglob("*.j2")),
    *(path for path in sorted((ROOT / "problems" / "kit").iterdir()) if path.is_file()),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for path in sorted(ROOT.glob("*.md")) if path.name not in ("AGENTS.md", "CHANGELOG.md")),
]
"""What people read, without the problems, without examples of bad English, and without the changes of the past."""
MAY_CATCH_ALL = {
    "arena/judge/worker/main.py",  # a submission may raise anything, and its crash has to become a record
    "arena/authoring/side_by_side.py",  # carries an error from a thread to the caller
    "arena/importing/several.py",  # the same
    "arena/importing/programs/probe.py",  # a task may raise anything, and that is why it is unfit
    "arena/importing/programs/measure.py",
}
MAY_PRINT = ("arena/cli/", "arena/judge/worker/", "arena/sandboxes/programs/", "arena/doctor/programs/")
"""The command line, and programs of their own: what they print is read by arena or kept in a log."""
REPLACED_WORDS = re.compile(
    r"\b(somebody|nobody(?!:x|:/)|whoever|whosoever|begun again|boxes|the box|a box|the wall(?! clock)|allow proxy)\b",
    re.IGNORECASE,
)
"""The glossary (docs/index.md) has other words for these."""
LONGEST_TEST_NAME = 60


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(paths: list[Path], kind: type[ast.AST], wrong: Callable[..., bool]) -> Iterator[str]:
    """`file:line` of each node of that kind for which `wrong` holds."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind) and wrong(node):
                yield f"{name(path)}:{node.lineno}"  # type: ignore[attr-defined]


def hides_bugs(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches everything and does not raise it again."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    everything = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )
    return everything and not any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


def uses_a_shell(call: ast.Call) -> bool:
    functions = ("os.system", "os.popen", "subprocess.getoutput")
    named = isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in functions
    return named or any(keyword.arg == "shell" for keyword in call.keywords)


def test_bugs_show_their_traceback():
    checked = [path for path in CODE if name(path) not in MAY_CATCH_ALL]
    assert list(offenders(checked, ast.ExceptHandler, hides_bugs)) == []


def test_except_groups_are_not_used():
    """Before Python 3.11.4, what is raised inside `except*` arrives wrapped in a group, which no other `except` expects."""
    assert list(offenders(CODE, ast.TryStar, lambda _: True)) == []


def test_temporary_folders_are_those_that_get_swept():
    makers = ("tempfile.TemporaryDirectory", "tempfile.mkdtemp")
    checked = [path for path in CODE if name(path).startswith("arena/") and name(path) != "arena/system/tempdirs.py"]
    assert list(offenders(checked, ast.Attribute, lambda node: ast.unparse(node) in makers)) == []


def test_no_command_goes_through_a_shell():
    assert list(offenders(CODE, ast.Call, uses_a_shell)) == []


def test_only_the_command_line_prints():
    checked = [path for path in CODE if name(path).startswith("arena/") and not name(path).startswith(MAY_PRINT)]
    assert list(offenders(checked, ast.Call, lambda call: isinstance(call.func, ast.Name) and call.func.id == "print")) == []


def test_nothing_is_left_for_later():
    words = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    assert [f"{name(path)}: {word}" for path in [*CODE, *PROBLEMS] for word in words if word in path.read_text()] == []


def test_every_package_says_what_belongs_there():
    packages = [path for path in CODE if path.name == "__init__.py"]
    assert [name(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_test_names_are_short():
    found = [
        f"{name(path)}:{node.lineno}: {node.name} ({len(node.name)})"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > LONGEST_TEST_NAME
    ]
    assert found == []


def test_test_files_are_where_pytest_finds_them():
    """Helpers are imported by their bare names, so no two test files may share one."""
    stems = [path.stem for path in TESTS]
    assert sorted({stem for stem in stems if stems.count(stem) > 1}) == []


def test_prose_uses_the_words_of_the_glossary():
    found = [
        f"{name(path)}:{number}: {match[0]}"
        for path in PROSE
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for match in REPLACED_WORDS.finditer(line)
    ]
    assert found == []
