"""`arena check`: a sound problem passes, and each fault of a problem is found and named."""

import json
import time
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from command import Arena, copy, needs_sandbox

from arena import catalog
from arena.authoring import check, contract
from arena.authoring.side_by_side import side_by_side
from arena.judge.evaluation import Untimed
from arena.judge.sampling import CPU
from arena.schema import Passed, Rejected, TimedShape

pytestmark = needs_sandbox

CHECK = ("check", "paged_attention", "--hardware", "cpu")
WRONG = "# verdict: crashed\ndef solution(:\n"
QUICK = """
from arena import catalog
from arena.authoring.check import check_problem
from arena.judge.sampling import Sampling
from arena.sandboxes import bwrap
sampling = Sampling(processes=1, min_windows=3, max_windows=3)
print(check_problem(catalog.problem("paged_attention"), catalog.hardware("cpu"), bwrap, sampling=sampling).model_dump_json())
"""
CHECKS_ONLY = """
from arena import catalog, judge
from arena.judge.evaluation import Untimed
from arena.sandboxes import bwrap
from arena.submission import collect
for name, path in sorted(catalog.solutions(catalog.problem_folder("paged_attention"), "cpu").items()):
    problem, hardware = catalog.problem("paged_attention"), catalog.hardware("cpu")
    try:
        submission = collect(path.parent, path.name)
        print(judge.score(submission, problem, hardware, digest="", sandbox=bwrap, shared=True).verdict)
    except Untimed as passed:
        print(type(passed).__name__)
"""


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """A problem with one shape and one solution, whose expected verdict is `crashed`: all of it is quick."""
    made = copy(tmp_path)
    made.one_shape()
    for path in made.solutions.iterdir():
        path.unlink()
    made.solution("wrong_syntax", WRONG)
    return made


def by_name(report: dict) -> dict[str, dict]:
    return {finding["name"]: finding for finding in report["findings"]}


def restore(arena: Arena, *names: str) -> None:
    """Give the problem these solutions of the shipped one."""
    for name in names:
        arena.solution(name, (arena.shipped / f"{name}.py").read_text())


@pytest.mark.slow
def test_a_problem_without_its_honest_solutions(arena: Arena) -> None:
    [report] = arena.json(*CHECK, code=1)
    found = by_name(report)
    assert (report["problem"], report["hardware"]) == ("paged_attention", "cpu")
    assert {name for name, finding in found.items() if not finding["ok"]} == {"oracle", "naive"}
    assert found["oracle"]["got"] == "absent"
    assert found["nop"]["got"] == "missing"
    assert found["wrong_syntax"]["got"] == "crashed"
    answers = {f"degenerate: {name}" for name in ("zeros", "constant", "row mean", "copy of input 0")}
    assert answers | {"reference rounded", "contract: threads"} <= found.keys()
    done = arena(*CHECK)
    assert (done.code, done.out) == (1, "")
    assert "FAIL oracle" in done.err
    assert "2 of the checks failed" in done.err


@pytest.mark.slow
def test_solutions_with_another_verdict_or_unreadable(arena: Arena) -> None:
    arena.solution("wrong_syntax", WRONG.replace("crashed", "passed"))
    (arena.solutions / "cheat_link.py").symlink_to("wrong_syntax.py")
    found = by_name(arena.json(*CHECK, code=1)[0])
    assert not found["wrong_syntax"]["ok"]
    assert found["wrong_syntax"]["detail"] == "expected passed: solution.py does not parse: line 2: invalid syntax"
    assert found["cheat_link"]["got"] == "missing"
    assert "symbolic link" in found["cheat_link"]["detail"]


@pytest.mark.slow
def test_a_problem_without_any_wrong_solution(arena: Arena) -> None:
    (arena.solutions / "wrong_syntax.py").unlink()
    found = by_name(arena.json(*CHECK, code=1)[0])
    assert (found["wrong_*"]["ok"], found["wrong_*"]["got"]) == (False, "absent")


@pytest.mark.slow
def test_a_loose_tolerance_accepts_degenerate_answers(arena: Arena) -> None:
    loose = lambda text: text.replace("tolerance: {rel_fro: ", "tolerance: {rel_fro: 9, row: 9, el: 9} # {")  # noqa: E731
    arena.edit("problems/paged_attention/problem.yaml", loose)
    found = by_name(arena.json(*CHECK, code=1)[0])
    assert (found["degenerate: zeros"]["ok"], found["degenerate: zeros"]["got"]) == (False, "accepted")
    assert found["reference rounded"]["ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("def solution(): ...", ":1: must read `# verdict: <verdict>`, the verdict that the judge must give"),
        ("# verdict: pased", ":1: unknown verdict 'pased': did you mean 'passed'? (known: passed, "),
    ],
)
def test_a_first_line_that_names_no_verdict(first: str, message: str, arena: Arena) -> None:
    path = arena.solution("wrong_first_line", first + "\n")
    done = arena(*CHECK)
    assert done.code == 2
    assert f"arena: {path}{message}" in done.err
    assert "Traceback" not in done.err


