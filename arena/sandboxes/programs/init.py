"""Sandbox init, process 1: `python -I -S init.py CONTROL KEEP BRIDGES COMMAND...`. Starts the command, reaps, returns its status.

It is not dumpable. bwrap's own process 1 has the same user as the command: the command could read its memory, environment and
descriptors (and the host's paths in them) through /proc/1, even where the filter refuses ptrace.

CONTROL is a socket (SOCK_SEQPACKET) that no other process in the sandbox holds; when it closes, init ends the sandbox. An order
is one byte, its answer nine: a status byte (0: done) and nanoseconds.

f  freeze: stop every process but this one, wait until all are stopped and their clocks stand, answer with their CPU time
c  answer with their CPU time; while frozen, with its value at the freeze plus every change since
r  resume

BRIDGES holds PORT=DESCRIPTOR for each bridge. Init carries that traffic too (bridge.py, which lies beside it): a child process
could be killed, and could be made to give up the descriptors.
"""

# ruff: noqa: PTH103, PTH208  (importing pathlib would add 6 ms to every start)
import ctypes
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from arena.sandboxes.programs.bridge import Bridges
else:
    import _signal as signal  # `signal` imports enum: 6 ms of processor time at every start

HERE = "/run/arena"
HOME_FILES = f"{HERE}/home"  # files that HOME holds when the command starts
REPLY = struct.Struct("<BQ")
FREEZE_LIMIT_S = 2.0
SETTLE_S = 200e-6
PR_SET_DUMPABLE = 4
CPUCLOCK_SCHED = 2
MOST_REAPED = 256  # dead processes between two looks at arena's orders: a sandbox can make them without end


def limit_processes(processes: int) -> None:
    """Limit the processes of this user namespace. Set any earlier, the limit would count all processes of this user outside.

    It is set where a control group counts them too. A group refuses a fork at its end, when all mappings have been copied under
    the locks of files that every sandbox shares: beside a fork bomb no other could start a program. This limit comes first.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def close_all_but(kept: set[int]) -> None:
    """Close inherited descriptors: bwrap closes none of its own."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the listing's own descriptor
                continue


def start(command: list[str], control: int) -> int:
    """Start the command in a session of its own; return its pid, which is its group's too.

    In process 1's session it could join the group of process 1 and set the priority of both. And the kernel's autogroups share
    the processor among sessions.
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
    # Python ignores SIGPIPE and SIGXFSZ, nohup SIGHUP: the command starts with the defaults.
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


def other_pids() -> list[int]:
    """Pids of all processes of the sandbox but this one."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def cpu_clocks() -> dict[int, int]:
    """CPU time of each process in ns, with its ended threads; a dead process that is not reaped counts.

    The process clocks are the sum of the `schedstat` files of the threads in one system call.
    """
    clocks = {}
    for pid in other_pids():
        try:
            clocks[pid] = time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
        except OSError:  # gone meanwhile
            continue
    return clocks


