"""Arena under hostile agents and kills: what the machine bears, and what is left behind. Needs arena installed.

load    9 cells at once, most of them hostile: do the honest ones finish, and how long does a `true` of the host take?
kills   `arena run` is ended 50 times with SIGKILL at random moments: is anything left after a second, is the record whole?
        Sockets of other arenas count too, unless it has a network of its own: `unshare -n python scripts/measure_faults.py kills`
ended   the same while hostile agents run, without any scoring
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arena.files import documents
from arena.results import run_folder
from arena.sandboxes import cgroup
from arena.sandboxes.cgroup import own_cgroups
from arena.sandboxes.programs import keeper
from arena.sandboxes.watchdog import process_tree
from arena.schema import Annotation

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 1.0
LEFT_S = 1.0
"""After so long nothing may be left."""
TRUE_EVERY_S = 0.02
BUDGET_S = 10.0
END = """print('{"type": "end"}', flush=True)"""
HONEST = f"""
import subprocess, time
for turn in range(40):
    open("solution.py", "w").write("x = %d" % turn)
    subprocess.run(["python", "-c", "sum(range(200000))"], check=True)
{END}
"""
AGENTS = {
    "honest 1": HONEST,
    "honest 2": HONEST,
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory hog": "held = []\nwhile True: held.append(bytearray(b'x') * (16 << 20))",
    "fills the workspace": """
import itertools
for number in itertools.count():
    try: open(str(number), "wb").write(bytes(1 << 20))
    except OSError: pass
""",
    "many files": """
import itertools
for number in itertools.count():
    try: open(str(number), "w").close()
    except OSError: pass
""",
    "fills /tmp": """
file = open("/tmp/x", "wb", buffering=0)
while True:
    try: file.write(bytes(1 << 20))
    except OSError: pass
""",
    "fork churn": """
import os
for _ in range(120):
    if os.fork() == 0: break
while True:
    try: child = os.fork()
    except OSError: continue
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
""",
    "log flood": "import sys\nwhile True: print('{}' * 500); print('x' * 999, file=sys.stderr)",
}
SESSION = """
import json, sys, time
from pathlib import Path
from dataclasses import replace
from arena import catalog, paths
from arena.agents import session
from arena.agents.launch import resolve_launch
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import SelectedModel
from arena.gateway.network import Network
from arena.results import run_folder
from arena.sandboxes import MIB, Limits
from arena.sandboxes.backends import backend
from arena.schema import Cell, Harness, Model
program, root, budget_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
harness = Harness(schema_version=1, name="load", title="load", command=("python", "-c", program), terminal_event={"type": "end"},
                  models={"m": Model()})
limits = Limits(memory_bytes=1024 * MIB, processes=256, tmp_bytes=256 * MIB, workspace_bytes=256 * MIB, workspace_files=20_000)
cell = Cell(problem="load", problem_version=1, problem_digest="0", harness="load", harness_digest="0", model="m", hardware="cpu",
            budget_s=budget_s)
selected = SelectedModel(harness, "m", Model(), "")
launch = replace(resolve_launch(selected, paths.harnesses()), limits=limits)
spec = RunSpec(selected, launch, catalog.problem("canary", paths.canary().parent), catalog.hardware("cpu"), 0,
               TimeLimits(budget_s, float(sys.argv[4])), "bwrap", backend(), Network(), None)
with run_folder.create(cell, manifest={}, root=root) as run:
    played = session.play(spec, run, "").session
print(played.model_dump_json())
"""


def become_subreaper() -> None:
    """Become the parent of what arena leaves: then it is enough to look at our own descendants."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def left_behind() -> list[str]:
    """Processes and control groups that are left, after the dead have been reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    found = [described(pid) for pid in process_tree(os.getpid()) - {os.getpid()}]
    for place in own_cgroups().values():
        for folder in place.folder.glob(cgroup.NAME_PATTERN):
            if (held := keeper.lock(str(folder), wait=False)) is not None:  # its arena is dead
                os.close(held)
                found.append(f"control group {folder}")
    return found


def described(pid: int) -> str:
    """A process in words."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"process {pid}, state {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]}: {words[:200]}"
    return f"process {pid}, which has ended meanwhile"


def mounts() -> set[str]:
    """The host's mounts."""
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


