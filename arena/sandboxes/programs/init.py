"""Process 1 of a box: `python -I -S init.py CONTROL KEEP COMMAND...`. Starts the command, reaps, returns its status.

It is not dumpable: bwrap's own process 1 has the same user as the command, which could read its memory, environment and
descriptors (and the host's paths in them) through /proc/1, whatever the filter says about ptrace.

CONTROL is a socket (SOCK_SEQPACKET) that nobody else in the box holds; its end ends the box. It takes one byte and answers
nine, a status byte (0: done) and nanoseconds:

f  freeze: stop every process but this one, wait until all are stopped and their clocks stand, answer with their CPU time
c  answer with their CPU time; while frozen, with what it was then plus all that has changed since
t  thaw

Where BRIDGES exists, it carries that traffic too (bridge.py, which lies beside it): a child that did so could be killed.
"""

# ruff: noqa: PTH103, PTH112, PTH208  (importing pathlib would add 6 ms to every start)
import ctypes
import os
import resource
import select
import signal
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from arena.sandboxes.programs.bridge import Bridges

HERE = "/run/arena"
BRIDGES = f"{HERE}/bridge"
HOME_FILES = f"{HERE}/home"
"""What HOME is to hold when the command starts."""
REPLY = struct.Struct("<BQ")
FREEZE_LIMIT_S = 2.0
SETTLE_S = 200e-6
PR_SET_DUMPABLE = 4
CPUCLOCK_SCHED = 2


def bound(processes: int) -> None:
    """Let this user namespace have so many processes. Any earlier, the limit would have counted all that this user has outside.

    Also where a control group counts them. A group refuses a fork at its end, when all mappings have been copied under the locks
    of files that every box shares: beside a fork bomb no other could start a program. This limit is looked at first.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def close_all_but(kept: set[int]) -> None:
    """bwrap closes nothing: what it was handed is open here too."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the listing's own descriptor
                continue


def start(command: list[str], control: int) -> int:
    """Start the command in a session of its own; return its pid, which is its group's too.

    In process 1's session it could join the group of process 1, and with it set the priority of both; and a session is what the
    kernel's autogroups share the processor among.
    """
    waiting, started = os.pipe()
    pid = os.fork()
    if pid:
        os.close(started)
        os.read(waiting, 1)  # to its end: from then on a SIGTERM for the group finds it, and is not lost
        os.close(waiting)
        return pid
    os.close(control)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Python ignores SIGPIPE and SIGXFSZ, nohup SIGHUP: none of that is the command's business.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.close(started)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        status, why = 127, "not found in the sandbox"
    except OSError as error:
        status, why = 126, str(error.strerror)
    os.write(2, f"{command[0]}: {why}\n".encode())
    os._exit(status)


