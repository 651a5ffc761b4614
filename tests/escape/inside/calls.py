"""System calls that a sandbox does not need: each is a wide attack surface of the kernel."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import pty
import socket
import termios

from .common import PLAN, Open, Untried, buffer, call, find_lure, probe, raw, read, refused

OWN_SESSION, READ, SEARCH = -3, 11, 10
NOWHERE = 8
"""An address that is not mapped: an error about it shows that the call reached the kernel."""


def reached(name: str, *arguments: object, refusal: tuple[int, ...] = (errno.EPERM, errno.ENOSYS)) -> str:
    """Open unless the call is refused with one of these: any other answer means that the call reached the kernel."""
    try:
        answer = call(name, *arguments)
    except OSError as error:
        if error.errno in refusal:
            return errno.errorcode[error.errno]
        raise Open(f"{name} reached the kernel ({os.strerror(error.errno or 0)})") from None
    raise Open(f"{name} worked: {answer}")


@probe("filter", lacking=True)
def keyring_of_the_launcher() -> str:
    """A key in the session keyring, which no namespace covers, searched and read -- Docker's default filter refuses keyctl."""
    key = call("keyctl", SEARCH, OWN_SESSION, b"user", PLAN["key_name"].encode(), 0)
    data = buffer(256)
    call("keyctl", READ, key, data, 256, 0)
    find_lure(data.raw, "session keyring")
    return "no such key"


@probe("filter", lacking=True)
def keyrings() -> str:
    """add_key, request_key and a new session keyring."""
    return refused(
        lambda: call("add_key", b"user", b"k", b"v", 1, -2),
        lambda: call("request_key", b"user", PLAN["key_name"].encode(), 0, -2),
        lambda: call("keyctl", 1, 0, 0, 0, 0),
    )


@probe("filter", lacking=True)
def bpf() -> str:
    """Programs and maps in the kernel, bpf(2) -- CVE-2021-3490, CVE-2022-23222."""
    return reached("bpf", 0, NOWHERE, 128)


@probe("filter", lacking=True)
def io_uring() -> str:
    """io_uring_setup: operations behind a ring, sockets among them, that no filter checks -- CVE-2022-29582; kernelCTF."""
    return reached("io_uring_setup", 8, buffer(256))


@probe("filter", lacking=True)
def asynchronous_io() -> str:
    """io_setup: the machine has one number of such contexts for all (fs.aio-max-nr), which a sandbox could use up."""
    return reached("io_setup", 1, NOWHERE)


@probe("filter", lacking=True)
def userfaultfd() -> str:
    """userfaultfd, by call and by /dev/userfaultfd: exploits use it to stop the kernel in the middle of a copy."""
    if os.path.exists("/dev/userfaultfd"):
        fcntl.ioctl(os.open("/dev/userfaultfd", os.O_RDWR), 0xAA00, 1)
        raise Open("/dev/userfaultfd")
    return reached("userfaultfd", 1)


@probe("filter", lacking=True)
def secret_memory() -> str:
    """memfd_secret: memory that the kernel takes out of its own mapping, which stays split when it is given back."""
    return reached("memfd_secret", 0)


@probe("filter", lacking=True)
def perf_events() -> str:
    """perf_event_open: a hardware counter of its own -- CVE-2013-2094."""
    return reached("perf_event_open", NOWHERE, 0, -1, -1, 0)


@probe("filter", lacking=True)
def fanotify() -> str:
    """fanotify: which process opens which file, on mounts shared with the host."""
    return reached("fanotify_init", 0x200, 0)


@probe()
def modules() -> str:
    """Kernel modules and other kernels: init_module, finit_module, delete_module, kexec_load, kexec_file_load."""
    for name, words in (
        ("init_module", (b"", 0, b"")), ("finit_module", (-1, b"", 0)), ("delete_module", (b"none-such", 0x800)),
        ("kexec_load", (0, 0, 0, 0)), ("kexec_file_load", (-1, -1, 0, b"", 0)),
    ):  # fmt: skip
        reached(name, *words)
    return "all refused"


@probe()
def module_by_family() -> str:
    """Modules that the kernel loads by itself for a socket family or a protocol -- CVE-2017-6074 (DCCP), CVE-2022-27666."""
    for family, kind, protocol in ((socket.AF_INET, 6, 33), (socket.AF_INET, 5, 132), (socket.AF_INET, 2, 136)):
        try:
            socket.socket(family, kind, protocol)
        except OSError:
            continue
        raise Open(f"a socket of protocol {protocol}")
    return "DCCP, SCTP and UDP-Lite: none made"


@probe()
def machine() -> str:
    """reboot (with wrong magic numbers), swapon, acct, quotactl."""
    for name, words in (
        ("reboot", (0, 0, 0, 0)),
        ("swapon", (b"/none", 0)),
        ("acct", (b"/none",)),
        ("quotactl", (0x80000100, 0, 0, 0)),
    ):
        reached(name, *words)
    return "all refused"


