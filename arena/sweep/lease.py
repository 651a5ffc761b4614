"""A session's turns on the sweep's shared GPUs, asked of the sweep's broker by the lines between the two processes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from arena.agents.gpu_commands import Lease

POLL_S = 0.1
SWEEP_GONE = 70
"""Exit code of a process whose sweep has ended."""


class SweepTurns:
    """The child's end: it says {"lease": "ask" | "leave" | "end"}, and reads {"lease": {...}}, {"ahead": N} and {"cut": true}.

    Each question has a number, which every line about it repeats.
    """

    def __init__(self, say: Callable[..., None], replies: Iterable[bytes], node: Callable[[int], int | None]) -> None:
        """`say` writes a line to the sweep, `replies` has its lines, `node` gives a GPU's device node by its CUDA index."""
        self._say, self._replies, self._node = say, replies, node
        self._changed = threading.Condition()
        self._asked = 0
        self._granted: dict[str, Any] | None = None
        self._ahead: int | None = None
        self._cut = False
        threading.Thread(target=self._listen, name="replies of the sweep", daemon=True).start()

    def take(self, left: Callable[[], bool], told: Callable[[int], None]) -> Lease | None:
        """Wait in the sweep's queue. Whatever `node` raises, the turn is given back."""
        with self._changed:
            self._asked += 1
            self._granted, self._ahead, self._cut = None, None, False
        self._say(lease="ask", ask=self._asked)
        while True:
            with self._changed:
                if self._granted is None:
                    self._changed.wait(POLL_S)
                granted, ahead = self._granted, self._ahead
            gone = left()
            if granted is not None:
                if gone:
                    self.give_back()
                    return None
                try:
                    node = self._node(granted["gpu"])
                except BaseException:
                    self.give_back()
                    raise
                return Lease(node, granted["lease_s"], lambda: self._cut)
            if gone:
                # It may have been granted meanwhile: this ends that too.
                self._say(lease="leave")
                return None
            if ahead is not None:
                told(ahead)

    def give_back(self) -> None:
        """Tell the sweep."""
        self._say(lease="end")

    def _listen(self) -> None:
        for line in self._replies:
            reply = json.loads(line)
            with self._changed:
                if reply.get("ask") != self._asked:  # for a client that has ended meanwhile: its turn is another session's by now
                    continue
                self._granted = reply.get("lease", self._granted)
                self._ahead = reply.get("ahead", self._ahead)
                self._cut = self._cut or "cut" in reply
                self._changed.notify_all()
        os._exit(SWEEP_GONE)  # the sweep has ended: so do this process and its sandboxes
