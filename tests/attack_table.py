"""tests/attacks/table.yaml, read: every known mechanism with what stands for it, and the honest submissions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict
from submission import ATTACKS, GIVEN, SHIPPED, followed, read

from arena import catalog, paths
from arena.files import documents
from arena.schema import Problem, Profile
from arena.submission import Submission

TABLE = ATTACKS / "table.yaml"
HONEST = ATTACKS / "honest"


class Mechanism(BaseModel):
    """One way to move a score without a better kernel."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    name: str
    how: str
    within: bool = False
    """Whether it breaks no rule that the prompt states."""
    attacks: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    absent: str = ""
    """Why it cannot exist here."""


@dataclass(frozen=True)
class Entry:
    """A submission to score on one problem, in the folder `home`, which is the problem's own."""

    name: str
    path: Path
    problem: Problem
    home: Path
    profile: Profile

    def submission(self) -> tuple[Submission, str]:
        """(submission, expected verdict)."""
        return read(self.path, self.home / "solutions", self.profile)

    @property
    def bounded(self) -> bool:
        """Whether its score may also be one that is at most its twin's."""
        return "# at most: honest" in self.path.read_text().splitlines()

    @property
    def twin(self) -> Entry:
        """The honest submission that it is compared with: what it follows, else the oracle of its problem."""
        if self.home == GIVEN:
            return self._other(ATTACKS / "cpu" / "honest.py")
        before = followed(self.path, self.home / "solutions", self.profile)
        return self._other(before or catalog.solutions(self.home, self.profile)["oracle"])

    def _other(self, path: Path) -> Entry:
        return replace(self, name=f"{self.problem.name}/{path.stem.removesuffix(f'_{self.profile}')}", path=path)


def mechanisms() -> list[Mechanism]:
    """The table's mechanisms, in its order."""
    return [Mechanism(group=group, **row) for group, rows in _read().items() if group != "honest" for row in rows]


def entry(attack: str, profile: Profile) -> Entry | None:
    """The submission of that name in the table; None where it is not for this profile.

    `gpu/NAME@PROBLEM` is behind the oracle of that problem, where `gpu/NAME` is behind that of paged_attention.
    """
    folder, name = attack.split("/")
    name, _, problem = name.partition("@")
    if folder in ("cpu", "gpu", "channel"):
        path = ATTACKS / folder / f"{name}.py"
        if (folder == "gpu") != (profile == "gpu"):
            return None
        if problem:
            return Entry(attack, path, catalog.problem(problem), paths.problems() / problem, profile)
        before = followed(path, SHIPPED, profile)
        if folder == "gpu" or (before and before.parent == SHIPPED):
            return Entry(attack, path, catalog.problem("paged_attention"), SHIPPED.parent, profile)
        return Entry(attack, path, documents.read_yaml(GIVEN / "problem.yaml", Problem, name="given"), GIVEN, profile)
    home = paths.problems() / folder
    for_one = name.rpartition("_")[2] if name.endswith(("_cpu", "_gpu")) else profile
    path = home / "solutions" / f"{name}.py"
    return Entry(attack, path, catalog.problem(folder), home, profile) if for_one == profile else None


def honest(profile: Profile) -> Iterator[Entry]:
    """The honest submissions for a profile, each on its problems."""
    for row in _read()["honest"]:
        beside = HONEST / f"{row['solution']}.py"
        for problem in row["problems"]:
            home = paths.problems() / problem
            shipped = catalog.solutions(home, profile).get(row["solution"])
            if shipped is None and (not beside.exists() or (profile == "cpu" and not _runs_anywhere(beside))):
                continue
            yield Entry(f"{problem}/{row['solution']}", shipped or beside, catalog.problem(problem), home, profile)


def _runs_anywhere(path: Path) -> bool:
    before = followed(path)
    return before is not None and not before.stem.endswith("_gpu")


def _read() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(TABLE.read_text())
    return found
