"""Copies of the source tree for tests that start the real command."""

import shutil
from pathlib import Path

import pytest
from command import RUN, Arena, copy

from arena.sandboxes import bwrap


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """For tests that change nothing."""
    return copy(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.fixture(scope="session")
def nothing_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run that left nothing to score."""
    pytest.importorskip("torch")
    if reason := bwrap.missing():
        pytest.skip(reason)
    made = copy(tmp_path_factory.mktemp("nothing"))
    assert made(*RUN, "--model", "nop").code == 0
    return made.home


@pytest.fixture
def tested(arena: Arena, nothing_done: Path) -> Arena:
    """With that run in its home, which may be moved: nothing in it holds a path from the root."""
    shutil.copytree(nothing_done, arena.home)
    return arena
