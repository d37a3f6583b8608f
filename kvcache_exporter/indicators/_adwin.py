"""ADWIN: is there a cut of a series whose two sides differ more than their spread allows?

Bifet and Gavalda, "Learning from time-changing data with adaptive windowing", 2007, in its normal
form: with n values, harmonic mean m of the two lengths, variance v and confidence delta, the bound
is sqrt(2/m v ln(2 ln(n)/delta)). Two departures, because traffic is no independent sample: v is the
variance within the two sides, and it is multiplied by (1+r)/(1-r) for a lag-1 correlation of r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

from kvcache_exporter.history.hits import SLOT_SECONDS
from kvcache_exporter.indicators._slots import Slots

DELTA = 0.002
POINTS = 0.12
SHARE = 0.2
"""Without a day of history a daily rhythm looks like a drift, so a drop must be larger here."""
MIN_SIDE = 8
"""Two hours, so that an odd hour is no drift."""
MOST_CORRELATED = 0.9


@dataclass(frozen=True, slots=True)
class Cut:
    """Mean ratio before and after, and how long the second part has lasted."""

    before: float
    after: float
    hours: float


def first_cut(slots: Slots, least_tokens: float) -> Cut | None:
    """Find the cut with the clearest fall, None where every fall is within the noise."""
    pieces = _pieces(slots, least_tokens)
    ratios = [ratio for _, ratio in pieces]
    if len(ratios) < 2 * MIN_SIDE:
        return None
    at = max(range(MIN_SIDE, len(ratios) - MIN_SIDE + 1), key=_Clearness(ratios))
    before, after = fmean(ratios[:at]), fmean(ratios[at:])
    fall, least = before - after, max(POINTS, SHARE * before)
    if fall < least or before - ratios[-1] < least / 2 or fall < _bound(ratios, at):
        return None
    return Cut(before, after, (slots.count - pieces[at - 1][0]) * SLOT_SECONDS / 3600)


def _pieces(slots: Slots, least_tokens: float) -> list[tuple[int, float]]:
    """End slot and ratio of consecutive windows of equal volume."""
    pieces, begin = [], 0
    for end in range(1, slots.count + 1):
        ratio = slots.ratio(begin, end, least_tokens)
        if ratio is not None:
            pieces.append((end, ratio))
            begin = end
    return pieces


class _Clearness:
    """Fall of the mean at a cut, in units of what equal noise allows for its two lengths."""

    def __init__(self, ratios: Sequence[float]) -> None:
        self.sums = list(accumulate(ratios, initial=0.0))

    def __call__(self, at: int) -> float:
        n, sums = len(self.sums) - 1, self.sums
        fall = sums[at] / at - (sums[n] - sums[at]) / (n - at)
        return fall * math.sqrt(at * (n - at))


def _bound(ratios: Sequence[float], at: int) -> float:
    n = len(ratios)
    means = fmean(ratios[:at]), fmean(ratios[at:])
    rest = [ratio - means[i >= at] for i, ratio in enumerate(ratios)]
    squares = sum(x * x for x in rest)
    if squares == 0:
        return 0.0
    r = sum(a * b for a, b in pairwise(rest)) / squares
    r = min(MOST_CORRELATED, max(0.0, r))
    variance = squares / n * (1 + r) / (1 - r)
    inverse = 1 / at + 1 / (n - at)
    return math.sqrt(2 * inverse * variance * math.log(2 * math.log(n) / DELTA))
