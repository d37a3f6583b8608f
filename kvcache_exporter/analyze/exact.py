"""A usage ratio written with few digits, put back on the exact fraction it was rounded from.

A scrape prints ``used / (num_gpu_blocks - 1)`` as a full double, and exact block counts are
recovered from that. A table often keeps four or six decimals of it; where the number of blocks
stands beside it, the fraction can be restored whenever its neighbours are further away than the
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FULL_DECIMALS = 12
"""From here on a ratio counts as unrounded."""


@dataclass(frozen=True, slots=True)
class Unrounding:
    """How the ratios of one table were rounded; ``less`` is 1 where the null block is left out."""

    decimals: int
    less: int

    @classmethod
    def of(cls, ratios: Sequence[str], blocks: Sequence[float | None]) -> Unrounding:
        """Learn from all rows: the most decimals in use, and the denominator that fits best."""
        decimals = max((_decimals(text) for text in ratios), default=FULL_DECIMALS)
        pairs = [
            (float(text), int(size))
            for text, size in zip(ratios, blocks, strict=True)
            if size is not None and size > 1 and _decimals(text) > 0
        ]
        misses = {
            less: sum(not _near(ratio, size - less, decimals) for ratio, size in pairs)
            for less in (1, 0)
        }
        return cls(decimals, less=1 if misses[1] <= misses[0] else 0)

    def restore(self, ratio: float, blocks: float | None) -> float:
        """Return the exact fraction, or *ratio* itself where it cannot be told."""
        if blocks is None or blocks <= 1 or self.decimals >= FULL_DECIMALS:
            return ratio
        size = int(blocks) - self.less
        return round(ratio * size) / size if _near(ratio, size, self.decimals) else ratio


def _near(ratio: float, size: int, decimals: int) -> bool:
    return abs(round(ratio * size) / size - ratio) <= 0.5000001 * 10.0**-decimals


def _decimals(text: str) -> int:
    mantissa, _, exponent = text.strip().lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    shift = int(exponent) if exponent.lstrip("+-").isdigit() else 0
    return max(0, digits - shift)