def verdict(word):
    return Rejected.model_construct(verdict=word)


WANTED = {
    **dict.fromkeys(("naive", "oracle", "wrong_passes"), "passed"),
    **dict.fromkeys(("wrong_a", "wrong_b", "wrong_c", "wrong_d", "wrong_e", "wrong_f", "cheat_race"), "incorrect"),
    **{"wrong_crash": "crashed", "cheat_forge": "cheated", "wrong_library": "forbidden"},
}
QUICKLY = {name for name, word in WANTED.items() if word in check.SIDE_BY_SIDE}


def score_all(profile, passes=(), wrongly=()):
    """`_scored` with scores that only take time: their results, the sampling of each full score, and what ran beside what.

    `passes` pass the checks before timing; `wrongly` get another verdict in them than they should.
    """
    under_way, samplings, lock = set(), {}, Lock()
    beside: dict[str, set[str]] = {}

    def score(path, sampling=None, shared=False, hidden=True):
        with lock:
            under_way.add(path.name)
            for name in under_way:
                beside[name] = beside.get(name, set()) | under_way
        time.sleep(0.05)
        with lock:
            beside[path.name] |= under_way
            under_way.remove(path.name)
        if not shared:
            samplings[path.name] = sampling
        elif path.name in passes or WANTED[path.name] == "passed":
            raise Untimed({"row": 0.5})
        return verdict("timed_out" if shared and path.name in wrongly else WANTED[path.name])

    scored = list(check._scored({name: Path(name) for name in WANTED}, WANTED, score, profile, check.CHECKS_AT_ONCE[profile]))
    return scored, samplings, beside


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_only_checks_run_side_by_side(profile):
    scored, _, beside = score_all(profile, passes=("wrong_b", "cheat_race"), wrongly=("wrong_c",))
    assert sorted(one.name for one in scored) == sorted(WANTED)
    assert [one.name for one in scored[:2]] == ["naive", "oracle"]
    assert all(check.verdict_of(one.score) == WANTED[one.name] and one.seconds > 0 for one in scored)
    together = QUICKLY if profile == "gpu" else QUICKLY - {"cheat_race"} | {"wrong_passes"}
    assert max(map(len, beside.values())) > 1
    assert all(names == {name} or names <= together for name, names in beside.items())


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_passes_its_checks_is_timed_alone(profile):
    """A cheat against the published sampling, and so is what got another verdict beside others than it should."""
    scored, samplings, _ = score_all(profile, passes=("wrong_b", "cheat_race"), wrongly=("wrong_c", "cheat_forge"))
    briefly = {"wrong_b", "wrong_c", *(["wrong_passes"] if profile == "gpu" else [])}
    assert samplings.keys() == {"naive", "oracle", "cheat_race", "cheat_forge", *briefly}
    published = {"cheat_race", "cheat_forge", *(["oracle"] if profile == "gpu" else [])}
    assert {name for name, each in samplings.items() if each is None} == published
    assert (samplings["oracle"], samplings["naive"]) == (check.ORACLE[profile], check.NAIVE[profile])
    oracle = samplings["oracle"]
    assert oracle is None if profile == "gpu" else (oracle.processes, oracle.min_windows) == (1, CPU.min_windows)
    assert {samplings[name] for name in briefly} == {check.BRIEF[profile]}
    assert {one.name for one in scored[-4:]} == {"wrong_b", "wrong_c", "cheat_race", "cheat_forge"}


@pytest.mark.parametrize(
    ("hardware", "set_gb", "at_once"),
    [("h100-sxm", 0.5, 6), ("h100-sxm", 1.6, 4), ("h200", 1.6, 6), ("l4", 1.6, 1), ("l4", 9.0, 1), ("cpu", 9.0, 2)],
)
def test_as_many_are_checked_at_once_as_the_gpu_has_memory_for(hardware, set_gb, at_once):
    """Else a solution with large intermediate results would be `crashed` for want of memory that others of the check hold."""
    problem: Any = SimpleNamespace(shapes={"gpu": [{"N": 1}, {"N": 2}]}, bytes=lambda shape: set_gb * 1e9 / shape["N"])
    assert check._checks_at_once(problem, catalog.hardware(hardware)) == at_once


