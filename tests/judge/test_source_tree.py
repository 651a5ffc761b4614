"""Submissions that several threads read at once are parsed as one would be."""

import ast
import gc
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from arena.judge.source_tree import parse

DEEP = f"x = {'(' * 60}1{' + 1)' * 60}\n" * 20
THREADS = 4


@pytest.fixture
def yielding() -> Iterator[None]:
    """Collections of garbage, which making a tree starts, let another thread have its turn."""

    def collected(phase: str, info: object) -> None:
        time.sleep(0.0005)

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(200)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)


def failures(parsing: Callable[[str], ast.AST]) -> int:
    def fails(_: int) -> bool:
        try:
            parsing(DEEP)
        except SystemError:
            return True
        return False

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(fails, range(6 * THREADS)))


def test_trees_made_at_once_do_not_disturb_each_other(yielding: None) -> None:
    assert failures(parse) == 0


def test_without_turns_they_do(yielding: None) -> None:
    """Else the test above shows nothing on this Python."""
    if not failures(ast.parse):
        pytest.skip(f"Python {platform.python_version()} makes several trees at once")
