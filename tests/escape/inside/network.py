"""The network. Nothing here may run in the host's network namespace: the weakened sandboxes get one of the suite's."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct

from .common import PLAN, Open, Untried, call, find_lure, probe, read, refused

WAIT_S = 0.5


def fetch(address: tuple[str, int], family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> None:
    """Connect, send a request, and search the answer for a lure; OSError when nothing answers."""
    with socket.socket(family, kind) as client:
        client.settimeout(WAIT_S)
        client.connect(address)
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        find_lure(client.recv(4096), address[0])
        raise Open(f"{address[0]} answered")


@probe("net")
def loopback() -> None:
    """A service on the host's 127.0.0.1."""
    fetch(("127.0.0.1", PLAN["port"]))


@probe("net", lacking=True)
def loopback_6() -> None:
    """A service on the host's ::1."""
    fetch(("::1", PLAN["port"]), socket.AF_INET6)


@probe("net", lacking=True)
def metadata() -> None:
    """A cloud's metadata address, 169.254.169.254, with its keys -- the Capital One breach of 2019."""
    fetch(("169.254.169.254", 80))


@probe("net", lacking=True)
def name_server() -> None:
    """A name server on the host (127.0.0.53, UDP): queries can carry any data out."""
    fetch(("127.0.0.53", 53), kind=socket.SOCK_DGRAM)


@probe()
def addresses_outside() -> str:
    """TCP and UDP to addresses outside (reserved ones that lead nowhere), IPv4, IPv6, broadcast and multicast."""
    for family, address in (
        (socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "10.0.0.1"), (socket.AF_INET, "172.17.0.1"),
        (socket.AF_INET, "255.255.255.255"), (socket.AF_INET, "224.0.0.251"), (socket.AF_INET6, "2001:db8::1"),
        (socket.AF_INET6, "ff02::1"),
    ):  # fmt: skip
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(family, kind) as client:
                client.settimeout(WAIT_S)
                if kind == socket.SOCK_DGRAM:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                try:
                    client.connect((address, 9))
                    client.send(b"x")
                except OSError as error:
                    if error.errno in (
                        errno.ENETUNREACH,
                        errno.EACCES,
                        errno.EADDRNOTAVAIL,
                        errno.EINVAL,
                        errno.ECONNREFUSED,
                        errno.EAFNOSUPPORT,
                    ):
                        continue
                raise Open(f"there is a way to {address}")
    return "no route to any"


@probe()
def names() -> str:
    """Resolving names: a cloud's, the container host's, a public one."""
    for name in (
        "metadata.google.internal",
        "host.docker.internal",
        "kubernetes.default.svc",
        "example.com",
        "arena-none.invalid",
    ):
        try:
            found = socket.getaddrinfo(name, 80)
        except OSError:
            continue
        raise Open(f"{name} is {found[0][4][0]}")
    return "no name resolves"


@probe("net", lacking=True)
def interfaces() -> str:
    """Interfaces and addresses beyond the sandbox's own loopback."""
    found = [name for _, name in socket.if_nameindex()]
    if found != ["lo"]:
        raise Open(f"interfaces {found}")
    if "169.254.169.254" in read("/proc/net/fib_trie").decode():
        raise Open("an address of the host")
    return "only lo"


@probe("capabilities")
def own_interfaces() -> str:
    """Interfaces, addresses and routes made by rtnetlink and ioctl."""
    link = struct.pack("=IHHII", 32, 16, 0x605, 1, 0) + struct.pack("=BxHiII", 0, 0, 0, 0, 0)
    name = struct.pack("16sHH", b"lo", socket.AF_INET, 0) + socket.inet_aton("10.9.8.7") + bytes(8)

    def by_ioctl() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, 0x8916, name)
        return "an address"

    def by_netlink() -> str:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as control:
            control.settimeout(WAIT_S)
            control.send(link)
            answer = control.recv(4096)
        code = struct.unpack("=i", answer[16:20])[0]
        if code in (-errno.EPERM, -errno.EACCES):
            raise OSError(-code, os.strerror(-code))
        return f"answer {code}"

    return refused(by_ioctl, by_netlink)


