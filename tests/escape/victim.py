"""The victim, a host process that holds a lure in every way a process can: `victim.py < plan`."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import threading

from escape.inside.common import buffer, call

libc = ctypes.CDLL(None, use_errno=True)
WORLD_WRITABLE = 0o1666


def answer(server: socket.socket, word: bytes) -> None:
    """Send the word to every client."""
    server.listen()
    while True:
        client, _ = server.accept()
        with client:
            client.send(word)


def serve(server: socket.socket, word: bytes) -> int:
    """Answer in the background; the port, if it has one."""
    threading.Thread(target=answer, args=(server, word), daemon=True).start()
    name = server.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def answer_datagrams(server: socket.socket, word: bytes) -> None:
    """A name server that answers with one word."""
    while True:
        _, client = server.recvfrom(512)
        server.sendto(word, client)


def unix(name: str) -> socket.socket:
    """A listening unix socket, abstract or on a path."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    if not name.startswith("\0"):
        os.chmod(name, 0o777)  # noqa: PTH101
    return server


def kernel_objects(key: int, queue: str, word: bytes) -> None:
    """SysV memory, semaphores and messages under the key, and a POSIX queue."""
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(call("shmget", key, 4096, 0o1000 | WORLD_WRITABLE), None, 0)
    ctypes.memmove(address, word, len(word))
    call("semget", key, 1, 0o1000 | WORLD_WRITABLE)
    call("msgsnd", call("msgget", key, 0o1000 | WORLD_WRITABLE), buffer(128, struct.pack("q", 1) + word), len(word), 0)
    attributes = buffer(64, struct.pack("4q", 0, 4, 256, 0) + bytes(32))
    opened = call("mq_open", queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, attributes)
    call_send = libc.syscall
    call_send(ctypes.c_long(242 if os.uname().machine == "x86_64" else 182), opened, word, len(word), 0, None)


def main() -> None:
    """Set everything up, print the ports, and wait for the end."""
    plan = json.loads(sys.stdin.readline())
    word = plan["erul"][::-1].encode()
    ports = {"port": serve(socket.create_server(("127.0.0.1", 0)), word + b"loopback service")}
    serve(unix("\0" + plan["abstract"]), word + b"abstract socket")
    serve(unix(plan["socket"]), word + b"path socket")
    shared = socket.socket()
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(("127.0.0.1", 0))
    ports["shared_port"] = serve(shared, word + b"shared port")
    for family, address in ((socket.AF_INET6, ("::1", ports["port"])), (socket.AF_INET, ("169.254.169.254", 80))):
        try:
            serve(socket.create_server(address, family=family), word + b"metadata")
        except OSError:  # a plain user leaves the host's network as it is
            continue
    if plan["isolated"]:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.53", 53))
        threading.Thread(target=answer_datagrams, args=(server, word + b"name server"), daemon=True).start()
    kernel_objects(plan["ipc_key"], plan["queue"], word + b"kernel object")
    call("shmget", plan["left_key"], 4096, 0o1000 | WORLD_WRITABLE)
    print(json.dumps(ports), flush=True)
    sys.stdin.read()
    if not plan["isolated"]:
        forget(plan["ipc_key"], plan["queue"])
        libc.shmctl(libc.shmget(plan["left_key"], 0, 0), 0, None)


def forget(key: int, queue: str) -> None:
    """Remove what outlives this process, where the suite has no namespaces of its own."""
    libc.shmctl(libc.shmget(key, 0, 0), 0, None)
    libc.semctl(libc.semget(key, 0, 0), 0, 0)
    libc.msgctl(libc.msgget(key, 0), 0, None)
    libc.syscall(ctypes.c_long(241 if os.uname().machine == "x86_64" else 181), queue.encode())


if __name__ == "__main__":
    main()
