"""ADWIN: is there a cut of a series whose two sides differ more than their spread allows?

Bifet and Gavalda, "Learning from time-changing data with adaptive windowing", 2007, in its normal
form: with harmonic mean m of the two lengths, variance v and confidence delta, the bound is
sqrt(2/m v ln(2 ln(n)/delta)). Their further term 2/(3m) ln(...) is for values that may be anything
in 0..1; here each value is an average over hundreds of requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, pvariance

from kvcache_exporter.indicators._slots import SLOT_SECONDS, Slots

DELTA = 0.002
POINTS = 0.12
SHARE = 0.2
"""Without a day of history a daily rhythm looks like a drift, so a drop must be larger here."""
MIN_SIDE = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """Mean ratio before and after, and how long the second part has lasted."""

    before: float
    after: float
    hours: float


def first_cut(slots: Slots, least_tokens: float) -> Cut | None:
    """Find the cut with the clearest fall, None where every fall is within the noise."""
    pieces = _pieces(slots, least_tokens / 2)
    if len(pieces) < 2 * MIN_SIDE:
        return None
    ratios = [ratio for _, ratio in pieces]
    at = _clearest(ratios)
    if at is None:
        return None
    before, after = fmean(ratios[:at]), fmean(ratios[at:])
    if before - after < max(POINTS, SHARE * before) or before - ratios[-1] < SHARE * before:
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


def _clearest(ratios: Sequence[float]) -> int | None:
    n, sums, variance = len(ratios), [0.0, *accumulate(ratios)], pvariance(ratios)
    confidence = math.log(2 * math.log(n) / DELTA)
    best, where = 0.0, None
    for at in range(MIN_SIDE, n - MIN_SIDE + 1):
        inverse = 1 / at + 1 / (n - at)
        bound = math.sqrt(2 * inverse * variance * confidence)
        excess = sums[at] / at - (sums[n] - sums[at]) / (n - at) - bound
        if excess > best:
            best, where = excess, at
    return where
