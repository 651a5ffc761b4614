"""Says how much of the session is left: `python time_left.py`. It reads TIME, beside this file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> int:
    """Print one line."""
    told = json.loads((Path(__file__).resolve().parent / "TIME").read_text())
    left_s = max(0, round(told["ends_at"] - time.time()))
    print(f"{left_s // 60} min {left_s % 60} s left of {told['budget_s'] / 60:g} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
