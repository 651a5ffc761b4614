"""A server of the tests' own on a unix socket."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def echo(link: socket.socket) -> None:
    while piece := link.recv(1 << 16):
        link.sendall(piece)


@contextmanager
def served(talk: Callable[[socket.socket], None]) -> Iterator[Path]:
    """A unix socket on which every connection is a `talk` of its own."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder, "socket")
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(300)

        def one(link: socket.socket) -> None:
            with link:
                link.settimeout(20)
                try:
                    talk(link)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(link,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
