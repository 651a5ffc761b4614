"""Write arena/judge/known_kernels.json.xz from the wheels that kernel_sources.yaml names, and docs/tables/similar.md.

`scripts/make_fingerprints.py [--wheels FOLDER]` fetches the wheels with pip (some 900 MB), into a temporary folder unless named.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import io
import json
import keyword
import lzma
import re
import subprocess
import sys
import tempfile
import textwrap
import tokenize
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from arena.judge.fingerprints import RUN, WINDOW, c_tokens, fingerprints, of_python, packed, python_tokens  # noqa: E402
from arena.judge.similar import KNOWN, LEAST_SHARE, known  # noqa: E402
from arena.schema.score import REVIEW_SHARE  # noqa: E402

TABLE = ROOT / "docs" / "tables" / "similar.md"
PYTHON = "3.12"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64"]
LEAST_FINGERPRINTS = 36
"""A kernel with fewer (some 180 tokens) says too little: two idioms would be a large share of it."""
LEAST_SHOWN = 0.03
COPIES = 60
"""Kernels of which copies are made for the table, evenly over the list."""
COPY = 0.8
"""A kernel that holds this share of one listed before is a copy of it."""
DECORATORS = re.compile(r"\b(jit|kernel)\b")
SUBMISSIONS = ("problems/*/solutions/*.py", "problems/*/baselines/*.py", "tests/attacks/*/*.py")


def sources() -> list[dict[str, Any]]:
    """The packages to read."""
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "scripts" / "kernel_sources.yaml").read_text())
    return found


def fetch(package: str, version: str, folder: Path) -> Path:
    """The wheel of a package, fetched where the folder has none yet."""
    stem = re.sub(r"[-_.]+", "_", package)
    if not (found := sorted(folder.glob(f"{stem}-{version}-*.whl"))):
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        options = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, *platforms, "--dest", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *options, f"{package}=={version}"], check=True)
        found = sorted(folder.glob(f"{stem}-{version}-*.whl"))
    return found[0]


def kernels(wheel: zipfile.ZipFile, patterns: Iterable[str]) -> Iterator[tuple[str, set[int]]]:
    """(file: function, fingerprints) of each kernel in the files that a pattern matches."""
    for name in sorted(wheel.namelist()):
        if any(PurePosixPath(name).match(pattern) for pattern in patterns):
            source = wheel.read(name).decode(errors="replace")
            for function, found in python_kernels(source) if name.endswith(".py") else cuda_functions(source):
                yield f"{name}: {function}", found


def python_kernels(source: str) -> Iterator[tuple[str, set[int]]]:
    """Functions that a decorator makes kernels: `triton.jit`, `cute.kernel` and their like."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any(DECORATORS.search(ast.unparse(each)) for each in node.decorator_list):
            body = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
            yield node.name, fingerprints(python_tokens(body))


def cuda_functions(source: str) -> Iterator[tuple[str, set[int]]]:
    """Functions of CUDA code that run on the device."""
    tokens = list(c_tokens(source))
    at = 0
    while at < len(tokens):
        if tokens[at] in ("__global__", "__device__"):
            end = _end_of_function(tokens, at)
            head = tokens[at : tokens.index("(", at)] if "(" in tokens[at:end] else []
            if end > at + 1 and head:
                yield head[-1].removeprefix("$"), fingerprints(tokens[at:end])
            at = end
        else:
            at += 1


