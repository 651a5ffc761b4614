"""Check imported problems, measure their baselines, and score ModelNew files, each in one brief process.

    ARENA_PROBLEMS=DIR scripts/measure_imports.py measure --out FILE.json [--hardware H] [--model-new FOLDER PROBLEM] PROBLEM...
    scripts/measure_imports.py page FILE.json --page docs/tables/imports_h100.md [--baselines FOLDER]

`measure` needs the problems, torch and the device, and writes its file again after each problem: what was measured before a
limit is kept, and the same command goes on. `page` needs the file alone; it prints fast_p and writes a page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from arena import catalog, judge  # noqa: E402
from arena.authoring import baseline  # noqa: E402
from arena.authoring.check import Report, check_problem, expected  # noqa: E402
from arena.cli.score import with_model_new  # noqa: E402
from arena.files import documents  # noqa: E402
from arena.judge.sampling import CPU, GPU  # noqa: E402
from arena.plan import hardware_on  # noqa: E402
from arena.results import baselines, fast_p  # noqa: E402
from arena.results.board import Reached  # noqa: E402
from arena.sandboxes.backends import backend  # noqa: E402
from arena.schema import BaselineLine, Baselines, Record, Score  # noqa: E402
from arena.submission import submission_of  # noqa: E402

BRIEF = {
    "gpu": replace(GPU, processes=1, counters=False, build_limit_s=240.0, first_call_limit_s=240.0, total_limit_s=400.0),
    "cpu": replace(CPU, processes=1, min_calls=4, min_windows=3, max_windows=3),
}
"""One process instead of three. Verdicts are those of the published sampling; times are a little less sure."""
SPEEDS = (0.5, 0.8, 1.0, 1.5, 2.0)
HEAD = """\
# Imported problems on {device}

Written by `scripts/measure_imports.py` from what it measured on {device}: torch {torch}, one process a score. The problems are
KernelBench's tasks as `arena import` makes them, at most 1 GB a call: these are no numbers of KernelBench. The tolerance must
refuse wrong_coarser: tf32 instead of fp32.
"""


class ModelNew(Record):
    """What became of one file."""

    file: str
    problem: str
    expected: str
    score: Score


class Measured(Record):
    """What one device gave."""

    seconds: Mapping[str, float] = {}
    checks: tuple[Report, ...] = ()
    baselines: tuple[Baselines, ...] = ()
    models: tuple[ModelNew, ...] = ()


def measure(asked: argparse.Namespace) -> None:
    """Measure what the file lacks, and write it after each step."""
    hardware, sandbox = hardware_on(asked.hardware, asked.gpu), backend("bwrap")
    sampling = BRIEF[hardware.profile]
    found = documents.read_json(asked.out, Measured) if asked.out.is_file() else Measured()

    def keep(step: str, began: float, **changed: object) -> None:
        nonlocal found
        took = round(time.monotonic() - began, 1)
        found = found.model_copy(update={**changed, "seconds": {**found.seconds, step: took}})
        documents.write_json(asked.out, found)
        print(f"{step}: {took} s", flush=True)

    for name, path in model_files(asked):
        step = f"{path.stem} {name}"
        if step in found.seconds or (hardware.profile == "cpu" and path.stem.endswith("_gpu")):
            continue
        began, problem = time.monotonic(), catalog.problem(name)
        score = judge.score(
            submission_of(with_model_new(path, name)),
            problem,
            hardware,
            digest=catalog.problem_digest(name),
            sandbox=sandbox,
            sampling=sampling,
            gpu=asked.gpu,
        )
        print(f"  {path.stem:20} {score.verdict} {score.message}", flush=True)
        one = ModelNew(file=path.name, problem=name, expected=expected(path), score=score)
        keep(step, began, models=(*found.models, one))
    for name in asked.problems:
        problem = catalog.problem(name)
        if f"baseline {name}" not in found.seconds:
            began = time.monotonic()
            record = baseline.measure(
                problem,
                hardware,
                sandbox,
                gpu=asked.gpu,
                sampling=sampling,
                report=lambda line: print(f"  {line.name:20} {line.verdict} {line.fraction} {line.message[:300]}", flush=True),
            )
            keep(f"baseline {name}", began, baselines=(*found.baselines, record))
        if f"check {name}" not in found.seconds:
            began = time.monotonic()
            report = check_problem(
                problem,
                hardware,
                sandbox,
                gpu=asked.gpu,
                sampling=sampling,
                report=lambda one: print(f"  {'ok  ' if one.ok else 'FAIL'} {one.name} {one.got} {one.detail[:300]}", flush=True),
            )
            keep(f"check {name}", began, checks=(*found.checks, report))


def model_files(asked: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Problem and file of each ModelNew."""
    for folder, name in asked.model_new:
        for path in sorted(Path(folder).glob("*.py")):
            yield name, path


