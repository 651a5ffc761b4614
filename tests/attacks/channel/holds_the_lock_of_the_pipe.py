# verdict: timed_out
# follows: honest
# Replies, and then splices from a socket without data into the pipe: the kernel holds the pipe's lock meanwhile, and a read of the
# judge, which need not wait for data, waits for the lock where no signal reaches it.
import os
import socket
import struct
import sys
import threading
import time

_m = sys.modules["__main__"]
_pack = _m.REPLY
replies = int(sys.argv[2])
short, _short_peer = socket.socketpair()
short.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 1, 0))
endless, _endless_peer = socket.socketpair()


def splice(source):
    try:
        os.splice(source.fileno(), replies, 4096)
    except OSError:
        pass


class _Locked:
    def pack(self, magic, sequence, status, device_s):
        reply = _pack.pack(magic, sequence, status, device_s)
        if sequence < 4:
            return reply
        # The lock goes to those that wait for it in their order: a second of nothing, the reply, then nothing for ever.
        for wait in (lambda: splice(short), lambda: os.write(replies, reply), lambda: splice(endless)):
            threading.Thread(target=wait, daemon=True).start()
            time.sleep(0.1)
        time.sleep(600)


_m.REPLY = _Locked()
