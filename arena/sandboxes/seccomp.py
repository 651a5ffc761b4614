"""The system call filter of a sandbox: a deny list as data, compiled to classic BPF for `bwrap --add-seccomp-fd`.

Allowed on purpose: memfd_create (without it cuInit returns 304), mbind, set_mempolicy, get_mempolicy and move_pages (the CUDA
driver and NUMA libraries call them), bind and listen (the driver has unix sockets of its own; the network namespace is empty).
"""

from __future__ import annotations

import errno
import functools
import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple

from arena.errors import SandboxError


class Arch(NamedTuple):
    """What differs between machines: AUDIT_ARCH_* of the kernel, and the column of `NUMBERS`."""

    audit: int
    column: int


ARCHES = {"x86_64": Arch(0xC000003E, 0), "aarch64": Arch(0xC00000B7, 1)}

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # Keyrings: no namespace that bwrap makes covers the launcher's.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Namespaces and mounts. They need capabilities that no sandbox has: a second isolation layer.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # Wide kernel surfaces without a use here. io_uring could also make the sockets that are refused below.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # Each page splits the kernel's own mapping of memory for good, and the watchdog does not count it.
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # One number of contexts for the whole machine (fs.aio-max-nr). The other calls of this interface need one of these.
    "io_setup": (206, 0),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "personality": (135, 92),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # The machine itself.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # Changes the disk priority of any process, group or user, process 1 among them.
    "ioprio_set": (251, 30),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    # Into other processes of the sandbox, its process 1 among them.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}
"""Refused with EPERM whatever the arguments: name -> number on x86_64 and on aarch64 (None: it has no such call)."""

INSPECTED: dict[str, tuple[int, int]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setpriority": (141, 140),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
}
"""Refused for some arguments only: see `instructions`."""
NAMES_A_PROCESS = {
    **dict.fromkeys(("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"), 0),
    "setpriority": 1,
}
"""Argument that names the process to change. Never process 1: it has the same user, and must answer the judge."""
PRIO_PROCESS = 0
"""The only kind that setpriority may name. Named by group (1) or user (2), process 1 got nice 19, and a freeze took too long."""

CLONE_NEW_ANY = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. CLONE_NEWTIME is no flag of clone(2)."""
IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX: typing into the launcher's terminal
FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. Not AF_VSOCK: no network namespace separates it from the hypervisor. A sandbox
without internet sockets has only the first: TCP memory is one pool for the machine, and netlink is a wide kernel surface."""
PROTOCOLS = (0, 6, 17)
"""Of the internet families only TCP and UDP. For others (SCTP, DCCP, UDP-Lite) the kernel may load a module, in a sandbox too."""
NETLINK_PROTOCOLS = (0, 15)
"""NETLINK_ROUTE, which the C library asks for names of interfaces, and NETLINK_KOBJECT_UEVENT, for programs that find devices."""
OTHER_TYPES = 0xC  # bits of a socket's type that neither SOCK_STREAM nor SOCK_DGRAM has; its flags lie higher
RLIMIT_CORE = 4
FIRST_UNKNOWN = 470
"""The first number that Linux 6.18 has not assigned. Later calls, and x32 with them, do not exist in a sandbox."""

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCH_AT = 0, 4
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


class Instruction(NamedTuple):
    """struct sock_filter. Jumps count instructions from the next one."""

    code: int
    if_true: int
    if_false: int
    value: int


def _low_word_at(argument: int) -> int:
    """Offset of the low 32 bits of a call's argument. The kernel ignores the rest of an int, and so must the comparison
    (CVE-2019-10063: TIOCSTI with a high bit set passed a 64-bit one)."""
    return 16 + 8 * argument


def _refuse(error: int) -> Instruction:
    return Instruction(RETURN, 0, 0, ERRNO | error)


def _socket(allow: Instruction, internet_sockets: bool) -> list[Instruction]:
    """Allow by family, and within the internet families by type and protocol."""
    unix, ipv4, ipv6, netlink = FAMILIES
    if not internet_sockets:
        return _by_value(0, (unix,), allow, _refuse(errno.EAFNOSUPPORT))
    refuse = _refuse(errno.EPROTONOSUPPORT)
    internet = [Instruction(LOAD, 0, 0, _low_word_at(1)), Instruction(JUMP_ANY_BIT, 0, 1, OTHER_TYPES), refuse]
    internet += _by_value(2, PROTOCOLS, allow, refuse)
    routing = _by_value(2, NETLINK_PROTOCOLS, allow, refuse)
    return [
        Instruction(LOAD, 0, 0, _low_word_at(0)),
        Instruction(JUMP_EQUAL, 0, 1, unix),
        allow,
        Instruction(JUMP_EQUAL, 0, len(routing), netlink),
        *routing,
        Instruction(JUMP_EQUAL, 1, 0, ipv4),
        Instruction(JUMP_EQUAL, 0, len(internet), ipv6),
        *internet,
        _refuse(errno.EAFNOSUPPORT),
    ]