def main() -> None:
    """Measure, or write a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    first = actions.add_parser("measure")
    first.add_argument("problems", nargs="*")
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--hardware")
    first.add_argument("--gpu", type=int, default=0)
    first.add_argument("--model-new", nargs=2, metavar=("FOLDER", "PROBLEM"), action="append", default=[])
    second = actions.add_parser("page")
    second.add_argument("file", type=Path)
    second.add_argument("--page", type=Path)
    second.add_argument("--baselines", type=Path, help="also write each record below this folder, as `arena baseline` does")
    asked = parser.parse_args()
    measure(asked) if asked.action == "measure" else page(asked)


def page(asked: argparse.Namespace) -> None:
    """Print and write what a file holds."""
    found = documents.read_json(asked.file, Measured)
    for record in found.baselines if asked.baselines else ():
        baselines.write(asked.baselines, record)
    text = "\n".join(lines(found)) + "\n"
    print(text)
    if asked.page:
        documents.write_text(asked.page, text)


def lines(found: Measured) -> Iterator[str]:
    """The page."""
    device = next((record.device.name for record in found.baselines if record.device), "an unknown device")
    torch = next((record.versions.get("torch", "") for record in found.baselines), "")
    yield HEAD.format(device=device, torch=torch)
    yield "## Checks\n"
    yield "| problem | checks | not as expected | oracle: part of the tolerance | wrong_coarser |"
    yield "|---|---|---|---|---|"
    for report in found.checks:
        failed = [one for one in report.findings if not one.ok]
        oracle, coarser = (
            next((one for one in report.findings if one.name == name), None) for name in ("oracle", "wrong_coarser")
        )
        limits = {k: v for record in found.baselines if record.problem == report.problem for k, v in tolerance_of(record).items()}
        part = (
            max((value / limits[m] for m, value in (oracle.error or {}).items() if m in limits), default=0.0) if oracle else 0.0
        )
        wrong = "; ".join(f"{one.name} {one.got}: {one.detail[:120]}" for one in failed).replace("|", "/") or "nothing"
        yield f"| {report.problem} | {len(report.findings)} | {wrong} | {part:.2f} | {coarser.got if coarser else 'absent'} |"
    yield "\n## Times\n\nOf one call, milliseconds; in brackets the verdict where it is not `passed`.\n"
    names = list(dict.fromkeys(line.name for record in found.baselines for line in record.lines))
    yield f"| problem | {' | '.join(names)} |"
    yield "|---|" + "---|" * len(names)
    for record in found.baselines:
        cells = {line.name: line for line in record.lines}
        yield f"| {record.problem} | {' | '.join(time_of(cells.get(name)) for name in names)} |"
    yield "\n## fast_p\n"
    yield "Over the problems, one kernel each; `outside` counts those where the library itself is outside the tolerance.\n"
    yield f"| kernel | against | problems | outside | {' | '.join(f'p = {p:g}' for p in SPEEDS)} |"
    yield "|---|---|---|---|" + "---|" * len(SPEEDS)
    reached = [Reached(column=record.problem, baselines=record) for record in found.baselines]
    for one in fast_p.libraries(reached):
        shares = [fast_p.fast_p(one.speedups.values(), p) or 0.0 for p in SPEEDS]
        yield f"| {one.library} | {one.against} | {len(one.speedups)} | {len(one.outside)} | " + (
            " | ".join(f"{share:.2f}" for share in shares) + " |"
        )
    yield "\n## ModelNew\n\n| file | problem | expected | verdict | message |\n|---|---|---|---|---|"
    for model in found.models:
        message = model.score.message[:160].replace("|", "/")
        yield f"| {model.file} | {model.problem} | {model.expected} | {model.score.verdict} | {message} |"


def tolerance_of(record: Baselines) -> dict[str, float]:
    """A problem's tolerance, where it is installed."""
    return dict(catalog.problem(record.problem).tolerance) if record.problem in catalog.problems() else {}


def time_of(line: BaselineLine | None) -> str:
    """A baseline's time at its one shape."""
    if line is None or not line.shapes:
        return f"({line.verdict})" if line and line.verdict else "absent"
    verdict = "" if line.verdict == "passed" else f" ({line.verdict})"
    return f"{line.shapes[0].measured_s * 1e3:.4g}{verdict}"


if __name__ == "__main__":
    main()
