"""Fuzz the judge's end of the reply channel. One small scenario for each outcome is kept in tests/judge/corpus/.

From the checkout: `PYTHONPATH=.:tests python scripts/fuzz_replies.py --minutes 30`. A scenario that breaks a promise is kept as
failure.json, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import time

import replies
from hypothesis import HealthCheck, given, seed, settings

ROUND = 500
"""Scenarios between two looks at the clock."""


def slug(outcome: str) -> str:
    """A file name for an outcome."""
    return "-".join(re.findall(r"[a-z]{2,}", outcome.lower())[:14])


def main() -> int:
    """Play scenarios until the time is over; print the outcomes and how often each came up."""
    parser = argparse.ArgumentParser(description="Fuzz the judge's end of the reply channel.")
    parser.add_argument("--minutes", type=float, default=30.0)
    end_s = time.monotonic() + 60 * parser.parse_args().minutes
    replies.CORPUS.mkdir(exist_ok=True)
    counts: dict[str, int] = {}
    last: list[replies.Scenario] = []

    def one(scenario: replies.Scenario) -> None:
        last[:] = [scenario]
        outcome = replies.play(scenario)
        counts[outcome] = counts.get(outcome, 0) + 1
        kept = replies.CORPUS / f"{slug(outcome)}.json"
        if not kept.exists() or len(scenario.text()) + 1 < kept.stat().st_size:
            kept.write_text(scenario.text() + "\n")

    options = settings(
        max_examples=ROUND, deadline=None, database=None, derandomize=False, suppress_health_check=list(HealthCheck)
    )
    try:
        while time.monotonic() < end_s:
            seed(secrets.randbits(64))(options(given(replies.scenarios())(one)))()
    except BaseException:
        if last and time.monotonic() < end_s:
            (replies.CORPUS / "failure.json").write_text(last[0].text() + "\n")
        raise
    finally:
        for outcome, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:8} {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
