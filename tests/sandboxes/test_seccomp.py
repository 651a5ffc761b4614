"""The system call filter: run as data by a small interpreter, and checked against the kernel's headers."""

import errno
import functools
import re
import struct
from pathlib import Path

import pytest

from arena.errors import SandboxError
from arena.sandboxes.seccomp import ARCHES, INSPECTED, NUMBERS, compile_filter

ALLOWED = "allowed"
KILLED = "killed"
DONE_NOTHING = "success without effect"
HIGH = 1 << 32


def verdict(filter_bytes, machine, number, *args, audit=None):
    """What the kernel would do: interprets classic BPF over a struct seccomp_data."""
    data = struct.pack("=iIQ6Q", number, audit or ARCHES[machine].audit, 0, *args, *[0] * (6 - len(args)))
    steps = list(struct.iter_unpack("=HBBI", filter_bytes))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code in (0x15, 0x35, 0x45):
            hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value}[code]
            at += if_true if hit else if_false
        elif code == 0x06:
            kind, low = value & 0xFFFF0000, value & 0xFFFF
            return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(kind) or (errno.errorcode[low] if low else DONE_NOTHING)
        else:
            raise AssertionError(f"instruction {code:#x}")


@functools.cache
def compiled(machine, deny_affinity=False, internet_sockets=True):
    return compile_filter(deny_affinity=deny_affinity, internet_sockets=internet_sockets, machine=machine)


@pytest.fixture(params=sorted(ARCHES))
def decide(request):
    machine, column = request.param, ARCHES[request.param].column

    def call(name, *args, **options):
        number = (NUMBERS | INSPECTED)[name][column]
        return None if number is None else verdict(compiled(machine, **options), machine, number, *args)

    return call


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_listed_calls_are_refused(decide, name):
    assert decide(name) in ("EPERM", None)


@pytest.mark.parametrize(
    ("name", "args", "outcome"),
    [
        ("clone3", (), "ENOSYS"),
        ("clone", (0x11,), ALLOWED),  # fork: SIGCHLD
        ("clone", (0x3D0F00,), ALLOWED),  # a thread of glibc
        ("clone", (0x10000011,), "EPERM"),  # CLONE_NEWUSER
        ("clone", (0x00020011,), "EPERM"),  # CLONE_NEWNS
        ("clone", (HIGH | 0x40000000,), "EPERM"),
        ("ioctl", (0, 0x5401), ALLOWED),  # TCGETS
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, HIGH | 0x5412), "EPERM"),
        ("ioctl", (0, HIGH | 0x541C), "EPERM"),
        ("socket", (1,), ALLOWED),
        ("socket", (10,), ALLOWED),
        ("socket", (40,), "EAFNOSUPPORT"),  # AF_VSOCK
        ("socket", (38,), "EAFNOSUPPORT"),  # AF_ALG
        ("socket", (HIGH | 40,), "EAFNOSUPPORT"),
        ("socket", (2, 0x80801, 0), ALLOWED),  # SOCK_STREAM with its flags
        ("socket", (2, 2, 17), ALLOWED),
        ("socket", (10, 1, 6), ALLOWED),
        ("socket", (2, 5, 0), "EPROTONOSUPPORT"),  # SOCK_SEQPACKET: SCTP
        ("socket", (2, 6, 0), "EPROTONOSUPPORT"),  # SOCK_DCCP
        ("socket", (2, 1, 132), "EPROTONOSUPPORT"),  # SCTP by its number
        ("socket", (10, 2, HIGH | 136), "EPROTONOSUPPORT"),  # UDP-Lite
        ("socket", (2, 1, 262), "EPROTONOSUPPORT"),  # MPTCP: Go asks for it and goes on without
        ("socket", (16, 3, 0), ALLOWED),  # NETLINK_ROUTE
        ("socket", (16, 3, 12), "EPROTONOSUPPORT"),  # NETLINK_NETFILTER
        ("socketpair", (1,), ALLOWED),
        ("socketpair", (40,), "EAFNOSUPPORT"),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1, 7), "EPERM"),
        ("prlimit64", (HIGH | 1, 7), "EPERM"),
        ("prlimit64", (0, 4, 0, HIGH), ALLOWED),  # RLIMIT_CORE read
        ("prlimit64", (0, 4, 16), DONE_NOTHING),  # and set
        ("prlimit64", (0, 4, HIGH), DONE_NOTHING),
        ("prlimit64", (1, 4, 0), "EPERM"),
        ("setrlimit", (4,), DONE_NOTHING),
        ("setrlimit", (7,), ALLOWED),
        ("sched_setaffinity", (0,), ALLOWED),
        ("sched_setaffinity", (1,), "EPERM"),
        ("sched_setscheduler", (7,), ALLOWED),
        ("sched_setscheduler", (1,), "EPERM"),
        ("sched_setparam", (1,), "EPERM"),
        ("sched_setattr", (1,), "EPERM"),
        ("setpriority", (0, 0), ALLOWED),
        ("setpriority", (HIGH, 7), ALLOWED),
        ("setpriority", (0, 1), "EPERM"),
        ("setpriority", (1, 1), "EPERM"),
        ("setpriority", (1, 0), "EPERM"),  # the caller's own group, which process 1 may be in
        ("setpriority", (HIGH | 1, 7), "EPERM"),
        ("setpriority", (2, 0), "EPERM"),
    ],
)
def test_calls_are_refused_by_arguments(decide, name, args, outcome):
    assert decide(name, *args) == outcome


