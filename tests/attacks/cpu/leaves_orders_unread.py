# verdict: cheated
# follows: naive
# Obeys without ever taking an order off the socket, until the judge cannot send any more.
# ruff: noqa
import array, socket, sys

_m = sys.modules["__main__"]


class _S:
    @staticmethod
    def recv_fds(sock, size, count):
        sock.setsockopt(socket.SOL_SOCKET, 42, max(0, sock.getsockopt(socket.SOL_SOCKET, 42)))  # SO_PEEK_OFF
        data, anc, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(4 * count), socket.MSG_PEEK)
        fds = array.array("i")
        for _, _, d in anc:
            fds.frombytes(d[: len(d) - len(d) % 4])
        return data, list(fds), 0, None


_m.socket = _S
