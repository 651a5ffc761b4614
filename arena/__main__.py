"""`arena`, and `python -m arena`, which is the same: import the command line, and run it."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line and exit.

    An interrupt during its imports ends this process at once: nothing has been started yet, and some packages turn a
    KeyboardInterrupt in the middle of them into another error.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not ignored, as below `nohup`
        signal.signal(signal.SIGINT, _leave)
    from arena.cli import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"arena: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
