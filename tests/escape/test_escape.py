"""One test for each probe, profile and user, and one for each probe that has a positive control."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from escape import sandboxed, suite
from escape.inside import common, runner
from escape.weakened import VARIANTS

ENTRIES = suite.entries()
ROOT = Path(__file__).resolve().parents[2]
CASES = [(entry, profile, user) for user in suite.USERS for entry in ENTRIES for profile in entry.profiles]


@pytest.fixture(scope="session")
def results(tmp_path_factory, request, sandbox):
    """Outcomes of the suite. Of several test processes one runs it and the others read the file."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if hasattr(request.config, "workerinput") else base
    stored = folder / "escape.json"
    with (folder / "escape.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            stored.write_text(json.dumps(suite.run_suite()))
    return json.loads(stored.read_text())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("entry", "profile", "user"), CASES, ids=lambda value: getattr(value, "name", value))
def test_probe_is_held(results, entry, profile, user):
    if reason := results[user].get("unavailable"):
        pytest.skip(reason)
    state, detail = results[user]["found"][profile][entry.name]
    if state == "untried":
        pytest.skip(detail)
    accepted = suite.ACCEPTED.get(entry.name)
    assert state == "held" or (state == "open" and accepted and user in accepted.users), detail


@pytest.mark.timeout(400)
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.opens], ids=lambda entry: entry.name)
def test_probe_opens_in_weakened_sandbox(results, entry):
    """A probe that opens nowhere proves nothing."""
    found = next((results[user]["controls"] for user in suite.USERS if results[user].get("controls")), None)
    if found is None:
        pytest.skip("; ".join(results[user].get("unavailable", "") for user in suite.USERS))
    variant, state, detail = found[entry.name]
    if state == "untried" or (state == "held" and entry.lacking):
        pytest.skip(f"this machine does not have it, sandbox or not: {detail}")
    assert state == "open", f"{variant}: {detail}"


def outcome_of(work, **fields):
    """The outcome of a probe that does this."""
    return runner.run_probe(common.Probe("a.b", "", "", None, False, True, fields.get("also", ()), "", work))[0]


def fails(number):
    def work():
        common.refused(lambda: common.fail(number))

    return work


def test_only_a_refusal_counts_as_held():
    assert outcome_of(fails(errno.EPERM)) == "held"
    assert outcome_of(fails(errno.EFAULT)) == "broken"
    assert outcome_of(fails(errno.EFBIG)) == "broken" and outcome_of(fails(errno.EFBIG), also=(errno.EFBIG,)) == "held"
    assert outcome_of(lambda: common.fail(errno.ENOMEM)) == "broken"
    assert outcome_of(lambda: os.kill(os.getpid(), signal.SIGSYS)) == "held"
    assert outcome_of(lambda: os.kill(os.getpid(), signal.SIGUSR1)) == "broken"


def test_ended_sandbox_holds_only_by_the_limit_of_its_probe():
    met = ("its memory of 256 MiB was used up, and the kernel ended 1 of its processes",)
    assert sandboxed.settled("resources.memory", {}, met, "")[0] == "held"
    assert sandboxed.settled("resources.memory", {}, (), "code 137")[0] == "broken"
    assert sandboxed.settled("resources.threads", {}, met, "")[0] == "broken"
    assert sandboxed.settled("resources.memory", {"resources.memory": ("open", "")}, met, "")[0] == "open"


def test_every_probe_describes_what_it_tries():
    assert len(ENTRIES) == len({entry.name for entry in ENTRIES}) > 150
    assert not [entry.name for entry in ENTRIES if len(entry.text) < 15]
    assert {entry.opens for entry in ENTRIES} == {None, *VARIANTS}
    assert set(suite.ACCEPTED) <= {entry.name for entry in ENTRIES}


def test_docs_list_exactly_these_probes():
    table, page = (ROOT / "docs/tables/probes.md").read_text(), (ROOT / "docs/sandbox.md").read_text()
    listed = [line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(entry.name for entry in ENTRIES), "run scripts/probe_table.py"
    assert all(f"`{name}`" in page for name in suite.ACCEPTED), "docs/sandbox.md must explain each open probe"