def everyone() -> list[int]:
    """Pids of all processes of the box but this one."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def cpu_clocks() -> dict[int, int]:
    """CPU time of each process in ns, its ended threads included; waiting for a parent's reaping counts as being there.

    The process clocks are the sum of the `schedstat` files of the threads in one system call.
    """
    clocks = {}
    for pid in everyone():
        try:
            clocks[pid] = time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
        except OSError:  # gone meanwhile
            continue
    return clocks


def threads() -> list[str]:
    """Folders of all threads of the box but this one's. A leader may be dead and its threads run on: each is listed."""
    found = []
    for pid in everyone():
        try:
            found += [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def moving() -> set[str]:
    """States of all threads that are neither stopped nor dead."""
    states = set()
    for thread in threads():
        try:
            with open(f"{thread}/stat", "rb", buffering=0) as file:
                text = file.read(512)
        except (FileNotFoundError, ProcessLookupError):
            continue
        states.add(text[text.rindex(b")") + 2 :][:1].decode())
    return states - {"T", "Z", "X"}


def have_left(stopped: list[str]) -> bool:
    """Wait until these threads, which show as stopped, are off their processors; False when one was continued meanwhile.

    A thread shows as stopped before it leaves its processor, whose host may put it aside just then, and only then its clock gets
    what it used. To tell which system call a thread is in, the kernel waits for that. It does not tell of a process that made
    itself undumpable: there what shows is what counts.
    """
    for thread in stopped:
        try:
            with open(f"{thread}/syscall", "rb", buffering=0) as file:
                if file.read(512).startswith(b"running"):
                    return False
        except OSError:
            continue
    return True


def signal_all(number: int) -> None:
    """kill(-1) of process 1: every process of the namespace but itself, those in the middle of a fork included."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        return


def furnish(home: str) -> None:
    """Copy HOME_FILES into a home, each file its user's own."""
    for folder, _, names in os.walk(HOME_FILES):
        into = home + folder[len(HOME_FILES) :]
        os.makedirs(into, mode=0o700, exist_ok=True)
        for name in names:
            with open(f"{folder}/{name}", "rb") as source, open(f"{into}/{name}", "wb") as copy:
                copy.write(source.read())
                os.fchmod(copy.fileno(), 0o600)


def bridges() -> "Bridges | None":
    """Those of this box, listening; most boxes have none, and pay nothing."""
    if not os.path.isdir(BRIDGES):
        return None
    sys.path.append(HERE)  # read-only: nobody in the box can put anything there
    import bridge  # type: ignore[import-not-found]

    try:
        carried: Bridges = bridge.Bridges(BRIDGES)
    except OSError as error:
        sys.exit(f"init: {error.strerror}")
    return carried


class Init:
    """The command, and whether all is frozen."""

    def __init__(self, command: int, bridges: "Bridges | None") -> None:
        self.command = command
        self.bridges = bridges
        self.then: dict[int, int] | None = None

    def reap(self) -> None:
        """Take the dead; with the command's own end everything ends."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self.command:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)
            if pid == 0:
                return

    def freeze(self) -> bytes:
        """Stop all. Asked again on each round, as somebody may have sent a SIGCONT before being stopped himself.

        Where the kernel does not say that a thread has left its processor, its clock may still move: so the clocks count when
        they are the same twice while all are stopped.
        """
        deadline = time.monotonic() + FREEZE_LIMIT_S
        earlier = None
        while True:
            signal_all(signal.SIGSTOP)
            self.reap()
            states = moving()
            still = not states and have_left(threads())
            clocks = cpu_clocks()
            late = time.monotonic() > deadline
            # D is uninterruptible, as a vfork parent whose child is stopped: it cannot run before it meets its SIGSTOP.
            if late and states - {"D"}:
                return REPLY.pack(1, 0)
            if late or (still and clocks == earlier):
                self.then = clocks
                return REPLY.pack(0, sum(clocks.values()))
            earlier = clocks if still else None
            time.sleep(SETTLE_S)

    def cpu(self) -> bytes:
        """While frozen every change adds up: nobody can hide growth by making another process vanish.

        A clock is brought up to date at a timer tick or when its thread leaves the processor: one that runs right now may not
        show yet. So states are looked at too, and before the clocks: who runs and stops again after that look is in the clocks.
        """
        running = self.then is not None and bool(moving() - {"D"})
        now = cpu_clocks()
        if self.then is None:
            return REPLY.pack(0, sum(now.values()))
        changed = sum(abs(now.get(pid, 0) - self.then.get(pid, 0)) for pid in now.keys() | self.then.keys())
        return REPLY.pack(0, sum(self.then.values()) + (changed or running))

    def thaw(self) -> bytes:
        """Let all go on."""
        self.then = None
        signal_all(signal.SIGCONT)
        return REPLY.pack(0, 0)

    def serve(self, control: int, wake: int) -> None:
        """Signals and orders, for ever. The dead stay where they are while all is frozen: taking one would change the sum."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        if self.bridges:
            poll.register(self.bridges.epoll, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if self.bridges and fd == self.bridges.epoll.fileno():
                    self.bridges.turn()
                    continue
                if fd == wake:
                    if signal.SIGTERM in os.read(wake, 4096):
                        try:
                            os.killpg(self.command, signal.SIGTERM)
                        except ProcessLookupError:
                            continue
                    continue
                order = os.read(control, 16)
                if not order:  # arena is gone
                    os._exit(128 + signal.SIGKILL)
                os.write(control, {b"f": self.freeze, b"c": self.cpu, b"t": self.thaw}[order]())
            if self.then is None:
                self.reap()


def main() -> None:
    """Say on CONTROL that the box stands, and when arena has hold of this process, start the command."""
    control = int(sys.argv[1])
    kept = {int(number) for number in sys.argv[2].split(",") if number}
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, *(ctypes.c_ulong(0),) * 4):
        sys.exit(f"init: PR_SET_DUMPABLE: {os.strerror(ctypes.get_errno())}")
    close_all_but({0, 1, 2, control} | kept)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # The one signal for which Python has a handler of its own: any process of the box could end this one with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    carried = bridges()
    furnish(os.environ["HOME"])
    os.write(control, b"ready")
    word, _, processes = os.read(control, 16).partition(b" ")
    if word != b"go":
        sys.exit("init: arena did not take the box over")
    if processes:
        bound(int(processes))
    command = start(sys.argv[3:], control)
    for fd in kept:  # the other side is to see it when the command closes them
        os.close(fd)
    Init(command, carried).serve(control, wake)


if __name__ == "__main__":
    main()
