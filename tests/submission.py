"""Submissions kept as files. Comments at the top give the expected verdict, words of its message, and what to put in front."""

import hashlib
from pathlib import Path

from arena import paths
from arena.submission import Submission

SHIPPED = paths.problems() / "paged_attention" / "solutions"


def header(source: str, key: str) -> str:
    """The value of `# key: value` in the first three lines; empty when there is none."""
    found = [line.removeprefix(f"# {key}: ") for line in source.splitlines()[:3] if line.startswith(f"# {key}: ")]
    return found[0] if found else ""


def followed(path: Path) -> Path | None:
    """What `# follows: NAME` puts in front: the submission of that name beside this one, else a solution of paged_attention."""
    name = header(path.read_text(), "follows")
    beside = path.with_name(f"{name}.py")
    return None if not name else beside if beside.exists() else SHIPPED / beside.name


def read(path: Path) -> tuple[Submission, str]:
    """(submission, expected verdict)."""
    source, before = path.read_text(), followed(path)
    data = (before.read_text() + "\n\n" + source if before else source).encode()
    return Submission(data, hashlib.sha256(data).hexdigest()), header(source, "verdict")
