"""The reader of an agent's output: all of it is kept, and a flood is slowed."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from arena.agents.trajectory import Trajectory
from arena.agents.transcript import PAUSE_S, Transcript

PIPE_BYTES = 64 << 10
"""What a pipe of Linux holds."""


def test_a_flood_waits_for_its_reader(tmp_path: Path) -> None:
    (out, flood), (err, silent) = os.pipe(), os.pipe()
    os.close(silent)
    written, over = [0], threading.Event()

    def write() -> None:
        while not over.is_set():
            written[0] += os.write(flood, b"x" * PIPE_BYTES)
        os.close(flood)

    with os.fdopen(out, "rb") as stdout, os.fdopen(err, "rb") as stderr:
        began_s = time.monotonic()
        transcript = Transcript(stdout, stderr, tmp_path, Trajectory(tmp_path / "trajectory.jsonl", lambda _: []))
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.3)
        over.set()
        writer.join()
        transcript.close()
        reads = (time.monotonic() - began_s) / PAUSE_S + 1
    assert PIPE_BYTES < written[0] <= (reads + 1) * PIPE_BYTES
    assert (tmp_path / "stdout.jsonl").stat().st_size == written[0]


def test_looks_at_a_large_event_cost_nothing(tmp_path: Path) -> None:
    """A display looks four times a second: each event is parsed once, when it arrives."""
    (out, events), (err, silent) = os.pipe(), os.pipe()
    os.close(silent)
    event = json.dumps({"type": "x", "many": [1] * 1_000_000, "text": "hello"}).encode() + b"\n"
    with os.fdopen(out, "rb") as stdout, os.fdopen(err, "rb") as stderr:
        transcript = Transcript(stdout, stderr, tmp_path, Trajectory(tmp_path / "trajectory.jsonl", lambda _: []))
        with os.fdopen(events, "wb") as file:
            file.write(event)
        transcript.close()
    assert (transcript.events, transcript.last) == (1, "hello")
    began_s = time.thread_time()
    for _ in range(1000):
        assert transcript.last == "hello"
    assert time.thread_time() - began_s < 1.0  # parsing once takes a tenth of that


@pytest.mark.parametrize(
    ("event", "shown"),
    [({"type": "turn", "session": 1}, "turn"), ({"message": "thinking"}, "thinking"), ({"type": {"a": 1}}, ""), ({"id": 7}, "")],
)
def test_an_event_without_a_text_is_shown_by_its_type(event: dict[str, object], shown: str, tmp_path: Path) -> None:
    (out, events), (err, silent) = os.pipe(), os.pipe()
    os.close(silent)
    with os.fdopen(out, "rb") as stdout, os.fdopen(err, "rb") as stderr:
        transcript = Transcript(stdout, stderr, tmp_path, Trajectory(tmp_path / "trajectory.jsonl", lambda _: []))
        os.write(events, json.dumps(event).encode() + b"\n")
        os.close(events)
        transcript.close()
    assert transcript.last == shown
