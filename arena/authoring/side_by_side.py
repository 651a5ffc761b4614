"""Several pieces of work under way at a time, with their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(work: Callable[[str], Result], names: Iterable[str], at_once: int) -> Iterator[tuple[str, Result]]:
    """What `work` gives for each name, in their order, with some of it under way at a time.

    After Ctrl-C or an error arena does not wait for the threads, and their sandboxes end with it.
    """
    results = {name: Future[Result]() for name in names}
    waiting = deque(results)

    def take() -> None:
        while waiting:
            with suppress(IndexError):  # another thread took the last one
                name = waiting.popleft()
                try:
                    results[name].set_result(work(name))
                except BaseException as error:
                    results[name].set_exception(error)

    for _ in range(min(at_once, len(results))):
        Thread(target=take, daemon=True).start()
    try:
        for name, result in results.items():
            yield name, result.result()
    finally:
        waiting.clear()
