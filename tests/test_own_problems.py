"""Problems outside the shipped folder: they are found, may not be confused, and no sandbox shows them."""

import json
import shutil

import pytest
from command import ROOT, Arena

from arena import catalog, paths
from arena.errors import SandboxError, UsageError
from arena.sandboxes import SandboxSpec

SEARCH = """
import json, os, sys
found = [os.path.join(folder, name) for folder, _, names in os.walk("/") for name in names if name == "hidden_word.py"]
reads = []
for path in json.load(sys.stdin):
    try:
        reads.append(open(path).read() if os.path.isfile(path) else os.listdir(path))
    except OSError:
        pass
print(json.dumps({"found": found, "reads": [each for each in reads if each], "named": "ARENA_PROBLEMS" in os.environ}))
"""
"""What an agent may try: look for a file of that name everywhere, and read the paths that it has guessed."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one's own problems with one, a copy of a shipped one with a file to look for."""
    home = tmp_path / "tools" / "mine"
    shutil.copytree(ROOT / "problems" / "topk_bitonic", home / "mine_topk")
    (home / "mine_topk" / "hidden_word.py").write_text("SECRET = 1\n")
    monkeypatch.setenv("ARENA_PROBLEMS", str(home))
    return home


def searched(sandbox, kind, folder, tried):
    """What a search inside finds. The folder above is shown: an agent's program may lie beside somebody's problems."""
    command, stdin = ("python", "-I", "-c", SEARCH), json.dumps(tried).encode()
    with sandbox.run(SandboxSpec(kind, command, binds={"/opt/tools": folder.parent}, stdin=stdin)) as running:
        return json.loads(running.stdout.read())


def test_a_problem_of_ones_own_is_found(folder):
    assert catalog.problem("mine_topk").name == "mine_topk"
    assert {"mine_topk", "topk_bitonic"} <= catalog.problems().keys()
    assert catalog.problem_folder("mine_topk") == folder / "mine_topk"


def test_the_digest_covers_the_folder_and_the_shipped_kit(folder, tmp_path):
    before = catalog.problem_digest("mine_topk")
    together = tmp_path / "together"
    shutil.copytree(folder, together)
    shutil.copytree(paths.problems() / "kit", together / "kit")
    assert catalog.problem_digest("mine_topk", together) == before  # as if it lay beside the kit
    (together / "kit" / "check.py").write_text("another")
    assert catalog.problem_digest("mine_topk", together) != before
    (folder / "mine_topk" / "hidden_word.py").write_text("SECRET = 2\n")
    assert catalog.problem_digest("mine_topk") != before


def test_two_problems_of_one_name_are_an_error(folder):
    (folder / "mine_topk").rename(folder / "topk_bitonic")
    with pytest.raises(UsageError) as caught:
        catalog.problem("paged_attention")
    assert str(caught.value) == (
        f"two problems are called 'topk_bitonic': {paths.problems() / 'topk_bitonic'} and {folder / 'topk_bitonic'}; "
        "rename the folder of one of them"
    )


def test_a_folder_that_is_not_there_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("ARENA_PROBLEMS", f"{folder}:{folder}/absent")
    with pytest.raises(UsageError, match=r"absent: there is no such folder; \$ARENA_PROBLEMS"):
        catalog.problems()


@pytest.mark.parametrize("kind", ["agent", "worker"])
def test_no_sandbox_shows_it(folder, sandbox, kind):
    tried = [
        str(folder),
        str(folder / "mine_topk" / "hidden_word.py"),
        "/opt/tools/mine",
        "/opt/tools/mine/mine_topk/hidden_word.py",
    ]
    assert searched(sandbox, kind, folder, tried) == {"found": [], "reads": [], "named": False}


def test_the_search_finds_what_is_no_problem(folder, sandbox, monkeypatch):
    """The positive control of the test above."""
    monkeypatch.delenv("ARENA_PROBLEMS")
    seen = searched(sandbox, "agent", folder, ["/opt/tools/mine"])
    assert seen["found"] == ["/opt/tools/mine/mine_topk/hidden_word.py"]
    assert seen["reads"] == [["mine_topk"]]


def test_a_sandbox_that_would_show_it_does_not_start(folder, sandbox):
    with (
        pytest.raises(SandboxError, match="which is secret"),
        sandbox.run(SandboxSpec("agent", ("true",), binds={"/opt/x": folder / "mine_topk"})),
    ):
        pass


@pytest.mark.slow
def test_every_command_takes_the_folder(shared: Arena, folder, monkeypatch):
    monkeypatch.delenv("ARENA_PROBLEMS")
    assert "mine_topk" in shared("--problems", str(folder), "list", "problems", "--json").out
    assert "mine_topk" in shared("list", "problems", "--json", env={"ARENA_PROBLEMS": str(folder)}).out
    assert "mine_topk" not in shared("list", "problems", "--json").out
    assert "unknown problem 'mine_topk'" in shared.refused("score", "no.py", "-p", "mine_topk")
    for words in (("score", "no.py", "-p"), ("check",), ("run", "-m", "nothing", "-p")):
        done = shared("--problems", str(folder), *words, "mine_topk", "--hardware", "absent")
        assert "unknown hardware" in done.err
        assert "unknown problem" not in done.err
