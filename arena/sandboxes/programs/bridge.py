"""Traffic between the box's own 127.0.0.1 and unix sockets of the host. Part of process 1, where no signal of the box ends it.

FOLDER/3128 leads port 3128 to the unix socket of that name. Nothing is parsed. A half-closed stream is half-closed on the other
side, a reset one is reset, and who does not read is not read from: at most `CHUNK_BYTES` wait in each direction.
"""

# ruff: noqa: PTH208  (importing pathlib would add 6 ms to every start)
import os
import resource
import select
import socket
import struct

CHUNK_BYTES = 1 << 16
CONNECTIONS = 256
"""At once; further ones wait in the kernel's queue, which is this long again."""
SPARE_FILES = 32
"""Descriptors of process 1 that are not the bridge's, and some."""
EVENTS = 64
"""Served before process 1 looks at its orders again."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class End:
    """One of the two sockets of a connection."""

    peer: "End"

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.pending = b""
        """Came from the peer and is still to be sent here."""
        self.ended = False
        """It has said all that it had to say."""
        self.watched = 0
        """Events that are asked for; 0 when it is not in the epoll at all, where the end of its peer would wake us for ever."""

    def flush(self) -> None:
        """Send what is pending, as far as it goes; OSError when nobody is there."""
        if self.pending:
            try:
                self.pending = self.pending[self.link.send(self.pending) :]
            except BlockingIOError:
                return
            if not self.pending and self.peer.ended:
                self.link.shutdown(socket.SHUT_WR)

    def receive(self) -> None:
        """Take one chunk to the peer, unless the last one is still pending there."""
        if self.ended or self.peer.pending:
            return
        try:
            self.peer.pending = self.link.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if self.peer.pending:
            self.peer.flush()
        else:
            self.ended = True
            self.peer.link.shutdown(socket.SHUT_WR)


class Bridges:
    """All of a box's bridges. `epoll` is readable when there is something for `turn` to do."""

    def __init__(self, folder: str) -> None:
        self.epoll = select.epoll()
        self.ends: dict[int, End] = {}
        self.room = min(CONNECTIONS, max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES) // 2))
        self.listeners: dict[int, tuple[socket.socket, str]] = {}
        for name in os.listdir(folder):
            listener = socket.socket(socket.AF_INET)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            try:
                listener.bind(("127.0.0.1", int(name)))
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on port {name}: {error.strerror}") from None
            listener.listen(CONNECTIONS)
            self.listeners[listener.fileno()] = listener, f"{folder}/{name}"
        self.listen(True)

    def listen(self, wanted: bool) -> None:
        """Take new connections from now on, or none."""
        for fd in self.listeners:
            if wanted:
                self.epoll.register(fd, select.EPOLLIN)
            else:
                self.epoll.unregister(fd)

    def turn(self) -> None:
        """Move what can be moved, without ever waiting."""
        for fd, _ in self.epoll.poll(0, EVENTS):
            # Within these events a descriptor may have been closed and given out again: then there is just nothing to do yet.
            if fd in self.listeners:
                self.accept(*self.listeners[fd])
            elif fd in self.ends:
                self.move(self.ends[fd])

    def accept(self, listener: socket.socket, path: str) -> None:
        """Connect one who waits; reset him when nobody is there on the host's side."""
        if len(self.ends) >= 2 * self.room:
            return
        try:
            client, _ = listener.accept()
        except OSError:  # gone again
            return
        server = socket.socket(socket.AF_UNIX)
        for link in (client, server):
            link.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            server.connect(path)
        except OSError:  # nobody listens, or too many wait there already
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            client.close()
            server.close()
            return
        one, other = End(client), End(server)
        one.peer, other.peer = other, one
        for end in (one, other):
            self.ends[end.link.fileno()] = end
            self.watch(end)
        if len(self.ends) >= 2 * self.room:
            self.listen(False)

    def move(self, end: End) -> None:
        """Whatever woke us: send what is pending at this end, and take what has come."""
        try:
            end.flush()
            end.receive()
        except OSError:
            self.close(end, reset=True)
            return
        if end.ended and end.peer.ended and not end.pending and not end.peer.pending:
            self.close(end, reset=False)
        else:
            self.watch(end)
            self.watch(end.peer)

    def watch(self, end: End) -> None:
        """Ask for the events that this end has a use for now."""
        wanted = (0 if end.ended or end.peer.pending else select.EPOLLIN) | (select.EPOLLOUT if end.pending else 0)
        if wanted == end.watched:
            return
        if not wanted:
            self.epoll.unregister(end.link)
        elif end.watched:
            self.epoll.modify(end.link, wanted)
        else:
            self.epoll.register(end.link, wanted)
        end.watched = wanted

    def close(self, end: End, reset: bool) -> None:
        """End a connection on both sides."""
        full = len(self.ends) >= 2 * self.room
        for gone in (end, end.peer):
            del self.ends[gone.link.fileno()]
            if reset and gone.link.family == socket.AF_INET:
                gone.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            gone.link.close()  # the epoll forgets it by itself
        if full:
            self.listen(True)
