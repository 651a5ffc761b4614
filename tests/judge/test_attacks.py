"""The table of attacks: each mechanism has a submission, a test or a reason, and each attack stands in the table once."""

import collections

import pytest
from attack_table import HONEST, entry, honest, mechanisms
from submission import ATTACKS, header

from arena import paths

MECHANISMS = mechanisms()
ATTACKED = [attack for mechanism in MECHANISMS for attack in mechanism.attacks]
HONEST_AMONG_CPU = {
    "forks", "honest", "keeps_its_tensor_objects", "mentions_forbidden", "prints_a_gigabyte", "sleeps_evenly", "static_buffer",
    "sleeps_at_random",
}  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_mechanism_has_an_attack_a_test_or_a_reason(mechanism):
    assert [bool(mechanism.attacks), bool(mechanism.tests), bool(mechanism.absent)].count(True) == 1
    for name in mechanism.tests:
        assert (ATTACKS.parents[1] / name).is_file(), name
    for attack in mechanism.attacks:
        assert entry(attack, "cpu") or entry(attack, "gpu"), attack


def test_every_attack_stands_in_the_table():
    files = {f"{name}/{path.stem}" for name in ("cpu", "gpu", "channel") for path in (ATTACKS / name).glob("*.py")}
    files |= {f"{path.parents[1].name}/{path.stem}" for path in paths.problems().glob("*/solutions/cheat_*.py")}
    assert files - set(ATTACKED) == {f"cpu/{name}" for name in HONEST_AMONG_CPU} | {"gpu/bad_address"}
    assert [name for name, count in collections.Counter(ATTACKED).items() if count > 1] == []


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_attack_has_an_honest_twin_and_a_verdict(profile):
    found = [made for attack in ATTACKED if (made := entry(attack, profile))]
    assert len(found) > 20
    for each in found:
        assert each.submission()[1], each.name
        assert each.twin.submission()[1] == "passed", each.name


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_honest_submissions_are_many_and_of_many_problems(profile):
    found = list(honest(profile))
    assert len(found) == len({each.name for each in found}) >= 20
    assert len({each.problem.name for each in found}) == 7
    assert all(each.submission()[1] == "passed" for each in found)


def test_every_honest_submission_is_listed_for_a_gpu():
    listed = {each.path.stem for each in honest("gpu") if each.path.parent == HONEST}
    assert listed == {path.stem for path in HONEST.glob("*.py")}
    assert all(header(path.read_text(), "verdict") == "passed" for path in HONEST.glob("*.py"))
