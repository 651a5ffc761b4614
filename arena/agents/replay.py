"""The steps of a built-in model, which `harnesses/builtin.py` plays inside the sandbox."""

from __future__ import annotations

import json
from pathlib import Path

from arena.agents.select import SelectedModel
from arena.agents.snapshots import stored
from arena.catalog import solutions
from arena.errors import DataError, UsageError
from arena.files.documents import unknown
from arena.results.run_folder import list_runs
from arena.schema import Profile

Step = dict[str, object]
THEN = " then "
"""Between the solutions that a model plays one after the other."""


def steps(selected: SelectedModel, problem_folder: Path, profile: Profile, workspaces: Path) -> bytes | None:
    """The steps of a built-in model as JSON; None for an agent. UsageError for an unknown cheat or run."""
    plays = selected.model.plays
    if plays is None:
        return None
    if plays == "nothing":
        found: list[Step] = []
    elif plays == "run:{name}":
        found = _stored_steps(selected.argument, workspaces)
    else:
        found = []
        for one in plays.split(THEN):
            file = _solution(one, selected, problem_folder, profile)
            found += [{"at_s": 0.0, "write": "solution.py", "text": file.read_bytes().decode()}, {"run": ["python", "check.py"]}]
    return json.dumps({"steps": found}).encode()


def _solution(plays: str, selected: SelectedModel, problem_folder: Path, profile: Profile) -> Path:
    """The file to play, chosen among those that exist, so that no name leads out of the folder."""
    found = solutions(problem_folder, profile)
    before, family, after = plays.partition("{name}")
    if not family:
        if plays not in found:
            raise DataError(f"{problem_folder / 'solutions'}: there is no {plays}.py, and model {selected.model_name} plays it")
        return found[plays]
    names = {stem.removeprefix(before).removesuffix(after): file for stem, file in found.items() if stem.startswith(before)}
    if selected.argument not in names:
        raise UsageError(unknown(f"{selected.model_name.partition('/')[0]} of {problem_folder.name}", selected.argument, names))
    return names[selected.argument]


def _stored_steps(run_id: str, workspaces: Path) -> list[Step]:
    """The stored file writes on their own time scale, shifted so that the first comes at once."""
    snapshots = {state.run.run_id: stored(state.run.snapshots) for state in list_runs(workspaces)}
    playable = {name: found for name, found in snapshots.items() if found}
    if run_id not in playable:
        raise UsageError(unknown("run with stored file writes", run_id, playable))
    first_s = playable[run_id][0].at_s
    return [
        {"at_s": round(at_s - first_s, 3), "write": "solution.py", "text": path.read_bytes().decode()}
        for at_s, path in playable[run_id]
    ]