def test_that_limit_is_the_checks_own(monkeypatch):
    limits = []

    def scored(*arguments):
        limits.append(arguments[-1])
        return iter(())

    monkeypatch.setattr(check, "_scored", scored)
    monkeypatch.setattr(check, "_nop", lambda *_: None)
    for name in ("check", "check_degenerate"):
        monkeypatch.setattr(contract, name, lambda *_: iter(()))
    problem = catalog.problem("paged_attention")
    for hardware in ("h100-sxm", "h200", "cpu"):
        list(check._findings(problem, catalog.hardware(hardware), pytest.fail))
    assert limits == [4, 6, 2]


def test_side_by_side_keeps_the_order_and_the_limit():
    under_way, most, lock = [], [], Lock()

    def work(name):
        with lock:
            under_way.append(name)
            most.append(len(under_way))
        time.sleep(0.02 if name == "a" else 0.005)
        with lock:
            under_way.remove(name)
        return name.upper()

    assert list(side_by_side(work, "abcdefg", 3)) == [(name, name.upper()) for name in "abcdefg"]
    assert max(most) == 3
    assert list(side_by_side(work, "", 3)) == []


def test_an_error_side_by_side_is_raised_and_ends_the_rest():
    begun = []

    def work(name):
        begun.append(name)
        time.sleep(0.01)
        raise ValueError(name)

    with pytest.raises(ValueError, match="a"):
        list(side_by_side(work, "abcdefgh", 2))
    time.sleep(0.1)
    assert len(begun) < 8


@pytest.mark.slow
def test_the_judge_times_nothing_on_a_shared_device(arena: Arena) -> None:
    """It raises `Untimed` for what its checks accept, and rejects the rest as ever."""
    restore(arena, "oracle")
    done = arena.python(CHECKS_ONLY)
    assert done.code == 0, done.err
    assert done.out.split() == ["Untimed", "crashed"]


@pytest.mark.slow
def test_a_sound_problem_passes(arena: Arena) -> None:
    restore(arena, "oracle", "naive", "wrong_zeros")
    done = arena.python(QUICK)
    assert done.code == 0, done.err
    findings = json.loads(done.out)["findings"]
    assert [finding["name"] for finding in findings if finding["kind"] == "solution"] == [
        "nop",
        "naive",
        "oracle",
        "wrong_syntax",
        "wrong_zeros",
    ]
    # How far two scores lie apart depends on what else the machine does meanwhile.
    assert [finding for finding in findings if not finding["ok"] and finding["kind"] != "repeat"] == []
    assert [finding["kind"] for finding in findings[-2:]] == ["order", "repeat"]
    assert float(findings[-2]["got"]) > 1


@pytest.mark.slow
def test_an_oracle_no_faster_than_naive_fails(arena: Arena) -> None:
    restore(arena, "naive")
    slow = "import time\n" + (arena.shipped / "naive.py").read_text() + "\n\nhonest = solution\n"
    slow += "def solution(*inputs):\n    time.sleep(0.002)\n    return honest(*inputs)\n"
    arena.solution("oracle", "# verdict: passed\n" + slow)
    done = arena.python(QUICK)
    assert done.code == 0, done.err
    [order] = [finding for finding in json.loads(done.out)["findings"] if finding["kind"] == "order"]
    assert not order["ok"]
    assert float(order["got"]) < 1


@pytest.mark.parametrize(
    ("fractions", "profile", "ok", "got"),
    [
        ((0.5, 0.55), "cpu", True, "10.00%"),
        ((0.5, 0.9, 0.91), "cpu", True, "1.11%"),
        ((0.5, 0.9, 0.5, 0.9), "cpu", False, "80.00%"),
        ((0.5, 0.503), "gpu", True, "0.60%"),
        ((0.5, 0.51, 0.509), "gpu", True, "0.20%"),
        ((0.5, 0.51, 0.5), "gpu", False, "1.96%"),
    ],
)
def test_the_oracle_is_scored_until_two_scores_agree(fractions, profile, ok, got):
    shape = TimedShape.model_construct(error={"row": 1.0}, disturbed=("other work",))
    first, *rest = (Passed.model_construct(peak_fraction=fraction, shapes=(shape,), latency=()) for fraction in fractions)
    left = iter(rest)
    finding = check._repeat(first, lambda: next(left), profile)
    assert (finding.ok, finding.got) == (ok, got)
    assert finding.disturbed == ("other work",) * len(rest)
    assert next(left, None) is None, "each score that there is was needed"