@probe("capabilities")
def raw_sockets() -> str:
    """Raw and packet sockets, and ping."""
    return refused(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255),
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300),
        lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58),
    )


@probe("filter", lacking=True)
def vsock() -> None:
    """A socket to the hypervisor (AF_VSOCK), which no network namespace covers (only made) -- microsoft/mxc#936."""
    socket.socket(40, socket.SOCK_STREAM)
    raise Open("made")


@probe("filter", lacking=True)
def kernel_crypto() -> None:
    """The kernel's cryptography (AF_ALG) -- CVE-2019-8912."""
    socket.socket(38, 5, 0)
    raise Open("made")


@probe()
def families() -> str:
    """Sockets of every other family: bluetooth, CAN, TIPC, RDS, XDP, SMC, Qualcomm's, netrom, vsock again, pairs too."""
    made = []
    for family in range(3, 64):
        if family in (10, 16):
            continue
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind, 0).close()
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue
                if error.errno in (errno.EPERM, errno.EACCES):
                    continue
            made.append(family)
    if made:
        raise Open(f"families {sorted(set(made))}")
    return "families 3 to 63: none"


@probe("net", lacking=True)
def hijack_port() -> str:
    """Listening beside a service of the host on its own port (SO_REUSEPORT)."""
    if PLAN["variant"] != "net":
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", PLAN["shared_port"]))
            server.listen()
        return "bound on the sandbox's own loopback, to which no host process connects"
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", PLAN["shared_port"]))
        server.listen()
    raise Open("beside the host's service")


@probe()
def bridge_is_the_only_way() -> str:
    """The bridge: its own port answers, and no other port of the sandbox's loopback leads anywhere."""
    if not PLAN.get("bridge"):
        raise Untried("this sandbox has no bridge")
    with socket.create_connection(("127.0.0.1", PLAN["bridge"]), 3) as client:
        client.sendall(b"hello")
        if b"bridge" not in client.recv(100):
            raise Open("something else answers there")
    for port in (*range(1, 1024), *range(3000, 3200), 8000, 8080, 8888, PLAN["port"]):
        if port == PLAN["bridge"]:
            continue
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                raise Open(f"port {port} leads somewhere")
    return "only the bridge's port"


@probe(also=(errno.EADDRINUSE,))
def bridge_taken_over() -> str:
    """Listening in the bridge's place: a later program of the sandbox would take it for the gateway."""
    if not PLAN.get("bridge"):
        raise Untried("this sandbox has no bridge")

    def beside() -> str:
        with socket.socket() as server:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind(("127.0.0.1", PLAN["bridge"]))
            server.listen()
        return "listening beside it"

    return refused(beside)


@probe()
def bridge_socket() -> str:
    """The host's socket behind the bridge: a file or a mount that is a socket, or a descriptor of process 1 that leads to one."""
    if not PLAN.get("bridge"):
        raise Untried("this sandbox has no bridge")
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        found = [line.split()[4] for line in mounts]
    found += [os.path.join(top, name) for place in ("/run", "/dev", "/etc") for top, _, files in os.walk(place) for name in files]
    if sockets := [path for path in found if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode)]:
        raise Open(f"shown: {sockets}")

    def connected(number: int) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/1/fd/{number}")
        return f"connected by descriptor {number}"

    return refused(*(lambda n=number: connected(n) for number in range(3, 64)))


@probe("capabilities")
def open_netns_files() -> str:
    """/run/netns and /var/run/netns, and other network namespaces by setns."""
    for folder in ("/run/netns", "/var/run/netns"):
        if os.path.isdir(folder):
            raise Open(f"{folder} is there")
    return refused(lambda: call("setns", os.open("/proc/1/ns/net", os.O_RDONLY), 0x40000000) or "entered")
