"""A sweep on machines of Ray's: two raylets here, each with a results folder of its own, of which one is killed."""

import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("ray", reason="ray is not installed: scripts/setup ray installs it")

from command import Arena, copy, killed, needs_sandbox, until
from sweeping import manifests, trials, verdicts, written

pytestmark = [needs_sandbox, pytest.mark.slow]
RAY = Path(sys.executable).with_name("ray")
THERE_S = 90
SLEEPS = """import time, json; time.sleep(8); print(json.dumps({"type": "end"}))"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def host(arena: Arena, log: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """`ray start` in the foreground, once it is up; it and all that it started end with the block."""
    given = arena.environment(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0") | env
    command = [str(RAY), "start", "--block", *words]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=given, stdout=file, stderr=file, start_new_session=True)
    try:
        until(lambda: b"Ray runtime started" in log.read_bytes(), "ray start", THERE_S)
        yield process
    finally:
        end_host(process)


def end_host(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to Ray's processes of a host at once; what they started must end by itself."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.pid)
        for each in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "arena.sweep.child" not in each.cmdline():
                    each.kill()
    process.wait()


@contextmanager
def two_hosts(arena: Arena, *extra: str, **env: str) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """A cluster whose head does no work, and two hosts that do; its address."""
    home, address = arena.home.parent, f"127.0.0.1:{free_port()}"
    # Ray's sockets lie below this folder, and their names have a limit of 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray") as folder, contextlib.ExitStack() as hosts:
        head = ("--head", f"--port={address.split(':')[1]}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}")
        hosts.enter_context(host(arena, home / "head.log", *head))
        found = {}
        for name in ("one", "two"):
            words = (f"--address={address}", "--num-cpus=1", f"--node-name={name}", *extra)
            found[name] = hosts.enter_context(host(arena, home / f"{name}.log", *words, ARENA_HOME=str(home / name), **env))
        yield address, found


def test_a_killed_machine_loses_no_trial(tmp_path: Path) -> None:
    arena = copy(tmp_path)
    model = arena.harness("sleeps", "python", "-c", SLEEPS)
    file = written(arena, trials=2, cell={"models": [model, "nop"]}, place={"parallel": 1})
    with two_hosts(arena, '--resources={"cpu": 1}') as (address, hosts):
        env = {"RAY_ADDRESS": address, "ARENA_LOST_S": "8"}
        with killed(arena.start("sweep", file, "--on", "ray", env=env)) as sweep:
            playing = until_plays(sweep, tmp_path)
            end_host(hosts[playing])
            _, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, err
    assert f"{playing} is lost: no answer for 8 s" in err and f"{playing} is lost: no answer for 8 s (" in err
    assert "; it is given out again" in err
    assert verdicts(arena) == {("nop", "paged_attention", "missing"): 2, (model, "paged_attention", "missing"): 2}
    assert {trial: len(runs) for trial, runs in trials(arena).items()} == {
        (name, "paged_attention", number): 1 for name in ("nop", model) for number in (1, 2)
    }
    [again] = [manifest for _, manifest in manifests(arena) if manifest["sweep"]["attempt"] == 2]
    assert again["cell"]["model"] == model
    lost = [run for run in (tmp_path / playing).glob("workspaces/2*") if not (run / "session.json").exists()]
    assert len(lost) == 1, "its folder stays where it was"
    assert not [process for process in psutil.process_iter(["environ"]) if of_sweep(process, tmp_path)], "nothing is left"


def until_plays(sweep: subprocess.Popen[str], folder: Path) -> str:
    """The host on which the session that sleeps is at work."""
    found: list[str] = []

    def look() -> bool:
        assert sweep.poll() is None, sweep.communicate()[1]
        found[:] = [path.parts[-5] for path in folder.glob("*/workspaces/2*_sleeps_*/work/TIME")]
        return bool(found)

    until(look, "a session", THERE_S)
    return found[0]


def of_sweep(process: psutil.Process, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("ARENA_HOME", "").startswith(str(folder))
    return False


def test_unfit_machines_are_named_before_any_session(tmp_path: Path) -> None:
    """Without the hardware, with the niceness that Ray gives, and with the head's own results folder."""
    arena = copy(tmp_path)
    file = written(arena, trials=1)
    with two_hosts(arena, '--resources={"cpu": 1}', RAY_worker_niceness="15") as (address, _):
        env = {"RAY_ADDRESS": address}
        refused = arena("sweep", file, "--on", "ray", env=env)
        assert refused.code == 2 and refused.err.count("has niceness 15, and so would every session and score") == 2, refused.err
        assert "no node of Ray can be used for cpu" in refused.err
        other = arena("sweep", written(arena, name="other", hardware="h200"), "--on", "ray", env=env)
        assert other.code == 2 and "one is not used: it does not offer h200" in other.err, other.err
    assert not arena.runs


def test_a_sweep_on_ray_names_its_hardware(tmp_path: Path) -> None:
    arena = copy(tmp_path)
    assert "names its `hardware`" in arena.refused("sweep", written(arena, hardware=None), "--on", "ray")
    capped = written(arena, stop={"cost_usd": 1})
    assert "what a lost machine has spent is not known here" in arena.refused("sweep", capped, "--on", "ray")
    nowhere = {"RAY_ADDRESS": f"127.0.0.1:{free_port()}"}
    assert "no cluster of Ray at 127.0.0.1" in arena("sweep", written(arena), "--on", "ray", env=nowhere).err
