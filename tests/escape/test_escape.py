"""One test for each probe in each profile as each user, and one for each probe that can be shown to open without the wall."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from escape import boxes, suite
from escape.inside import attempt, runner
from escape.weaker import PLACES

ENTRIES = suite.entries()
ROOT = Path(__file__).resolve().parents[2]
CASES = [(entry, profile, user) for user in suite.USERS for entry in ENTRIES for profile in entry.profiles]


@pytest.fixture(scope="session")
def results(tmp_path_factory, request, sandbox):
    """What the suite found. With several test processes one of them runs it and the others read."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if hasattr(request.config, "workerinput") else base
    stored = folder / "escape.json"
    with (folder / "escape.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            stored.write_text(json.dumps(suite.everything()))
    return json.loads(stored.read_text())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("entry", "profile", "user"), CASES, ids=lambda value: getattr(value, "name", value))
def test_held(results, entry, profile, user):
    if reason := results[user].get("unable"):
        pytest.skip(reason)
    state, detail = results[user]["found"][profile][entry.name]
    if state == "untried":
        pytest.skip(detail)
    argued = suite.ARGUED.get(entry.name)
    assert state == "held" or (state == "open" and argued and user in argued.users), detail


@pytest.mark.timeout(400)
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.opens], ids=lambda entry: entry.name)
def test_opens_without_the_wall(results, entry):
    """A probe that opens nowhere proves nothing."""
    found = next((results[user]["controls"] for user in suite.USERS if results[user].get("controls")), None)
    if found is None:
        pytest.skip("; ".join(results[user].get("unable", "") for user in suite.USERS))
    place, state, detail = found[entry.name]
    if state == "untried" or (state == "held" and entry.lacking):
        pytest.skip(f"this machine does not have it, wall or not: {detail}")
    assert state == "open", f"{place}: {detail}"


def tried(work, **fields):
    """The verdict on a probe that does this."""
    return runner.one(attempt.Probe("a.b", "", "", None, False, True, fields.get("also", ()), "", work))[0]


def fails(number):
    def work():
        attempt.refused(lambda: attempt.fail(number))

    return work


def test_only_a_refusal_counts_as_held():
    assert tried(fails(errno.EPERM)) == "held"
    assert tried(fails(errno.EFAULT)) == "broken"
    assert tried(fails(errno.EFBIG)) == "broken" and tried(fails(errno.EFBIG), also=(errno.EFBIG,)) == "held"
    assert tried(lambda: attempt.fail(errno.ENOMEM)) == "broken"
    assert tried(lambda: os.kill(os.getpid(), signal.SIGSYS)) == "held"
    assert tried(lambda: os.kill(os.getpid(), signal.SIGUSR1)) == "broken"


def test_a_box_that_says_nothing_holds_only_by_the_limit_that_the_probe_is_about():
    met = ("its memory of 256 MiB was used up, and the kernel ended 1 of its processes",)
    assert boxes.judged("resources.memory", {}, met, "")[0] == "held"
    assert boxes.judged("resources.memory", {}, (), "code 137")[0] == "broken"
    assert boxes.judged("resources.threads", {}, met, "")[0] == "broken"
    assert boxes.judged("resources.memory", {"resources.memory": ("open", "")}, met, "")[0] == "open"


def test_every_probe_says_what_it_tries():
    assert len(ENTRIES) == len({entry.name for entry in ENTRIES}) > 150
    assert not [entry.name for entry in ENTRIES if len(entry.text) < 15]
    assert {entry.opens for entry in ENTRIES} == {None, *PLACES}
    assert set(suite.ARGUED) <= {entry.name for entry in ENTRIES}


def test_the_docs_list_exactly_these_probes():
    text = (ROOT / "docs/sandbox.md").read_text()
    table = text.partition("<!-- probes -->")[2].partition("<!-- end of probes -->")[0]
    listed = [line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(entry.name for entry in ENTRIES), "run scripts/probe_table.py"
    assert all(f"`{name}`" in text.replace(table, "") for name in suite.ARGUED), "an open probe is argued in the text"
