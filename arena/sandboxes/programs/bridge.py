"""Traffic between the sandbox's own 127.0.0.1 and unix sockets of the host. Part of process 1: no signal inside can end it.

Process 1 reaches a server by a descriptor of its socket (O_PATH), which no other process of the sandbox has: no file inside leads
there. Over a unix socket a program could send arena descriptors: arena would hold its pipes open after the sandbox's end, and
drop the last name of a TCP socket whose SO_LINGER says how long arena hangs. Over TCP it sends bytes alone.

Nothing is parsed. A half-closed stream is half-closed on the other side, a reset one is reset. The bridge reads from a
side only as fast as the other reads: at most `CHUNK_BYTES` wait in each direction.
"""

import resource
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket  # `socket` imports enum and more: 10 ms of processor time at every start

CHUNK_BYTES = 1 << 16
CONNECTIONS = 256  # at once; further ones wait in the kernel's queue, which is this long again
SPARE_FILES = 32  # descriptors of process 1 that are not the bridge's, and some
EVENTS = 64  # served before process 1 reads its orders again
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class End:
    """One of the two sockets of a connection."""

    peer: "End"

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.pending = b""  # bytes from the peer that are still to be sent here
        self.ended = False  # whether it has sent its last byte
        self.watched = 0
        """Events that the epoll waits for. With 0 it is not in the epoll, where the end of its peer would wake us for ever."""

    def flush(self) -> None:
        """Send the pending bytes, as far as the socket takes them. OSError when the other side is gone."""
        if self.pending:
            try:
                self.pending = self.pending[self.socket.send(self.pending) :]
            except BlockingIOError:
                return
            if not self.pending and self.peer.ended:
                self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> None:
        """Pass one chunk to the peer, unless the last one is still pending there."""
        if self.ended or self.peer.pending:
            return
        try:
            self.peer.pending = self.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if self.peer.pending:
            self.peer.flush()
        else:
            self.ended = True
            self.peer.socket.shutdown(socket.SHUT_WR)


class Bridges:
    """All of a sandbox's bridges. `epoll` is readable when `serve_ready` has work."""

    def __init__(self, sockets: dict[int, int]) -> None:
        """`sockets`: port -> descriptor of the unix socket of its server."""
        self.epoll = select.epoll()
        self.ends: dict[int, End] = {}
        self.room = min(CONNECTIONS, max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES) // 2))
        self.listeners: dict[int, tuple[socket.socket, str]] = {}
        for port, server in sockets.items():
            listener = socket.socket(socket.AF_INET)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on port {port}: {error.strerror}") from None
            listener.listen(CONNECTIONS)
            self.listeners[listener.fileno()] = listener, f"/proc/self/fd/{server}"
        self.listen(True)

    def listen(self, wanted: bool) -> None:
        """Accept new connections from now on, or none."""
        for fd in self.listeners:
            if wanted:
                self.epoll.register(fd, select.EPOLLIN)
            else:
                self.epoll.unregister(fd)

    def serve_ready(self) -> None:
        """Move the bytes that can be moved, without waiting."""
        for fd, _ in self.epoll.poll(0, EVENTS):
            # Within these events a descriptor may have been closed and reused: then it has nothing to do yet.
            if fd in self.listeners:
                self.accept(*self.listeners[fd])
            elif fd in self.ends:
                self.move(self.ends[fd])

    def accept(self, listener: socket.socket, path: str) -> None:
        """Connect a waiting client; reset it when no server listens on the host's side."""
        if len(self.ends) >= 2 * self.room:
            return
        try:
            client = socket.socket(fileno=listener._accept()[0])  # type: ignore[attr-defined]  # of `_socket`
        except OSError:  # gone again
            return
        server = socket.socket(socket.AF_UNIX)
        for connection in (client, server):
            connection.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            server.connect(path)
        except OSError:  # no server listens, or too many clients wait there already
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            client.close()
            server.close()
            return
        one, other = End(client), End(server)
        one.peer, other.peer = other, one
        for end in (one, other):
            self.ends[end.socket.fileno()] = end
            self.watch(end)
        if len(self.ends) >= 2 * self.room:
            self.listen(False)

    def move(self, end: End) -> None:
        """Send the bytes pending at this end, and receive new ones."""
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
        """Wait for the events that this end can use now."""
        wanted = (0 if end.ended or end.peer.pending else select.EPOLLIN) | (select.EPOLLOUT if end.pending else 0)
        if wanted == end.watched:
            return
        if not wanted:
            self.epoll.unregister(end.socket)
        elif end.watched:
            self.epoll.modify(end.socket, wanted)
        else:
            self.epoll.register(end.socket, wanted)
        end.watched = wanted

    def close(self, end: End, reset: bool) -> None:
        """End a connection on both sides."""
        full = len(self.ends) >= 2 * self.room
        for gone in (end, end.peer):
            del self.ends[gone.socket.fileno()]
            if reset and gone.socket.family == socket.AF_INET:
                gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            gone.socket.close()  # the epoll forgets it by itself
        if full:
            self.listen(True)