def threads() -> list[str]:
    """Folders of all threads of the sandbox but our own. A leader may be dead while its threads run: each is listed."""
    found = []
    for pid in other_pids():
        try:
            found += [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def active_states() -> set[str]:
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


def are_off_processors(stopped: list[str]) -> bool:
    """Wait until these threads, which show as stopped, are off their processors; False when one was continued meanwhile.

    A thread shows as stopped before it leaves its processor, which the host may pause just then; only afterwards its clock gets
    the time it used. The kernel waits for that before it reports which system call a thread is in. It reports none for a process
    that made itself undumpable: there the shown state counts.
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
    """kill(-1) by process 1: every process of the namespace but itself, those in the middle of a fork included."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        return


def fill_home(home: str) -> None:
    """Copy HOME_FILES into a home, each file owned by its user."""
    for folder, _, names in os.walk(HOME_FILES):
        into = home + folder[len(HOME_FILES) :]
        os.makedirs(into, mode=0o700, exist_ok=True)
        for name in names:
            with open(f"{folder}/{name}", "rb") as source, open(f"{into}/{name}", "wb") as copy:
                copy.write(source.read())
                os.fchmod(copy.fileno(), 0o600)


def bridges(sockets: dict[int, int]) -> "Bridges | None":
    """This sandbox's bridges, listening; None for most sandboxes, which then import nothing."""
    if not sockets:
        return None
    for socket in sockets.values():
        os.set_inheritable(socket, False)
    sys.path.append(HERE)  # read-only: no process in the sandbox can put a file there
    import bridge  # type: ignore[import-not-found]

    try:
        carried: Bridges = bridge.Bridges(sockets)
    except OSError as error:
        sys.exit(f"init: {error.strerror}")
    return carried


class Init:
    """The command, and the clocks of a frozen sandbox."""

    def __init__(self, command: int, bridges: "Bridges | None") -> None:
        self.command = command
        self.bridges = bridges
        self.frozen_clocks: dict[int, int] | None = None

    def reap(self) -> bool:
        """Reap dead processes; when the command has ended, end everything. Returns whether there may be more."""
        for _ in range(MOST_REAPED):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self.command:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)
            if pid == 0:
                return False
        return True

    def freeze(self) -> bytes:
        """Stop all. Each round sends SIGSTOP again: a process may have sent a SIGCONT before it was stopped itself.

        Where the kernel does not report that a thread has left its processor, its clock may still move. So the clocks count when
        they are the same twice while all are stopped.
        """
        deadline = time.monotonic() + FREEZE_LIMIT_S
        earlier = None
        while True:
            signal_all(signal.SIGSTOP)
            self.reap()
            states = active_states()
            still = not states and are_off_processors(threads())
            clocks = cpu_clocks()
            late = time.monotonic() > deadline
            # D is uninterruptible, as a vfork parent whose child is stopped: it cannot run before it meets its SIGSTOP.
            if late and states - {"D"}:
                return REPLY.pack(1, 0)
            if late or (still and clocks == earlier):
                self.frozen_clocks = clocks
                return REPLY.pack(0, sum(clocks.values()))
            earlier = clocks if still else None
            time.sleep(SETTLE_S)

    def cpu(self) -> bytes:
        """While frozen every change adds up: no process can hide growth by making another one vanish.

        A clock is updated at a timer tick or when its thread leaves the processor: one that runs right now may not show yet. So
        the states are read too, and before the clocks: a thread that stops again after that read is in the clocks.
        """
        running = self.frozen_clocks is not None and bool(active_states() - {"D"})
        now = cpu_clocks()
        if self.frozen_clocks is None:
            return REPLY.pack(0, sum(now.values()))
        changed = sum(abs(now.get(pid, 0) - self.frozen_clocks.get(pid, 0)) for pid in now.keys() | self.frozen_clocks.keys())
        return REPLY.pack(0, sum(self.frozen_clocks.values()) + (changed or running))

    def resume(self) -> bytes:
        """Continue all processes."""
        self.frozen_clocks = None
        signal_all(signal.SIGCONT)
        return REPLY.pack(0, 0)

    def serve(self, control: int, wake: int) -> None:
        """Handle signals and orders, for ever. While all is frozen the dead are not reaped: that would change the sum."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        if self.bridges:
            poll.register(self.bridges.epoll, select.POLLIN)
        more = False
        while True:
            for fd, _ in poll.poll(0 if more else None):
                if self.bridges and fd == self.bridges.epoll.fileno():
                    self.bridges.serve_ready()
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
                os.write(control, {b"f": self.freeze, b"c": self.cpu, b"r": self.resume}[order]())
            more = self.frozen_clocks is None and self.reap()


def main() -> None:
    """Report on CONTROL that the sandbox is ready; when arena holds a pidfd of this process, start the command."""
    control = int(sys.argv[1])
    kept = {int(number) for number in sys.argv[2].split(",") if number}
    sockets = {int(port): int(fd) for port, _, fd in (pair.partition("=") for pair in sys.argv[3].split(",") if pair)}
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, *(ctypes.c_ulong(0),) * 4):
        sys.exit(f"init: PR_SET_DUMPABLE: {os.strerror(ctypes.get_errno())}")
    close_all_but({0, 1, 2, control, *sockets.values()} | kept)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # The one signal for which Python has a handler of its own: any process of the sandbox could end this one with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    carried = bridges(sockets)
    fill_home(os.environ["HOME"])
    os.write(control, b"ready")
    word, _, processes = os.read(control, 16).partition(b" ")
    if word != b"go":
        sys.exit("init: arena did not take the sandbox over")
    if processes:
        limit_processes(int(processes))
    command = start(sys.argv[4:], control)
    for fd in kept:  # the other side is to see it when the command closes them
        os.close(fd)
    Init(command, carried).serve(control, wake)


if __name__ == "__main__":
    main()
