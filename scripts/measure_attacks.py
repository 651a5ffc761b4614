"""Score every attack of tests/attacks/table.yaml beside its honest twin, and the honest submissions: the adversary's gain.

From the checkout: `PYTHONPATH=.:tests python scripts/measure_attacks.py --hardware cpu [--json FILE] [--write]`.

Each score has one process and, on a GPU, every third shape of its problem from the second on; what is to time out has 60 s for
its first call. A score is added to `--json FILE` at once; what that file holds already is left out, so a long measurement may be
cut short. Files of several runs may be joined: the last score of a name counts, and a gain is over the twin's last score before
it. `--attacks` and `--honest` choose what to score, `--only` names submissions. `--write` puts the tables into
docs/tables/attacks.md, in the place of this hardware's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import attack_table
import torch
from attack_table import Entry, Mechanism
from submission import GIVEN

from arena import catalog, judge
from arena.judge.evaluation import Untimed
from arena.judge.sampling import CPU, GPU
from arena.sandboxes import MIB, RunningSandbox, Sandbox, SandboxSpec
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Passed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "attacks.md"
FEWER = slice(1, None, 3)
FIXED = "## What no submission shows"
AIMS = {True: 1.005, False: 1.02}
"""The largest gain that an attack may have, within the rules and against them."""


@dataclass(frozen=True)
class Row:
    """One score, as `--json` keeps it."""

    name: str
    verdict: str
    expected: str
    message: str
    score: float | None
    """peak_fraction, where it passed."""
    alarms: str
    """What marks a score that passed: retimed shapes, scatter, flags for review."""
    seconds: float
    device: str
    """With the driver and torch, where it passed."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Where it passed: what the judge recorded of the device, and the times of each shape."""


class Small:
    """The sandbox with little memory: a submission that takes all of it must not take the machine's."""

    def missing(self) -> str | None:
        """What the machine lacks for it."""
        return backend().missing()

    def run(self, spec: SandboxSpec) -> AbstractContextManager[RunningSandbox]:
        """Start it."""
        return backend().run(replace(spec, limits=replace(spec.limits, memory_bytes=1024 * MIB)))


def scored(entry: Entry, hardware: Hardware, *, shared: bool) -> Row:
    """Score one submission with the shortened plan."""
    submission, expected = entry.submission()
    problem, sampling = entry.problem, replace(CPU, processes=1)
    if hardware.profile == "gpu":
        sampling = replace(GPU, processes=1, counters=False)
        if expected == "timed_out":
            sampling = replace(sampling, first_call_limit_s=60.0)
        problem = problem.model_copy(update={"shapes": {"gpu": problem.shapes["gpu"][FEWER]}, "latency": {}})
    sandbox: Sandbox = backend()
    if entry.home == GIVEN:
        sandbox = Small()
        sampling = replace(sampling, call_limit_s=6.0, first_call_limit_s=6.0, build_limit_s=20.0)
    score = partial(judge.score, submission, problem, hardware, digest="", sandbox=sandbox)
    try:
        result = score(sampling=sampling, folder=entry.home, shared=shared)
    except Untimed:
        sys.exit(f"{entry.name} passes its checks: score it without --shared, so that it can be timed")
    row = Row(entry.name, result.verdict, expected, result.message, None, "", round(result.timings.total_s, 1), "")
    if isinstance(result, Passed):
        driver = f", driver {result.device.driver}" if result.device.driver else ""
        device = f"{result.device.name}{driver}, torch {torch.__version__}"
        shapes = [shape.model_dump(mode="json", exclude={"samples_s", "alone_samples_s"}) for shape in result.shapes]
        details = {"environment": dict(result.environment), "shapes": shapes}
        return replace(row, score=result.peak_fraction, alarms=alarms(result), device=device, details=details)
    return row


def alarms(result: Passed) -> str:
    """What a reviewer would be shown of an honest score, beside its number."""
    retimed = sum(bool(shape.disturbed) for shape in result.shapes)
    text = [f"retimed {retimed}"] * bool(retimed) + ["overlapped"] * any(shape.overlapped() for shape in result.shapes)
    return ", ".join(text + ["unsteady"] * result.unsteady + ["review"] * (result.review_suggested and not result.unsteady))


def gain(row: Row, twin: Row | None) -> float | None:
    """The attack's score over its twin's; nan where one of the two is unsteady, None where one has no score."""
    if not (twin and row.score and twin.score):
        return None
    return math.nan if "unsteady" in row.alarms + twin.alarms else row.score / twin.score


def described(more: float | None) -> str:
    """A gain as the table shows it."""
    return "" if more is None else "unsteady" if math.isnan(more) else f"{more:.3f}"


def twins(rows: Iterable[Row], chosen: dict[str, Entry]) -> dict[str, Row]:
    """By name, the score of each one's twin: the last before it, so of the same run and the same card."""
    last: dict[str, Row] = {}
    found: dict[str, Row] = {}
    for row in rows:
        last[row.name] = row
        if row.name in chosen and (twin := last.get(chosen[row.name].twin.name)):
            found[row.name] = twin
    return found


