"""A host on loopback, and the reach of an egress proxy to it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arena.gateway.egress.rules import Address, private


@contextmanager
def upstream(talk: Callable[[socket.socket], object], address: str = "127.0.0.1") -> Iterator[int]:
    """A server on loopback; its port."""
    with socket.create_server((address, 0), backlog=300) as listener:

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
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def echo(link: socket.socket) -> None:
    while piece := link.recv(1 << 16):
        link.sendall(piece)


def reach_loopback(address: Address) -> bool:
    """Also the tests' servers, on the loopback that no option of arena opens."""
    return private(address) or address.is_loopback
