"""Submissions kept as files, each with its expected verdict on the first line."""

import hashlib

from arena import paths
from arena.submission import Submission


def read(path):
    """(submission, expected verdict). `# follows: NAME` puts that solution of the problem in front."""
    source = path.read_text()
    first, second = source.splitlines()[:2]
    if second.startswith("# follows: "):
        before = paths.problems() / "paged_attention" / "solutions" / f"{second.removeprefix('# follows: ')}.py"
        source = before.read_text() + "\n\n" + source
    data = source.encode()
    return Submission(data, hashlib.sha256(data).hexdigest()), first.removeprefix("# verdict: ")
