"""Cgroup keeper: `python -I -S keeper.py FOLDER...` waits for arena's end, ends its sandboxes and removes its control groups.

After a SIGKILL of arena a sandbox's process 1 ends it by itself. But among hundreds of processes that fork, process 1 waited a
second for its turn; from outside it is quick. And no other program would remove the groups, which stay when they are empty.
Arena holds a lock on each folder as long as it lives. The kernel drops a lock however its holder dies, while a stored pid could
belong to another process by now.
"""

# ruff: noqa: PTH106, PTH112, PTH118, PTH208  (importing pathlib would add 6 ms)
import fcntl
import os
import signal
import sys
import time

PATIENCE_S = 30.0  # a sandbox that hangs in the kernel for longer keeps its group; the next arena removes it
RETRY_S = 0.005


def lock(folder: str, wait: bool) -> int | None:
    """A descriptor that holds the folder's lock; None when another process has it, or there is no such folder."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(held)
        return None
    return held


def kill_members(folder: str) -> None:
    """Kill every process in the groups of an arena that has ended."""
    try:
        groups = os.listdir(folder)
    except OSError:  # gone meanwhile
        return
    for name in groups:
        for pid in members(os.path.join(folder, name, "cgroup.procs")):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended by itself; go on with the others
                continue


def members(file: str) -> list[int]:
    """Processes of a group. A 0 stands for one that is not visible here; a signal to 0 would go to ourselves."""
    try:
        with open(file, encoding="ascii") as opened:
            return [pid for pid in map(int, opened.read().split()) if pid]
    except OSError:  # gone meanwhile, or no group but one of the folder's own files
        return []


def remove(folder: str) -> bool:
    """Remove an arena's group with the groups of its sandboxes; False while a process is left in one."""
    try:
        for name in os.listdir(folder):
            if os.path.isdir(os.path.join(folder, name)):
                os.rmdir(os.path.join(folder, name))
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:  # EBUSY: not empty yet
        return False
    return True


def main() -> None:
    """Wait for arena's end, then for that of its sandboxes."""
    os.chdir("/")
    folders = sys.argv[1:]
    for folder in folders:
        lock(folder, wait=True)
    end_s = time.monotonic() + PATIENCE_S
    while folders and time.monotonic() < end_s:
        for folder in folders:
            kill_members(folder)
        folders = [folder for folder in folders if not remove(folder)]
        time.sleep(RETRY_S)


if __name__ == "__main__":
    main()