def test_affinity_is_refused_on_request(decide):
    assert decide("sched_setaffinity", 0, deny_affinity=True) == "EPERM"
    assert decide("clone", 0x11, deny_affinity=True) == ALLOWED


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_without_the_internet_unix_sockets_are_left(decide, call):
    families = {family: decide(call, family, 1, 0, internet_sockets=False) for family in range(64)}
    assert [family for family, outcome in families.items() if outcome == ALLOWED] == [1]
    assert set(families.values()) == {ALLOWED, "EAFNOSUPPORT"}
    assert decide(call, HIGH | 2, 1, 0, internet_sockets=False) == "EAFNOSUPPORT"


@pytest.mark.parametrize(
    ("machine", "other"),
    [("x86_64", 0x40000003), ("x86_64", 0xC00000B7), ("aarch64", 0x40000028), ("aarch64", 0xC000003E), ("aarch64", 0x800000B7)],
)
def test_another_architecture_is_killed(machine, other):
    assert verdict(compiled(machine), machine, 0, audit=other) == KILLED


@pytest.mark.parametrize("number", [0x40000000, 0x40000000 | 248, -1])
def test_x32_numbers_do_not_dodge_the_list(number):
    assert verdict(compiled("x86_64"), "x86_64", number) == "ENOSYS"


@pytest.mark.parametrize("machine", sorted(ARCHES))
def test_calls_of_newer_kernels_do_not_exist(machine):
    filter_bytes = compiled(machine)
    assert {verdict(filter_bytes, machine, number) for number in (470, 471, 500, 1000)} == {"ENOSYS"}
    assert verdict(filter_bytes, machine, 469) == ALLOWED


@pytest.mark.parametrize(
    ("machine", "names"), [("x86_64", {"memfd_create": 319, "mbind": 237, "timer_create": 222, "execve": 59})]
)
def test_calls_that_cuda_needs_stay_allowed(machine, names):
    filter_bytes = compiled(machine, deny_affinity=True)
    assert {name: verdict(filter_bytes, machine, number) for name, number in names.items()} == dict.fromkeys(names, ALLOWED)


def test_an_unknown_machine_is_refused():
    with pytest.raises(SandboxError, match=r"riscv64.*x86_64, aarch64"):
        compiled("riscv64")


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")), (1, Path("/usr/include/asm-generic/unistd.h"))],
    ids=["x86_64", "aarch64"],
)
def test_numbers_are_the_kernels(column, header):
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    newest = max(found.values())  # of the kernel that these headers are of
    ours = {name: numbers[column] for name, numbers in (NUMBERS | INSPECTED).items() if (numbers[column] or 0) <= newest}
    assert ours == {name: found.get(name) for name in ours}
    assert len(ours) >= 69
