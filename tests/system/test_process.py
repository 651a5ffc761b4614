"""Starting processes: real processes, real limits."""

import os
import random
import time
from pathlib import Path

import pytest

from arena.system import process


def shell(script, **options):
    return process.run(["sh", "-c", script], **{"limit_s": 20, **options})


def sleeper():
    """An argument for `sleep` that no other process of the machine has."""
    return f"{random.randrange(10**6, 10**7)}.{os.getpid()}"


def alive(token):
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if token.encode() in text(path)]


def text(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_status_and_both_streams():
    done = shell("echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr, done.timed_out) == (7, b"out\n", b"err\n", False)


def test_a_signal_is_a_negative_status():
    assert shell("kill -TERM $$").returncode == -15


def test_environment_is_exactly_what_was_given():
    assert process.run(["/usr/bin/env"], limit_s=20, env={"A": "1"}).stdout == b"A=1\n"


def test_environment_is_inherited_when_none_is_given():
    assert process.run(["/usr/bin/env"], limit_s=20).stdout.decode().count("PATH=") >= 1


def test_input_and_descriptors():
    data = process.readable_fd(b"by descriptor")
    try:
        done = shell(f"cat; cat /proc/self/fd/{data}", stdin=b"by stdin\n", pass_fds=(data,))
    finally:
        os.close(data)
    assert done.stdout == b"by stdin\nby descriptor"


def test_input_larger_than_a_pipe():
    assert shell("wc -c", stdin=b"x" * (3 << 20)).stdout.split() == [b"3145728"]


def test_the_limit_ends_a_group_that_ignores_sigterm():
    token = sleeper()
    done = shell(f"trap '' TERM; sleep {token} & sleep {token}", limit_s=0.5)
    assert done.timed_out and done.returncode == -9 and 0.5 <= done.seconds < 2
    assert alive(token) == []


def test_child_processes_end_with_the_leader():
    token = sleeper()
    done = shell(f"sleep {token} & echo started")
    assert (done.returncode, done.stdout) == (0, b"started\n") and done.seconds < 2
    assert alive(token) == []


def test_a_process_outside_the_group_cannot_delay_by_the_pipe():
    done = shell("setsid sleep 4 & echo started")
    assert done.stdout == b"started\n" and done.seconds < 3


def test_a_flood_is_cut_and_does_not_block():
    done = shell("head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; exit 3", cap_bytes=1000)
    assert (done.returncode, len(done.stdout), len(done.stderr)) == (3, 1000, 1000)


def test_an_endless_flood_ends_at_the_limit():
    done = shell("yes", limit_s=0.3, cap_bytes=10)
    assert done.timed_out and done.stdout == b"y\ny\ny\ny\ny\n" and done.seconds < 2


def test_closed_streams_do_not_spin_nor_end_the_wait():
    before = time.process_time()
    done = shell("exec >&- 2>&-; sleep 0.5; exit 4")
    assert done.returncode == 4 and done.seconds >= 0.5 and time.process_time() - before < 0.2


def test_a_missing_program_is_an_os_error():
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        process.run(["no-such-program"], limit_s=1)


def test_no_descriptor_is_left_open():
    before = sorted(Path("/proc/self/fd").iterdir())
    shell("true")
    assert sorted(Path("/proc/self/fd").iterdir()) == before
