"""Forty and more wrong uses of the command line: exit code 2, one line that names the culprit, and nothing on stdout."""

import json
from typing import NamedTuple

import pytest
from command import ROOT, RUN, Arena, needs_sandbox

KNOWN = ", ".join(sorted(path.parent.name for path in (ROOT / "problems").glob("*/problem.yaml")))
UNNAMED = f"name the problems to check, or --all (known: {KNOWN})"
WRONG_USES: list[tuple[tuple[str, ...], str]] = [
    (("run", "-p", "paged_atention"), "unknown problem 'paged_atention': did you mean 'paged_attention'? (known: paged_att"),
    ((*RUN, "-m", "orcle"), "unknown model 'orcle': did you mean 'oracle'? (known: oracle, "),
    ((*RUN, "-m", "builtin/noop"), "unknown model 'builtin/noop'"),
    (
        (*RUN, "-m", "cheat/exit_zer"),
        "unknown cheat of paged_attention 'exit_zer': did you mean 'exit_zero'? (known: exit_zero, ",
    ),
    ((*RUN, "-m", "replay/x"), "unknown run with stored file writes 'x' (known: none)"),
    ((*RUN, "--hardware", "H20"), "unknown hardware 'H20': did you mean 'h20'? (known: h20, h200, "),
    ((*RUN, "--sandbox", "brap"), "unknown sandbox 'brap'"),
    (("score", "x.py", "-p", "paged"), "unknown problem 'paged'"),
    (("score", "no/such.py", "-p", "paged_attention", "--hardware", "cpu"), "no/such.py: no such file"),
    (("check", "page"), "unknown problem 'page'"),
    (("check",), UNNAMED),
    (
        ("check", "--all", "paged_attention"),
        UNNAMED,
    ),
    (("sandbox", "-p", "paged", "ls"), "unknown problem 'paged'"),
    (("sandbox", "--kind", "worker", "-p", "paged_attention", "ls"), "a worker has no workspace"),
    (("sandbox", "--kund", "agent", "ls"), "No such option"),
    (("sandbox", "--kind", "worker", "--network", "open", "ls"), "a submission runs without a network"),
    ((*RUN, "--network", "opn"), "Invalid value for '--network': 'opn' is not one of 'none', 'allow', 'open'"),
    ((*RUN, "--network", "allow"), "--network allow needs at least one --allow HOST"),
    ((*RUN, "--allow", "mirror.test"), "--allow and --allow-private mean nothing with --network none: give --network allow"),
    (
        ("sandbox", "--network", "allow", "--allow", "1.2.3.4", "ls"),
        "--allow '1.2.3.4': give a host name such as mirror.test",
    ),
    (("show", "x"), "unknown run 'x' (known: none)"),
    (("open", "x"), "unknown run 'x' (known: none)"),
    (("curve", "x"), "unknown run 'x' (known: none)"),
    (("review", "--by", "A", "--json"), "--by asks questions: leave out --json"),
    (("site", "--runs", "some"), "Invalid value for '--runs': 'some' is not one of 'all', 'public', 'none'"),
    (("show", "../tree/x"), "unknown run '../tree/x' (known: none)"),
    (("annotate", "x", "-v", "clean", "-s", "y"), "unknown run 'x' (known: none)"),
    (("annotate", "x", "-v", "nice", "-s", "y"), "Invalid value for '--verdict' / '-v': 'nice' is not one of 'clean', 'rub"),
    (
        ("list", "things"),
        "Invalid value for 'WHAT': 'things' is not one of 'problems', 'models', 'harnesses', 'routes', 'h",
    ),
    (("list",), "Missing argument 'WHAT'"),
    (("run",), "Missing option '--problem' / '-p'. (`arena run -h` shows how)"),
    ((*RUN, "--trials", "0"), "Invalid value for '--trials' / '-n': 0 is not in the range x>=1."),
    ((*RUN, "extra"), "Got unexpected extra argument (extra)"),
    (("schema", "prolbem"), "Invalid value for '[RECORD]': 'prolbem' is not one of 'problem', "),
    (("runn",), "unknown command 'runn': did you mean 'run'? (known: run, "),
    (("--nope",), "No such option"),
    ((*RUN, "--budget", "45"), "--budget '45': give its unit, 45m for minutes or 45s for seconds"),
    ((*RUN, "--budget", "0m"), "--budget '0m': give a time above zero such as 45m, 90s or 1.5h"),
    ((*RUN, "--patience", "soon"), "--patience 'soon': give a time above zero such as 45m, 90s or 1.5h"),
    ((*RUN, "--max-requests", "0"), "Invalid value for '--max-requests': 0 is not in the range x>=1."),
    ((*RUN, "--max-cost", "free"), "Invalid value for '--max-cost': 'free' is not a valid float range."),
    ((*RUN, "--gpu", "-1"), "Invalid value for '--gpu': -1 is not in the range x>=0."),
    ((*RUN, "--progress", "xml"), "Invalid value for '--progress': 'xml' is not one of 'text', 'jsonl'."),
    ((*RUN, "--effort", "high"), "harness builtin takes no effort (none of its texts has {effort}): leave --effort out"),
    (("run", "-p", "gemm", "--dry-run"), "unknown problem 'gemm': did you mean"),
    (("judge", "x"), "unknown run 'x' (known: none)"),
    (("install", "clade"), "unknown harness with a CLI 'clade': did you mean 'claude'?"),
    (("compare", "a"), "Missing argument 'B'"),
    (("clean", "--days", "-1"), "Invalid value for '--days': -1 is not in the range x>=0."),
    (("completion", "tcsh"), "Invalid value for '{bash|zsh|fish}': 'tcsh' is not one of 'bash', 'zsh', 'fish'."),
    (("sweep", "no/such.yaml"), "no/such.yaml is neither a file nor a sweep: there is none in "),
    (("sweep",), "give a file, the name of a sweep, or --model, --problem, --name"),
    (("calibrate", "--hardware", "h10"), "unknown hardware 'h10': did you mean 'h100-"),
    (("-q", "-v", "list", "runs"), "--verbose and --quiet exclude each other"),
    (("--log-file", "/no/such/folder/log.txt", "list", "runs"), "--log-file /no/such/folder/log.txt: No such file or directory"),
    (("doctor", "--model", "opsu"), "unknown model 'opsu'"),
]
EVERY = """
import contextlib, io, json, sys
from arena.cli import main

for words in json.load(sys.stdin):
    sys.argv[1:] = words
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    out.flush()
    print(json.dumps([code, out.buffer.getvalue().decode(), err.getvalue()]))
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def ended(shared: Arena) -> list[Ended]:
    """How each use ended, all in one process: starting one takes longer than all else that a refusal does."""
    with shared.started_python(EVERY) as process:
        out, err = process.communicate(json.dumps([words for words, _ in WRONG_USES]))
    assert process.returncode == 0, err
    return [Ended(*json.loads(line)) for line in out.splitlines()]


@needs_sandbox
@pytest.mark.parametrize("number", range(len(WRONG_USES)), ids=lambda number: " ".join(WRONG_USES[number][0]))
def test_wrong_use_names_the_culprit(number: int, ended: list[Ended], shared: Arena) -> None:
    message, found = WRONG_USES[number][1], ended[number]
    assert (found.code, found.out) == (2, "")
    assert found.err.removeprefix("arena: ").startswith(message)
    assert found.err.startswith("arena: ") and found.err.count("\n") == 1, "one line"
    assert not shared.runs


def test_there_are_forty_wrong_uses() -> None:
    assert len({words for words, _ in WRONG_USES}) >= 40
