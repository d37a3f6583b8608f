"""Is there a break after which an engine uses more blocks than its load explains?

The mean of used blocks in ten minutes is, to a good approximation, a constant plus so much for each
running request, each block of prompt and each block of output it carries (residual about half a
percent of the pool, uncorrelated from block to block). Orphaned blocks come on top from some moment
on: at once (a step) or steadily (a ramp). The best moment is looked for over two and a half days,
so that the healthy past serves as baseline; load and request sizes explain themselves.
"""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

from kvcache_exporter.history import History
from kvcache_exporter.history.blocks import trend_columns
from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.indicators._explain import explain, is_prefill
from kvcache_exporter.indicators._objection import CHANGED, FULL_SHARE, Rows, objection
from kvcache_exporter.judge_settings import JudgeSettings

FEWEST_AFTER = 3
"""Fewest rows that a break must have lasted."""


class Break(NamedTuple):
    """The likeliest moment at which blocks began to vanish, and what speaks for and against it."""

    kind: str
    """"step" or "ramp"."""
    since: float
    """Unix seconds."""
    rise: float
    """Blocks gone by now."""
    slope: float
    """Blocks an hour, 0 for a step."""
    error: float
    """Standard error of the rise (step) or of the slope (ramp)."""
    score: float
    """Rise over its standard error, correlation of neighbouring blocks allowed for."""
    objection: str | None
    """Why this is no evidence, None when nothing speaks against it."""
    load: float
    """Blocks that requests need at a busy moment (95 % of the time they need less)."""

    @property
    def slope_interval(self) -> tuple[float, float]:
        """95 % interval of the slope, blocks an hour."""
        return self.slope - 1.96 * self.error, self.slope + 1.96 * self.error


def search(history: History, settings: JudgeSettings) -> Break | None:
    """The likeliest break in all that is remembered of this epoch; None before there is enough."""
    if not history.blocks.last("scrapes") > 0:
        return None
    together = history.blocks_together if is_prefill(history) else 1
    rows = Rows(*trend_columns(history.blocks, history.hours, together))
    pool = history.known.pool_blocks if history.known else None
    if len(rows.end) < settings.trend_blocks or pool is None:
        return None
    found = _search(rows, pool, history, settings)
    while found is not None and found.objection == CHANGED and found.score >= settings.trend_score:
        first = bisect(rows.end, found.since - history.origin)
        rows = Rows(*(column[first:] for column in rows))
        if len(rows.end) < 2 * settings.trend_blocks:
            break
        again = _search(rows, pool, history, settings)
        if again is None:
            break
        found = again
    return found


def _search(rows: Rows, pool: int, history: History, settings: JudgeSettings) -> Break | None:
    """The likeliest break among these rows, rather one that nothing speaks against."""
    model = explain(rows, history)
    if model.freedom < 2:
        return None
    clean = history.idle.clean_time - history.origin - settings.block_seconds
    hours = [(end - rows.end[-1]) / 3600.0 for end in rows.end]
    steps = regression.scan_steps(model)
    if max(steps.score) < settings.trend_look_score:
        return None
    ramps = regression.scan_ramps(model, hours)
    found = []
    for kind, scan, before, after in (("step", steps, 6, FEWEST_AFTER), ("ramp", ramps, 4, 4)):
        index = _best(scan, _alike(rows, history), rows.end, clean, before, after, settings)
        if index is not None:
            found.append(_judge(kind, index, scan, model, rows, hours, pool, history, settings))
    return max(found, key=lambda b: (b.objection is None, b.score), default=None)


def _alike(rows: Rows, history: History) -> list[int]:
    """Rows so far that are full, or have room, as the newest: a full pool has a model of its own.

    Blocks that are held fill a pool without changing what their number goes with.
    """
    if is_prefill(history):
        return list(range(1, len(rows.end) + 1))
    full = rows.saturated[-1] >= FULL_SHARE
    return list(accumulate((share >= FULL_SHARE) == full for share in rows.saturated))


def _best(
    scan: regression.Scan,
    alike: list[int],
    end: list[float],
    clean: float,
    before: int,
    after: int,
    settings: JudgeSettings,
) -> int | None:
    """Row with the highest score among those with enough rows like the newest on both sides."""
    candidates = [
        index
        for index, score in enumerate(scan.score)
        if score >= settings.trend_look_score
        and (alike[index] >= before or (index == 0 and before == 4))
        and alike[-1] - alike[index] >= after
        and end[index] >= clean
        and scan.own[index] > settings.trend_own_ratio
    ]
    return max(candidates, key=scan.score.__getitem__, default=None)


def _judge(
    kind: str,
    index: int,
    scan: regression.Scan,
    model: regression.Fit,
    rows: Rows,
    hours: list[float],
    pool: int,
    history: History,
    settings: JudgeSettings,
) -> Break:
    size, score = scan.size[index], scan.score[index]
    start = hours[index]
    shape = [float(h > start) if kind == "step" else max(0.0, h - start) for h in hours]
    rho = min(0.9, max(0.0, regression.lag1(model, shape, size)))
    corrected = _normal(score * math.sqrt((1 - rho) / (1 + rho)), max(1, model.freedom))
    rise = size if kind == "step" else -size * start
    return Break(
        kind,
        history.origin + rows.end[index],
        rise,
        0.0 if kind == "step" else size,
        abs(size / corrected) if corrected else math.inf,
        corrected,
        objection(kind, index, rise, scan.own[index], rows, pool, settings),
        _busy_load([used - size * part for used, part in zip(rows.used, shape, strict=True)]),
    )


def _busy_load(load: list[float]) -> float:
    return max(0.0, sorted(load)[int(0.95 * (len(load) - 1))])


def _normal(score: float, freedom: int) -> float:
    """Normal score as unlikely as this Student t (Wallace's approximation): few rows prove less."""
    size = math.sqrt(freedom * math.log1p(score * score / freedom))
    return math.copysign(size * (1.0 - 0.75 / (freedom + 0.75)), score)
