"""README.md's Python example, run unchanged; and the files that the front pages name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, copy, needs_sandbox

TOP = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md")
FOLDERS = ("annotations", "arena", "baselines", "harnesses", "leaderboard", "problems", "workspaces")
"""Each says in a few lines what belongs there."""
PAGES = [
    *TOP,
    *(f"{folder}/README.md" for folder in FOLDERS),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]
IN_CODE = re.compile(r"`((?:arena|problems|tests|scripts|harnesses)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)")


@pytest.mark.slow
@needs_sandbox
def test_python_example_runs_as_printed(tmp_path: Path):
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None and len(found[1].splitlines()) == 6
    arena = copy(tmp_path)
    arena.one_shape()
    # Outside the tree: an installed arena has no problems/ in the reader's folder either.
    arena.home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", found[1]], cwd=arena.home, env=arena.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    played, scored = (line.split() for line in done.stdout.splitlines())
    assert (arena.home / "annotations" / f"{played[0]}.yaml").is_file()
    assert (played[1], scored[0]) == ("passed", "passed")
    assert 0 < float(scored[1]) <= 1


@pytest.mark.parametrize("page", PAGES)
def test_linked_files_exist(page):
    folder = (ROOT / page).parent
    links = LINK.findall((ROOT / page).read_text())
    assert [link for link in links if link and not (folder / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    assert [path for path in IN_CODE.findall((ROOT / page).read_text()) if not (ROOT / path).exists()] == []