def named_sockets() -> set[str]:
    """Names of the unix sockets of this network namespace, abstract ones included."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7}


def cell(root: Path, name: str, budget_s: float) -> subprocess.Popen[str]:
    """A separate arena that runs one agent."""
    words = [sys.executable, "-c", SESSION, AGENTS[name], str(root), str(budget_s), str(GRACE_S)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def load(root: Path, names: list[str], budget_s: float) -> list[str]:
    """Run cells at once; the outcome of each, how long a `true` of the host took meanwhile, and what is left."""
    before, lines, took_ms = mounts(), [], []
    started = {name: cell(root, name, budget_s) for name in names}
    while any(process.poll() is None for process in started.values()):
        began = time.perf_counter()
        subprocess.run(["true"], check=True)
        took_ms.append((time.perf_counter() - began) * 1e3)
        time.sleep(TRUE_EVERY_S)
    for name, process in started.items():
        played = json.loads(process.communicate()[0])
        over = f", {played['overshoot_s']:.3f} s over the budget (grace {GRACE_S} s)" if played["overshoot_s"] else ""
        message = played["message"].partition("; ")[2]
        lines.append(f"{name:22}{played['agent_status']:10}{played['elapsed_s']:7.1f} s{over}; {message}".rstrip("; "))
    lines.append(
        f"a host `true` meanwhile: median {statistics.median(took_ms):.1f} ms, max {max(took_ms):.1f} ms of {len(took_ms)}"
    )
    time.sleep(LEFT_S)
    return [*lines, f"left: {left_behind() or 'nothing'}", f"mounts changed: {sorted(mounts() ^ before) or 'none'}"]


def ended(root: Path, count: int) -> list[str]:
    """Kill arenas at random moments while hostile agents run; what was left after a second each time."""
    before, faults, chance = mounts(), [], random.Random(count)
    hostile = [name for name in AGENTS if not name.startswith("honest")]
    for number in range(count):
        name, moment_s = hostile[number % len(hostile)], chance.uniform(0.3, 1.5)
        with cell(root, name, BUDGET_S) as arena:
            time.sleep(moment_s)
            arena.kill()
        time.sleep(LEFT_S)
        faults += [f"{name}, killed after {moment_s:.2f} s: {fault}" for fault in left_behind()]
    states = [entry.state for entry in run_folder.list_runs(root)]
    return [
        f"{count} kills, {len(states)} runs, of which interrupted: {states.count('interrupted')}",
        f"left: {faults or 'nothing'}",
        f"mounts changed: {sorted(mounts() ^ before) or 'none'}",
    ]


def kills(root: Path, count: int) -> list[str]:
    """Kill `arena run` at random moments; what was left after a second each time, and whether the record is whole."""
    command = [sys.executable, "-m", "arena"]
    (root / "tmp").mkdir()
    environment = os.environ | {"ARENA_HOME": str(root), "TMPDIR": str(root / "tmp")}
    run = [*command, "run", "--problem", "paged_attention", "--model", "naive", "--hardware", "cpu"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    began = time.monotonic()
    subprocess.run(run, check=True, **quiet)  # type: ignore[call-overload]
    whole_s = time.monotonic() - began
    before, sockets, faults, chance = mounts(), named_sockets(), [], random.Random(count)
    for number in range(count):
        # Half of them while the agent works, which is the first fifth.
        moment_s = chance.uniform(0, whole_s / 5 if number % 2 else whole_s)
        arena = subprocess.Popen(run, **quiet)  # type: ignore[call-overload]
        time.sleep(moment_s)
        arena.send_signal(signal.SIGKILL)
        arena.wait()
        time.sleep(LEFT_S)
        found = left_behind() + [f"socket {name}" for name in sorted(named_sockets() - sockets)]
        faults += [f"kill {number} after {moment_s:.2f} s: {fault}" for fault in found]
        done = subprocess.run([*command, "list", "runs", "--json"], capture_output=True, env=environment, check=True)
        listed = {row["run"]: row["state"] for row in json.loads(done.stdout)}
        for folder in root.glob("workspaces/[!.]*"):
            ended, committed = ((folder / name).exists() for name in ("session.json", "result.yaml"))
            wanted = "committed" if committed else "unjudged" if ended else "interrupted"
            if listed.get(folder.name) != wanted:
                faults.append(f"{folder.name} is {wanted}, and listed as {listed.get(folder.name)}")
    states = list(listed.values())
    for result in root.glob("workspaces/[!.]*/result.yaml"):
        documents.read_yaml(result, Annotation)
    subprocess.run([*command, "leaderboard"], check=True, **quiet)  # type: ignore[call-overload]
    killed = len(list((root / "tmp").iterdir()))
    subprocess.run(run, check=True, **quiet)  # type: ignore[call-overload]
    folders = sorted(path.name for path in (root / "tmp").iterdir())
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("interrupted", "unjudged", "committed"))
    return [
        f"{count} kills in runs of {whole_s:.0f} s: {counts}",
        f"left: {faults or 'nothing'}",
        f"temporary folders: {killed} after the last kill, after a further run: {folders or 'none'}",
        f"mounts changed: {sorted(mounts() ^ before) or 'none'}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "kills", "ended"])
    parser.add_argument("--count", type=int, default=50, help="kills")
    parser.add_argument("--cells", default=",".join(AGENTS), help="of a load, by name")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of each cell of a load")
    options = parser.parse_args()
    become_subreaper()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        work = {
            "load": lambda: load(root, options.cells.split(","), options.budget),
            "kills": lambda: kills(root, options.count),
            "ended": lambda: ended(root, options.count),
        }
        sys.stdout.write("\n".join([*work[options.what](), ""]))


if __name__ == "__main__":
    main()
