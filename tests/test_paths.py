"""Where things are, in a checkout and in a plain install."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from arena import paths

REPORT = """
import os
os.chdir({cwd!r})
from arena import catalog, paths
print(paths.checkout(), paths.home(), paths.cache(), paths.workspaces(), sep="\\n")
print(*sorted(catalog.problems()), *sorted(catalog.harnesses()), *sorted(catalog.hardwares()))
print(*paths.secrets())
"""


def report(tree: Path, cwd: Path, **env: str) -> list[str]:
    """What arena says of its places when it is imported from `tree`."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tree)!r})\n" + REPORT.format(cwd=str(cwd))]
    return subprocess.run(
        command, env={"HOME": "/home/user", **env}, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.parent.name if path.name == "problem.yaml" else path.stem for path in folder.glob(pattern))


@pytest.fixture
def expected(request) -> str:
    """The names that every way of installing must find."""
    root = Path(request.config.rootpath)
    shipped = [
        *names(root / "problems", "*/problem.yaml"),
        *names(root / "harnesses", "*.yaml"),
        *names(root / "arena" / "hardware", "*.yaml"),
    ]
    return " ".join(shipped)


def test_paths_in_a_checkout(request, tmp_path, expected):
    root = Path(request.config.rootpath)
    checkout, home, cache, workspaces, found, secrets = report(root, tmp_path)
    assert (checkout, home, workspaces) == (str(root), str(root), f"{root}/workspaces")
    assert cache == "/home/user/.cache/arena"
    assert found == expected
    assert {f"{root}/arena", f"{root}/problems", f"{root}/harnesses", f"{root}/tests"} <= set(secrets.split())


def test_environment_moves_results_and_cache(request, tmp_path):
    root = Path(request.config.rootpath)
    (tmp_path / "runs" / "workspaces").mkdir(parents=True)
    for name in ("baselines", "curves", "site"):
        (tmp_path / "runs" / name).mkdir()
    (tmp_path / "cache" / "arena").mkdir(parents=True)
    _, home, cache, workspaces, _, secrets = report(
        root, tmp_path, ARENA_HOME=f"{tmp_path}/x/../runs", XDG_CACHE_HOME=f"{tmp_path}/cache"
    )
    assert (home, workspaces) == (f"{tmp_path}/runs", f"{tmp_path}/runs/workspaces")
    assert {cache, workspaces, *(f"{tmp_path}/runs/{name}" for name in ("baselines", "curves", "site"))} <= set(secrets.split())
    assert report(root, tmp_path, XDG_CACHE_HOME="relative")[2] == "/home/user/.cache/arena"


def test_secrets_exist_and_hold_the_hidden_files():
    kept = paths.secrets()
    assert all(path.exists() for path in kept)
    for hidden in (paths.problems(), paths.harnesses(), paths.hardware(), paths.canary(), Path(paths.__file__)):
        assert any(hidden.is_relative_to(path) for path in kept), hidden


@pytest.fixture
def source(request, tmp_path) -> Path:
    """A copy of the source tree to build from; skips without the build tool."""
    pytest.importorskip("hatchling", reason="hatchling is not installed (scripts/setup test installs it)")
    kept = shutil.ignore_patterns(".*", "__pycache__", "workspaces", "annotations", "tests", "*.egg-info")
    return shutil.copytree(request.config.rootpath, tmp_path / "source", ignore=kept)


@pytest.mark.slow
def test_plain_install_finds_its_data(request, source, tmp_path, expected):
    root, site, cwd = Path(request.config.rootpath), tmp_path / "site", tmp_path / "elsewhere"
    cwd.mkdir()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    done = subprocess.run([*pip, str(source)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)

    checkout, home, _, workspaces, found, secrets = report(site, cwd)
    assert (checkout, home, workspaces) == ("None", str(cwd), f"{cwd}/workspaces")
    assert found == expected
    assert {f"{site}/arena", f"{site}/arena/_data/problems"} <= set(secrets.split())
    ours = {path.relative_to(root) for path in (root / "arena").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert not [path for path in ours if not (site / path).is_file()]


def test_editable_install_copies_nothing(source, tmp_path):
    # Every sandbox can read site-packages, so the build must not copy the hidden inputs there.
    build = "import hatchling.build, sys; print(hatchling.build.build_editable(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        copied = [name for name in wheel.namelist() if ".dist-info/" not in name]
        assert copied == ["_arena.pth"]
        assert wheel.read("_arena.pth").decode().strip() == str(source)
