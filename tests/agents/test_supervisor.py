"""The supervisor's clock: how long back-off may lengthen a session."""

import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arena.agents.run_spec import TimeLimits
from arena.agents.supervisor import supervise
from arena.agents.trajectory import Trajectory


class Running:
    """A sandbox whose command never ends by itself."""

    def __init__(self) -> None:
        self.terminated = False

    def wait(self, limit_s: float) -> int | None:
        time.sleep(0 if self.terminated else limit_s)
        return 143 if self.terminated else None

    def terminate(self) -> None:
        self.terminated = True


@dataclass
class Failing:
    """The traffic with a provider that fails all the time."""

    backoff_s: float
    stop: object = None
    in_flight: int = 0
    active_s: float = 0.0
    answers: int = 0
    arrived: int = 1
    resuming: bool = False
    resumed_s: float = 0.0

    def leaving(self) -> None:
        pass


def granted(tmp_path: Path, backoff_s: float, *, without_backoff: bool) -> float:
    trajectory = Trajectory(tmp_path / "t", lambda _: [])
    trajectory.close()
    transcript: Any = SimpleNamespace(trajectory=trajectory, last="")
    times = TimeLimits(0.2, silence_s=None, without_backoff=without_backoff)
    began_s = time.monotonic()
    running: Any = Running()
    end = supervise(running, transcript, times, Failing(backoff_s), lambda _: None, began_s, lambda: None)
    assert (end.cause, end.exit_code) == ("budget", 143)
    assert time.monotonic() - began_s < 5
    return end.granted_s


def test_back_off_adds_one_budget_at_most(tmp_path: Path) -> None:
    assert granted(tmp_path, 0.1, without_backoff=True) == pytest.approx(0.3)
    assert granted(tmp_path, 300.0, without_backoff=True) == pytest.approx(0.4)
    assert granted(tmp_path, 300.0, without_backoff=False) == pytest.approx(0.2)
