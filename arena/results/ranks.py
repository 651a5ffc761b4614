"""Ranks as intervals, and groups, of rows that measure the same: what the noise of their trials lets anybody say.

Two decisions, each wrong somewhere on about one board in twenty at most (docs/statistics.md has both measured):

    pairs    Holm's procedure over a test of every pair. A row is certainly worse than those it is then apart from.
    groups   A line between two rows is drawn where every row above is apart from every row below, each pair by the same test
             on one side at 5 % over the number of rows. A false line takes two rows that are equal, or neighbours in truth,
             and come out that far the wrong way round. k rows have about k such pairs.

The test takes the variance of trials that are exchanged within their problems (`gains.apart`). Welch's takes three that passed
and three that failed for a problem without noise: where 12 equal agents pass one problem half of the time, it told some apart on
62 % of boards.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean

from arena.results.board import Rank
from arena.results.gains import Mean, Samples, apart
from arena.results.statistics import LEVEL


def ranks(rows: Sequence[Samples]) -> list[Rank]:
    """The rank of each row. All have the same problems, with two trials of each at least."""
    means = [fmean(map(fmean, row)) for row in rows]
    order = sorted(range(len(rows)), key=lambda each: (-means[each], each))
    tails = {(a, b): tail(apart(rows[a], rows[b])) for place, a in enumerate(order) for b in order[place + 1 :]}
    differ = {pair for pair, p in adjusted({pair: 2 * p for pair, p in tails.items()}).items() if p < 1 - LEVEL}
    level = (1 - LEVEL) / len(rows)
    lines = [
        place
        for place in range(1, len(order))
        if all(tails[above, below] < level for above in order[:place] for below in order[place:])
    ]
    bounds = [0, *lines, len(order)]
    found = {}
    for group, (first, end) in enumerate(itertools.pairwise(bounds), start=1):
        for row in order[first:end]:
            better = sum((other, row) in differ for other in order)
            worse = sum((row, other) in differ for other in order)
            found[row] = Rank(best=1 + max(better, first), worst=min(len(order) - worse, end), of=len(order), group=group)
    return [found[row] for row in range(len(rows))]


def tail(difference: Mean) -> float:
    """The chance of a difference at least as large where the true one is 0; 1/2 where it is 0 or its error is unknown."""
    from scipy.special import stdtr  # Student's distribution; scipy.stats takes half a second to import

    if not difference.error or not difference.value:
        return 0.5
    return float(stdtr(difference.freedom, -difference.value / difference.error))


def adjusted(chances: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Holm's p of each pair: below 5 % in none of the pairs that are equal, but for one board in twenty."""
    found, least = {}, 0.0
    for place, (pair, p) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(chances) - place)))
        found[pair] = least
    return found
