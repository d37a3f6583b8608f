"""How far the hit ratio of a window strays while nothing is wrong, learned from the engine itself.

Two things stray. A window holds a few hundred requests of very different length, and each hits or
misses nearly as a whole: that part follows from its tokens. And the mix of requests wanders: that
part is learned, from windows beside the same hours a day later and beside their neighbours, each
contrast squared and without the first part.
"""

from __future__ import annotations

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


class Wandering:
    """Variance of windows beyond the luck of the draw, learned when first asked for.

    Each width learns from its own contrasts and begins from what the next shorter one learned, as
    if hours were independent.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._known: dict[int, float] = {}

    def variance(self, width: int) -> float:
        """Variance of the ratio of such a window."""
        if width not in self._known:
            at = WIDTHS.index(width)
            shorter = WIDTHS[at - 1] if at else width
            prior = self.variance(shorter) * shorter / width if at else PRIOR
            self._known[width] = _learned(self._slots, width, prior)
        return self._known[width]


def _learned(slots: Slots, width: int, prior: float) -> float:
    """Weigh what is known; of days the last one only if need be: a drift in it is no noise."""
    days = _days(slots, width, slots.count - DAY)
    if len(days) < ENOUGH:
        days = _days(slots, width, slots.count - width)
    squares = days + _neighbours(slots, width)
    # Windows overlap by half, so that two of them are worth one.
    weight = len(squares) / 2 + PRIOR_WEIGHT
    return (max(0.0, sum(squares) / 2) + PRIOR_WEIGHT * prior) / weight


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
    contrast = luck = scale = total = 0.0
    for weight, begin, end in parts:
        hits, tokens = slots.sums(begin, end)
        if tokens < MIN_TOKENS:
            return None
        ratio, square = hits / tokens, weight * weight
        total += ratio
        contrast += weight * ratio
        luck += square / tokens
        scale += square * width / (end - begin)
    return (contrast * contrast - drawn(total / len(parts), 1.0) * luck) / scale