@probe("filter", lacking=True)
def kernel_log() -> str:
    """The kernel's log by syslog(2): addresses and the host's names."""
    return reached("syslog", 10, 0, 0)


@probe("filter")
def personality() -> str:
    """personality: no address randomisation, executable data."""
    return reached("personality", 0x0040000)


@probe("filter", lacking=True)
def segments() -> str:
    """modify_ldt and ioperm -- CVE-2015-5157."""
    reached("modify_ldt", 0, buffer(64), 64)
    return reached("ioperm", 0, 1, 0)


@probe("filter", lacking=True)
def thirty_two_bit() -> str:
    """System calls by `int 0x80`, which have other numbers -- this passed Chrome's and systemd's filters."""
    if platform.machine() != "x86_64":
        raise Untried("x86_64 only")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes((0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3)))  # push rbx; mov eax, 20 (getpid); int 0x80; pop rbx; ret
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if answer == os.getpid():
        raise Open("getpid answered")
    return f"answer {answer}"


@probe()
def x32() -> str:
    """The same calls with the x32 bit in their numbers."""
    if platform.machine() != "x86_64":
        raise Untried("x86_64 only")
    return refused(lambda: raw(0x40000000 + 39), lambda: raw(0x40000000 + 165, 0, 0, 0, 0, 0), lambda: raw(0x40000000 + 521))


@probe("filter")
def high_bits() -> str:
    """Refused numbers and arguments with rubbish in the bits that the kernel drops -- CVE-2019-10063."""
    pty_fd, _ = pty.openpty()
    letter = buffer(1, b"x")
    reached("ioctl", pty_fd, 0x10000541C, letter)  # TIOCLINUX, which the kernel itself would answer with ENOTTY
    return refused(
        lambda: call("ioctl", pty_fd, 0x100005412, letter) or "TIOCSTI",
        lambda: call("socket", 0x100000028, 1, 0),
        lambda: call("clone", 0x110000000, 0, 0, 0, 0) or os._exit(0),
        lambda: call("prlimit64", 0x100000001, 7, 0, buffer(16)) or "limits of process 1",
    )


@probe("filter", lacking=True, also=(errno.EIO,))  # EIO: dev.tty.legacy_tiocsti is 0
def typing() -> str:
    """TIOCSTI on a terminal of its own: letters that the program behind it reads as typed -- CVE-2017-5226."""
    _, terminal = pty.openpty()
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    call("ioctl", terminal, 0x5412, buffer(1, b"x"))
    raise Open("a letter was typed")


@probe("terminal", alone=True)
def launchers_terminal() -> None:
    """/dev/tty: the terminal from which arena was started (the host gives it one)."""
    os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    raise Open("it can be opened")


@probe()
def console() -> str:
    """/dev/console, /dev/tty0, virtual terminals and serial lines."""
    return refused(
        *(
            lambda p=path: os.open(p, os.O_RDWR | os.O_NOCTTY)
            for path in ("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs")
        )
    )


@probe("filter", lacking=True)
def new_calls() -> str:
    """Calls that are newer than the filter, by their numbers: a new kernel's calls must not be open by default."""
    answers = []
    for number in range(470, 560):
        try:
            raw(number, -1, -1, -1, -1, -1, -1)
            answers.append(str(number))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                answers.append(f"{number} ({errno.errorcode.get(error.errno or 0)})")
    if answers:
        raise Open(f"they reach the kernel: {', '.join(answers)}")
    return "none reaches the kernel"


@probe("capabilities", lacking=True)
def mqueue_filesystem() -> str:
    """The message queues' file system, and another devpts, mounted."""
    return refused(
        *(
            lambda k=kind: call("mount", b"none", b"/tmp", k, 0, 0) or f"{k.decode()} mounted"
            for kind in (b"mqueue", b"devpts", b"ramfs")
        )
    )


@probe("filter")
def traced_by_seccomp() -> str:
    """A filter of its own with a listener, and one that ptrace suspends: can the sandbox's filter be removed?"""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(21, 0, 0, 0, 0) != 2:  # PR_GET_SECCOMP
        raise Open("no filter is in force")
    return refused(lambda: call("ptrace", 0x4206, os.getppid(), 0, 0x200000))


@probe("outside")
def threads_have_the_filter() -> str:
    """Every thread and process of the sandbox runs under the filter."""
    for pid in (name for name in os.listdir("/proc") if name.isdigit() and name != "1"):
        try:
            text = read(f"/proc/{pid}/status").decode()
        except OSError:
            continue
        if "Seccomp:\t2" not in text:
            raise Open(f"process {pid} has none")
    return "all have it"