def attack_lines(rows: dict[str, Row], beside: dict[str, Row], hardware: Hardware) -> Iterator[str]:
    """The table of the mechanisms, and what the adversary gained at best."""
    yield "| mechanism | attack | verdict | gain |"
    yield "|---|---|---|---|"
    best: dict[bool, tuple[float, str]] = {}
    for mechanism in attack_table.mechanisms():
        for entry, name in entries(mechanism, hardware):
            if not (row := rows.get(name)):
                continue
            more = gain(row, beside.get(name))
            if more is not None and not math.isnan(more):
                best[mechanism.within] = max(best.get(mechanism.within, (0.0, "")), (more, name))
            as_expected = row.verdict == row.expected or (entry.bounded and row.verdict == "passed")
            verdict = row.verdict if as_expected else f"**{row.verdict}**, expected {row.expected}"
            yield f"| {mechanism.name} | `{name}` | {verdict} | {described(more)} |"
    yield ""
    bound = (GPU if hardware.profile == "gpu" else CPU).steady_half_width
    yield f"Before a score is marked unsteady, its time may scatter by {bound:.0%}: a gain below {1 + bound} shows nothing."
    yield ""
    for within, (most, name) in sorted(best.items(), reverse=True):
        kind = "within the rules" if within else "against the rules"
        yield f"The best gain {kind} is {most:.3f} (`{name}`); the aim is at most {AIMS[within]}."


def honest_lines(rows: dict[str, Row], hardware: Hardware) -> Iterator[str]:
    """The table of the honest submissions."""
    found = [rows[entry.name] for entry in attack_table.honest(hardware.profile) if entry.name in rows]
    yield "| honest submission | verdict | score | marks |"
    yield "|---|---|---|---|"
    for row in found:
        verdict = row.verdict if row.verdict == "passed" else f"**{row.verdict}**: {row.message}"
        yield f"| `{row.name}` | {verdict} | {f'{row.score:.4f}' if row.score else ''} | {row.alarms} |"
    yield ""
    refused = sum(row.verdict != "passed" for row in found)
    yield f"{len(found)} honest submissions: {refused} refused, {sum(bool(row.alarms) for row in found)} marked."


def fixed_lines() -> Iterator[str]:
    """What no submission shows: mechanisms with tests of their own, and those that cannot exist."""
    yield "| mechanism | what it would do | why there is no submission for it |"
    yield "|---|---|---|"
    for mechanism in attack_table.mechanisms():
        tested = ", ".join(f"[{Path(name).name}](../../{name})" for name in mechanism.tests)
        if reason := mechanism.absent or (f"tested by {tested}" if tested else ""):
            yield f"| {mechanism.name} | {mechanism.how} | {reason} |"


def entries(mechanism: Mechanism, hardware: Hardware) -> Iterator[tuple[Entry, str]]:
    """A mechanism's attacks for this hardware, with their names."""
    for name in mechanism.attacks:
        if entry := attack_table.entry(name, hardware.profile):
            yield entry, name


def wanted(hardware: Hardware, kinds: Iterable[str]) -> dict[str, Entry]:
    """What to score, by name: attacks with their twins, honest submissions, or both."""
    found: dict[str, Entry] = {}
    if "attacks" in kinds:
        for mechanism in attack_table.mechanisms():
            for entry, name in entries(mechanism, hardware):
                found |= {entry.twin.name: entry.twin, name: entry}
    if "honest" in kinds:
        found |= {entry.name: entry for entry in attack_table.honest(hardware.profile)}
    return found


def write(heading: str, lines: Iterable[str]) -> None:
    """Put a section into the page, in the place of the one with the same heading; what no submission shows stays last."""
    text = PAGE.read_text() if PAGE.exists() else "# Attacks and honest submissions\n"
    sections = {part.split("\n", 1)[0]: part.rstrip("\n") for part in re.split(r"(?m)^(?=## )", text)}
    sections[heading] = "\n".join([heading, "", *lines])
    fixed = sections.pop(FIXED, "")
    PAGE.write_text("\n\n".join([*sections.values(), *([fixed] if fixed else [])]) + "\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--attacks", dest="kinds", action="append_const", const="attacks")
    parser.add_argument("--honest", dest="kinds", action="append_const", const="honest")
    parser.add_argument("--only", nargs="*", help="names as in the tables; twins come along")
    parser.add_argument("--shared", action="store_true", help="beside others on one GPU: for what is rejected before any timing")
    parser.add_argument("--json", type=Path, help="file that every score is added to")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(PAGE.parents[2])}")
    options = parser.parse_args()
    hardware = catalog.hardware(options.hardware)
    chosen = wanted(hardware, options.kinds or ("attacks", "honest"))
    if options.only:
        if unknown := set(options.only) - chosen.keys():
            sys.exit(f"not in tests/attacks/table.yaml for hardware {hardware.name}: {', '.join(sorted(unknown))}")
        chosen = {name: entry for one in options.only for name, entry in with_twin(one, chosen[one])}

    kept: list[Row] = []
    if options.json and options.json.exists():
        kept = [Row(**json.loads(line)) for line in options.json.read_text().splitlines()]
    done = {row.name for row in kept}
    for name, entry in chosen.items():
        if name in done:
            continue
        row = scored(entry, hardware, shared=options.shared)
        print(f"  {name}: {row.verdict} {row.score or row.message} {row.alarms} ({row.seconds} s)", file=sys.stderr, flush=True)
        kept.append(row)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    rows, beside = {row.name: row for row in kept}, twins(kept, wanted(hardware, ("attacks", "honest")))
    device = next((row.device for row in kept if row.device), hardware.name)
    lines = [f"{device}, {datetime.date.today()}", "", *attack_lines(rows, beside, hardware), "", *honest_lines(rows, hardware)]
    print("\n".join(lines))
    if options.write:
        write(f"## On {hardware.name}", lines)
        write(FIXED, fixed_lines())


def with_twin(name: str, entry: Entry) -> Iterator[tuple[str, Entry]]:
    """A submission, behind its twin where it may have a score."""
    if entry.path.parent != attack_table.HONEST and (entry.bounded or entry.submission()[1] == "passed"):
        yield entry.twin.name, entry.twin
    yield name, entry


if __name__ == "__main__":
    main()
