"""Shared by all tests: skips that name their reason, a calm hypothesis, and one torch thread for each pytest worker."""

import gc
import os
from pathlib import Path

import hypothesis
import pytest
from command import Arena, copy

from arena.sandboxes import Sandbox

# Set before any test imports torch, and inherited by the programs that tests start. Threads that wait for each other spin: two
# workers on two idle cores took 84 s of processor time for test_kda_cutlass.py with two threads each, and 20 s with one each.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# A pytest process holds all tests and torch: looking through them took a quarter of the time in which it collects the tests.
gc.set_threshold(100_000)

# No deadline: the machine may be busy. The same examples everywhere, so that a failure in CI is a failure here.
hypothesis.settings.register_profile("arena", deadline=None, derandomize=True)
hypothesis.settings.load_profile("arena")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest begin first: else one worker ends with them, and the others wait.
    items.sort(key=lambda item: -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0))
    if not Path("/dev/nvidiactl").exists():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA device on this machine"))


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The real sandbox, or a skip with the reason why this machine has none."""
    from arena.sandboxes import bwrap

    if reason := bwrap.missing():
        pytest.skip(reason)
    return bwrap


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """A copy of the tree for tests that change nothing."""
    return copy(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """A copy of the tree that one test may change."""
    return copy(tmp_path)
