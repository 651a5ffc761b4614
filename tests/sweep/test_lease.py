"""A session's side of the turns on shared GPUs."""

import json
import queue
import threading
from typing import Any

import pytest

from arena.sweep.lease import SweepTurns


def test_a_late_answer_is_not_taken_for_the_next_question() -> None:
    """The attack: ask and die at once, over and over, until a turn arrives that is another session's by then."""
    said: list[dict] = []
    replies: queue.Queue = queue.Queue()  # without an end: the end of a sweep's replies ends the process
    turns = SweepTurns(lambda **line: said.append(line), iter(replies.get, None), lambda gpu: gpu)
    assert turns.take(lambda: True, print) is None
    assert said == [{"lease": "ask", "ask": 1}, {"lease": "leave"}]
    found: list[Any] = []
    second = threading.Thread(target=lambda: found.append(turns.take(lambda: False, print)))
    second.start()
    replies.put(json.dumps({"lease": {"gpu": 3, "lease_s": 9.0}, "ask": 1}))
    second.join(0.5)
    assert second.is_alive() and found == []
    replies.put(json.dumps({"lease": {"gpu": 4, "lease_s": 9.0}, "ask": 2}))
    second.join(5)
    [lease] = found
    assert (lease.gpu, lease.over()) == (4, False)
    replies.put(json.dumps({"cut": True, "ask": 1}))
    replies.put(json.dumps({"ahead": 1, "ask": 2}))
    assert not lease.over()


def test_a_gpu_that_fails_at_its_turn_is_given_back() -> None:
    said: list[dict] = []
    replies: queue.Queue = queue.Queue()

    def sick(gpu: int) -> int:
        raise RuntimeError("CUDA error: out of memory")

    def say(**line: Any) -> None:
        said.append(line)
        if line.get("lease") == "ask":
            replies.put(json.dumps({"lease": {"gpu": 3, "lease_s": 9.0}, "ask": line["ask"]}))

    turns = SweepTurns(say, iter(replies.get, None), sick)
    with pytest.raises(RuntimeError, match="out of memory"):
        turns.take(lambda: False, print)
    assert said == [{"lease": "ask", "ask": 1}, {"lease": "end"}]
