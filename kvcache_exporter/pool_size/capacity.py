"""From the usage ratio to exact blocks: which denominator makes ``usage * denominator`` whole.

vLLM prints ``usage`` as a full double, so with the right denominator the product is an integer to
1e-9 and with a wrong one it is not. Three conventions exist (read in vLLM's block pool):

* V0: ``1 - free/N``; no null block, N blocks can be used;
* V1 up to 0.10.1.1: ``1 - free/N`` with the null block never free, so an idle engine reads 1/N;
* V1 since 0.10.2: ``1 - free/(N-1)``, exactly 0 when idle.

The N on the page is the sum over all data-parallel engines, or "None", or stale in several
releases. Where no N fits, the denominator is recovered from the ratio itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

MAX_BLOCKS = 4_000_000
"""Largest denominator looked for; two doubles k/d with d below this differ by more than 6e-14."""
AGREEING_VALUES = 10
"""Distinct ratios that must agree: a missed factor of 2 has odds of 1 in 1,024."""
_ROUNDING = 5e-16
"""``1 - free/d`` in doubles is off by at most two roundings of 2^-53 each."""


class Dialect(Enum):
    """How the usage gauge of a page counts, as far as its names tell."""

    V0 = "v0"
    NULL_COUNTED = "null block counted"
    NULL_FREE = "null block not counted"
    EITHER = "either V1 convention"


_CONVENTIONS: dict[Dialect, tuple[tuple[int, bool | None], ...]] = {
    Dialect.V0: ((0, False),),
    Dialect.NULL_COUNTED: ((0, True),),
    Dialect.EITHER: ((1, False), (0, True)),
    Dialect.NULL_FREE: ((1, False), (0, None)),
}
"""Blocks to take off the size for the denominator, and whether the null block counts as used."""
_RECOVERED_NULL = {
    Dialect.V0: False,
    Dialect.NULL_COUNTED: True,
    Dialect.NULL_FREE: False,
    Dialect.EITHER: None,
}


@dataclass(frozen=True, slots=True)
class Claims:
    """What a page says about the pool of one engine."""

    label_blocks: int | None = None
    token_blocks: int | None = None
    """``kv_cache_size_tokens / block_size``: never summed over engines, not for hybrid models."""
    configured_blocks: int | None = None
    counted_over: tuple[int, ...] = (1,)
    """Over how many engines the label may be summed, likeliest first; 1 = it is this engine's."""
    dialect: Dialect = Dialect.NULL_FREE


@dataclass(frozen=True, slots=True)
class Pool:
    """What is known of one engine's pool so far; carried from page to page."""

    claims: Claims | None = None
    denominator: int | None = None
    null_counted: bool | None = None
    proven: bool = False
    recovering: int = 1
    """Least common multiple of the denominators of the ratios seen."""
    agreed: int = 0
    last_usage: float = 0.0

    @property
    def blocks(self) -> int | None:
        """Blocks that can be used."""
        if self.denominator is None or self._undecided:
            return None
        return self.denominator - (1 if self.null_counted and _counts_null(self.claims) else 0)

    def used(self, usage: float) -> int | None:
        """Blocks in use at *usage*; None when the ratio does not fit this pool."""
        if self.denominator is None or self._undecided:
            return None
        if not _whole(usage, self.denominator) and not _coarse(usage):
            return None
        return max(0, round(usage * self.denominator) - (1 if self.null_counted else 0))

    @property
    def _undecided(self) -> bool:
        """Whether both V1 conventions are still possible: an idle moment will tell."""
        return self.null_counted is None and _counts_null(self.claims)


def update(pool: Pool, claims: Claims, usage: float, idle: bool) -> Pool:
    """Return what is known after one more reading of *usage* (0..1) beside *claims*."""
    if claims != pool.claims:
        pool = Pool(claims=claims)
    fits = pool.denominator is not None and _whole(usage, pool.denominator)
    if not (pool.proven and fits):
        pool = _prove(pool, claims, usage)
    return _learn_null(pool, claims, usage, idle)


def _prove(pool: Pool, claims: Claims, usage: float) -> Pool:
    candidates = _candidates(claims)
    telling = 0.0 < usage < 1.0
    for denominator, null_counted in candidates:
        # A simple ratio such as 1/2 fits many sizes: those before it must have fitted too.
        if telling and _whole(usage, denominator) and denominator % pool.recovering == 0:
            return replace(pool, denominator=denominator, null_counted=null_counted, proven=True)
    if telling and not _coarse(usage):
        return _recover(pool, claims, usage)
    if pool.denominator is None and candidates:
        # An empty or full pool fits every size: take the likeliest until a ratio tells.
        return replace(pool, denominator=candidates[0][0], null_counted=candidates[0][1])
    return pool


def _candidates(claims: Claims) -> list[tuple[int, bool | None]]:
    """Denominators worth trying, likeliest first, and whether they count the null block."""
    label = claims.label_blocks
    shares = [label // engines for engines in claims.counted_over] if label else []
    # For hybrid models tokens divided by block size is no number of blocks, so it comes last.
    sizes = [claims.configured_blocks, *shares, claims.token_blocks]
    known = [size for size in sizes if size is not None and size > 1]
    conventions = _CONVENTIONS[claims.dialect]
    return [(size - less, counted) for less, counted in conventions for size in known]


def _recover(pool: Pool, claims: Claims, usage: float) -> Pool:
    """Collect the denominator of *usage* itself: several ratios k/d give d as their common one."""
    if usage == pool.last_usage:
        return pool
    fraction = Fraction(usage).limit_denominator(MAX_BLOCKS)
    common = math.lcm(pool.recovering, fraction.denominator)
    if abs(float(fraction) - usage) > _ROUNDING or common > MAX_BLOCKS:
        return Pool(claims=claims, last_usage=usage)
    agreed = pool.agreed + 1 if common == pool.recovering else 0
    proven = agreed >= AGREEING_VALUES
    return Pool(
        claims=claims,
        denominator=common if proven else None,
        null_counted=_RECOVERED_NULL[claims.dialect] if proven else None,
        proven=proven,
        recovering=common,
        agreed=agreed,
        last_usage=usage,
    )


def _learn_null(pool: Pool, claims: Claims, usage: float, idle: bool) -> Pool:
    """Where names do not tell, the first idle reading of exactly 1 block is the null block.

    A reading of 0 settles that it is not counted, except that a gauge which counts it also reads 0
    before the engine's first step.
    """
    if pool.denominator is None or pool.null_counted is False:
        return pool
    if pool.null_counted and _counts_null(claims):
        return pool
    count = round(usage * pool.denominator)
    if count == 0:
        return replace(pool, null_counted=False)
    if pool.null_counted is None and idle:
        return replace(pool, null_counted=count == 1)
    return pool


def _counts_null(claims: Claims | None) -> bool:
    return claims is not None and claims.dialect in (Dialect.NULL_COUNTED, Dialect.EITHER)


def _whole(usage: float, denominator: int) -> bool:
    """Whether *usage* is a fraction of *denominator*, and of no other one next to it."""
    product = usage * denominator
    return abs(product - round(product)) < min(1e-6, 0.1 / denominator)


def _coarse(usage: float) -> bool:
    """Whether the ratio was rounded for people (a log line, a table) and so cannot be whole."""
    return usage == round(usage, 4)