def _end_of_function(tokens: list[str], start: int) -> int:
    """The end of the function that begins here, or of its declaration."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at] == "{") - (tokens[at] == "}")
        if depth == 0 and tokens[at] in (";", "}"):
            return at + 1
    return len(tokens)


def listed(folder: Path) -> Iterator[dict[str, Any]]:
    """The packages with their kernels. A copy of a kernel that came before, or of a part of it, is left out."""
    before: dict[int, set[int]] = {}
    sizes: list[int] = []
    for entry in sources():
        found: dict[str, str] = {}
        with zipfile.ZipFile(fetch(entry["package"], entry["version"], folder)) as wheel:
            for name, prints in kernels(wheel, entry["files"]):
                if len(prints) < LEAST_FINGERPRINTS or _is_copy(prints, before):
                    continue
                for value in prints:
                    before.setdefault(value, set()).add(len(sizes))
                sizes.append(len(prints))
                found[name] = packed(prints)
            yield {"name": entry["package"], "version": str(entry["version"]), "licence": entry["licence"], "kernels": found}
        print(f"{entry['package']} {entry['version']}: {len(found)} kernels")
    print(f"{len(sizes)} kernels, {sum(sizes)} fingerprints")


def _is_copy(prints: set[int], before: dict[int, set[int]]) -> bool:
    counts: dict[int, int] = {}
    for value in prints:
        for kernel in before.get(value, ()):
            counts[kernel] = counts.get(kernel, 0) + 1
    return max(counts.values(), default=0) >= COPY * len(prints)


def copies(folder: Path) -> Iterator[str]:
    """Rows of a table: what altered copies of files hold of the kernels that were taken from them."""
    versions = {entry["package"]: entry["version"] for entry in sources()}
    shares: dict[str, list[float]] = {}
    python = [kernel for kernel in known() if ".py: " in kernel.source]
    for kernel in python[:: len(python) // COPIES]:
        head, file, _ = kernel.source.split(": ")
        package = head.split()[0]
        with zipfile.ZipFile(fetch(package, versions[package], folder)) as wheel:
            source = renamed(wheel.read(file).decode())
        altered = {"other names, numbers and comments": source}
        altered |= {f"and a foreign statement after every {every}": interrupted(source, every) for every in (8, 4, 2)}
        for name, text in altered.items():
            shares.setdefault(name, []).append(len(of_python(text) & kernel.fingerprints) / len(kernel.fingerprints))
    for name, found in shares.items():
        tenth = sorted(found)[len(found) // 10]
        yield f"| {name} | {len(found)} | {min(found):.2f} | {tenth:.2f} | {median(found):.2f} |"


def renamed(source: str) -> str:
    """The same code with other names where they may change, other numbers, and other comments."""
    fixed = {*re.findall(r"\.\s*(\w+)", source), *keyword.kwlist, *dir(builtins)}
    names: dict[str, str] = {}
    changed = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.NAME and text not in fixed:
            text = names.setdefault(text, f"x{len(names)}")
        changed.append((token.type, {tokenize.NUMBER: "7", tokenize.COMMENT: "# other"}.get(token.type, text)))
    return tokenize.untokenize(changed)


def interrupted(source: str, every: int) -> str:
    """The same code with a foreign statement before every so many of its statements."""
    lines = source.split("\n")
    bodies = (
        body
        for node in ast.walk(ast.parse(source))
        for field in ("body", "orelse")
        if isinstance(body := getattr(node, field, None), list)
    )
    plain = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
    places = sorted({(each.lineno, each.col_offset) for body in bodies for each in body if isinstance(each, plain)})
    for line, column in reversed(places[::every]):
        if not lines[line - 1][:column].strip():
            lines.insert(line - 1, f"{' ' * column}other = other * other + other if other else None")
    return "\n".join(lines)


def table(packages: list[dict[str, Any]], copied: Iterable[str]) -> str:
    """The page: what is listed, and what copies and this repository's own files hold of it."""
    lines = [
        "# Well-known kernels, and what solutions hold of them",
        "",
        "Written by `scripts/make_fingerprints.py`. [judge.md](../judge.md#evidence-what-really-ran) says what it is for.",
        "",
        "## The list",
        "",
        f"Fingerprints of runs of {RUN} tokens, one of {WINDOW} kept: {KNOWN.stat().st_size >> 10} KiB, no source.",
        "",
        "| package | version | licence | kernels |",
        "|---|---|---|---|",
        *(f"| {each['name']} | {each['version']} | {each['licence']} | {len(each['kernels'])} |" for each in packages),
        "",
        "## What copies hold",
        "",
        "Whole files of the packages, altered: the share of the kernel that was taken from each.",
        "",
        "| altered by | kernels | least | a tenth is below | median |",
        "|---|---|---|---|---|",
        *copied,
        "",
        "## What this repository's own files hold",
        "",
        "The largest share of a listed kernel in each solution, baseline and submission for tests. None of them is a copy.",
        f"A score records shares from {LEAST_SHARE} on, and suggests a review from {REVIEW_SHARE} on.",
        "",
        "| file | share | kernel |",
        "|---|---|---|",
    ]
    rows = []
    for path in sorted(path for pattern in SUBMISSIONS for path in ROOT.glob(pattern)):
        try:
            found = of_python(path.read_text())
        except SyntaxError:
            continue
        share, kernel = max((len(found & kernel.fingerprints) / len(kernel.fingerprints), kernel.source) for kernel in known())
        rows.append((share, str(path.relative_to(ROOT)), kernel))
    shown = sorted((row for row in rows if row[0] >= LEAST_SHOWN), key=lambda row: (-row[0], row[1]))
    lines += [f"| `{path}` | {share:.3f} | {kernel} |" for share, path, kernel in shown]
    return "\n".join([*lines, "", f"The other {len(rows) - len(shown)} files hold less than {LEAST_SHOWN} of any.", ""])


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="folder that keeps the wheels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.wheels or Path(scratch)
        packages = list(listed(folder))
        data = {"run": RUN, "window": WINDOW, "packages": packages}
        KNOWN.write_bytes(lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9))
        print(f"{KNOWN.relative_to(ROOT)}: {KNOWN.stat().st_size} bytes")
        TABLE.write_text(table(packages, copies(folder)))


if __name__ == "__main__":
    main()
