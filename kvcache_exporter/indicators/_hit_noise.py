"""How far the hit ratio of a window strays while nothing is wrong, learned from the engine itself.

Two things stray. A window holds a few hundred requests of very different length, and each hits or
misses nearly as a whole: that part follows from its tokens. And the mix of requests wanders: that
part is learned, from windows beside the same hours a day later and beside their neighbours, each
contrast squared and without the first part.
"""

from __future__ import annotations

import math

from kvcache_exporter.indicators._slots import Slots

DAY = 96
"""Slots in a day."""
HOUR = 4
WIDTHS = (6, 8, 16, 32)
"""Windows that are looked at, in slots: short ones find large drops soon, long ones small ones."""
MIN_TOKENS = 50_000
REQUEST_TOKENS = 2_000
"""Tokens that hit or miss together: a typical token stands in a prompt of twice the mean length."""
ENOUGH = 6
"""Windows of earlier days, without the last one."""
APART = 2
"""Slots between neighbours, so that what wanders within an hour does not look alike in both."""
PRIOR = 0.05**2
"""Variance of the shortest window before anything is learned, ..."""
PRIOR_WEIGHT = 8.0
"""... worth as much as this many independent contrasts."""
Part = tuple[float, int, int]
"""Weight, begin and end of a window within a contrast."""


def drawn(ratio: float, tokens: float) -> float:
    """Variance of a ratio over so many tokens for the luck of the draw alone."""
    return max(0.02, ratio * (1 - ratio)) * REQUEST_TOKENS / tokens


def wandering(slots: Slots, width: int) -> float:
    """Variance of a window beyond the luck of the draw.

    Each width learns from its own contrasts and begins from what the next shorter one learned, as
    if hours were independent. The last day is left out where enough is known without it: a drift
    in it is no noise.
    """
    variance, shorter = PRIOR, WIDTHS[0]
    for known in WIDTHS[: WIDTHS.index(width) + 1]:
        prior, shorter = variance * shorter / known, known
        days = _days(slots, known, slots.count - DAY)
        if len(days) < ENOUGH:
            days = _days(slots, known, slots.count - known)
        squares = days + _neighbours(slots, known)
        # Windows overlap by half, so that two of them are worth one.
        weight = len(squares) / 2 + PRIOR_WEIGHT
        variance = (max(0.0, sum(squares) / 2) + PRIOR_WEIGHT * prior) / weight
    return variance


def _days(slots: Slots, width: int, end: int) -> list[float]:
    """Windows that end at *end* or before, beside the same hours of the day before."""
    found = []
    for last in range(end, width + DAY - 1, -(width // 2)):
        first = last - width
        usual = (-1.0, max(0, first - DAY - HOUR), last - DAY + HOUR)
        found.append(_square(slots, width, (1.0, first, last), usual))
    return [square for square in found if square is not None]


def _neighbours(slots: Slots, width: int) -> list[float]:
    """Windows beside the mean of those before and after, which a daily rhythm hardly touches."""
    found = []
    lag = width + APART
    for end in range(slots.count - width, 2 * lag + width - 1, -(width // 2)):
        ends = (end, end - lag, end - 2 * lag)
        parts = [(w, e - width, e) for w, e in zip((1.0, -2.0, 1.0), ends, strict=True)]
        found.append(_square(slots, width, *parts))
    return [square for square in found if square is not None]


def _square(slots: Slots, width: int, *parts: Part) -> float | None:
    """Estimate the variance of a window by one contrast, None where too few tokens are known."""
    contrast = luck = scale = 0.0
    ratios = [slots.ratio(begin, end, MIN_TOKENS) for _, begin, end in parts]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(parts):
        return None
    mean = math.fsum(known) / len(known)
    for ratio, (weight, begin, end) in zip(known, parts, strict=True):
        contrast += weight * ratio
        luck += weight**2 * drawn(mean, slots.tokens(begin, end))
        scale += weight**2 * width / (end - begin)
    return (contrast**2 - luck) / scale