def _core_stays_off(allow: Instruction) -> list[Instruction]:
    """prlimit64 of RLIMIT_CORE: reading is allowed; setting does nothing and reports success (lifecycle.py has the value)."""
    return [
        Instruction(LOAD, 0, 0, _low_word_at(1)),
        Instruction(JUMP_EQUAL, 0, 5, RLIMIT_CORE),
        Instruction(LOAD, 0, 0, _low_word_at(2)),
        Instruction(JUMP_EQUAL, 0, 2, 0),
        Instruction(LOAD, 0, 0, _low_word_at(2) + 4),
        Instruction(JUMP_EQUAL, 1, 0, 0),
        _refuse(0),
        allow,
    ]


def _for_call(number: int, body: list[Instruction]) -> list[Instruction]:
    """`body` for this call; it must return. Other calls skip it."""
    return [Instruction(JUMP_EQUAL, 0, len(body), number), *body]


def _by_value(argument: int, values: tuple[int, ...], found: Instruction, other: Instruction) -> list[Instruction]:
    """`found` when the argument is one of the values, else `other`."""
    tests = [step for value in values for step in (Instruction(JUMP_EQUAL, 0, 1, value), found)]
    return [Instruction(LOAD, 0, 0, _low_word_at(argument)), *tests, other]


def instructions(machine: str, deny_affinity: bool, internet_sockets: bool) -> Iterator[Instruction]:
    """The filter, in order."""
    audit, column = ARCHES[machine]
    allow = Instruction(RETURN, 0, 0, ALLOW)
    yield Instruction(LOAD, 0, 0, ARCH_AT)
    yield Instruction(JUMP_EQUAL, 1, 0, audit)
    yield Instruction(RETURN, 0, 0, KILL_PROCESS)  # int 0x80 on x86_64: other numbers, same kernel
    yield Instruction(LOAD, 0, 0, NUMBER_AT)
    yield Instruction(JUMP_AT_LEAST, 0, 1, FIRST_UNKNOWN)
    yield _refuse(errno.ENOSYS)
    for numbers in NUMBERS.values():
        if (number := numbers[column]) is not None:
            yield from _for_call(number, [_refuse(errno.EPERM)])
    call = {name: numbers[column] for name, numbers in INSPECTED.items()}
    # Its flags are behind a pointer, where no filter can look; glibc falls back to clone.
    yield from _for_call(call["clone3"], [_refuse(errno.ENOSYS)])
    flags = [Instruction(LOAD, 0, 0, _low_word_at(0)), Instruction(JUMP_ANY_BIT, 0, 1, CLONE_NEW_ANY)]
    yield from _for_call(call["clone"], [*flags, _refuse(errno.EPERM), allow])
    yield from _for_call(call["ioctl"], _by_value(1, IOCTLS, _refuse(errno.EPERM), allow))
    for name in ("socket", "socketpair"):
        yield from _for_call(call[name], _socket(allow, internet_sockets))
    yield from _for_call(call["setrlimit"], _by_value(0, (RLIMIT_CORE,), _refuse(0), allow))
    if deny_affinity:
        yield from _for_call(call["sched_setaffinity"], [_refuse(errno.EPERM)])
    for name, argument in NAMES_A_PROCESS.items():
        body = _by_value(argument, (1,), _refuse(errno.EPERM), allow)
        if name == "setpriority":
            whom = [Instruction(LOAD, 0, 0, _low_word_at(0)), Instruction(JUMP_EQUAL, 1, 0, PRIO_PROCESS), _refuse(errno.EPERM)]
            body = [*whom, *body]
        if name == "prlimit64":
            body = [*body[:-1], *_core_stays_off(allow)]
        yield from _for_call(call[name], body)
    yield allow


@functools.cache
def compile_filter(*, deny_affinity: bool, internet_sockets: bool, machine: str | None = None) -> bytes:
    """The filter in the kernel's binary form, for this machine unless another is named. SandboxError for an unknown machine."""
    machine = machine or platform.machine()
    if machine not in ARCHES:
        raise SandboxError(
            f"no system call filter for {machine} (there is one for {', '.join(ARCHES)}); arena cannot seal a sandbox here"
        )
    return b"".join(struct.pack("=HBBI", *step) for step in instructions(machine, deny_affinity, internet_sockets))
