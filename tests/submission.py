"""Submissions kept as files. Comments at the top give the expected verdict, words of its message, and what to put in front."""

from __future__ import annotations

import hashlib
from pathlib import Path

from arena import paths
from arena.schema import Profile
from arena.submission import Submission

ATTACKS = Path(__file__).with_name("attacks")
GIVEN = Path(__file__).with_name("given")
"""A small problem for attacks on the judge itself; the others attack a shipped problem."""
SHIPPED = paths.problems() / "paged_attention" / "solutions"


def header(source: str, key: str) -> str:
    """The value of `# key: value` in the first three lines; empty when there is none."""
    found = [line.removeprefix(f"# {key}: ") for line in source.splitlines()[:3] if line.startswith(f"# {key}: ")]
    return found[0] if found else ""


def followed(path: Path, solutions: Path = SHIPPED, profile: Profile = "cpu") -> Path | None:
    """What `# follows: NAME` puts in front: a submission beside this one or among those for a CPU, else a problem's solution."""
    name = header(path.read_text(), "follows")
    folders = ((path.parent, name), (ATTACKS / "cpu", name), (solutions, f"{name}_{profile}"), (solutions, name))
    return next(place for folder, stem in folders if (place := folder / f"{stem}.py").exists()) if name else None


def submitted(source: str) -> Submission:
    """A submission of that text."""
    data = source.encode()
    return Submission(data, hashlib.sha256(data).hexdigest())


def source_of(path: Path, solutions: Path = SHIPPED, profile: Profile = "cpu") -> str:
    """The text of a submission, behind those that it follows."""
    before = followed(path, solutions, profile)
    return f"{source_of(before, solutions, profile)}\n\n{path.read_text()}" if before else path.read_text()


def read(path: Path, solutions: Path = SHIPPED, profile: Profile = "cpu") -> tuple[Submission, str]:
    """(submission, expected verdict)."""
    return submitted(source_of(path, solutions, profile)), header(path.read_text(), "verdict")
