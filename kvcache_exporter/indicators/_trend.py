"""Is there a break after which an engine uses more blocks than its load explains?

The mean of used blocks in ten minutes is, to a good approximation, a constant plus so much for each
running request, each block of prompt and each block of output it carries (residual about half a
percent of the pool, uncorrelated from block to block). Orphaned blocks come on top from some moment
on: at once (a step) or steadily (a ramp). The best moment is looked for over up to three days, so
the whole healthy past serves as baseline; load and request sizes explain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kvcache_exporter.blocks import trend_columns
from kvcache_exporter.history import History
from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.judge_settings import JudgeSettings

PROMPT_AND_OUTPUT = 0.9
"""A request met at a random moment has produced half its output, but long ones are met more often:
0.9 of the mean output for lengths with a log-normal spread of 0.8."""


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


class Rows(NamedTuple):
    """Evidence rows, column by column (those of TREND_COLUMNS), oldest first."""

    end: list[float]
    scrapes: list[float]
    used: list[float]
    running: list[float]
    prompt_load: list[float]
    output_load: list[float]
    finished_load: list[float]
    saturated: list[float]
    headroom: list[float]
    hits: list[float]
    queries: list[float]


def find_break(history: History, settings: JudgeSettings) -> Break | None:
    """The likeliest break of this epoch; None before there are enough blocks. Once per block."""
    key = (history.epoch, history.blocks.total, history.idle.clean_time)
    known = history.memo.get("break")
    if known is None or known[0] != key:
        known = history.memo["break"] = (key, _find_break(history, settings))
    return known[1]  # type: ignore[return-value]


def _find_break(history: History, settings: JudgeSettings) -> Break | None:
    if not history.blocks.last("scrapes") > 0:
        return None
    rows = Rows(*trend_columns(history.blocks, history.hours))
    pool = history.known.pool_blocks if history.known else None
    if len(rows.end) < settings.trend_blocks or pool is None:
        return None
    model = _explain(rows, bool(history.hold_seconds))
    if model.freedom < 2:
        return None
    clean = history.idle.clean_time - history.origin - settings.block_seconds
    hours = [(end - rows.end[-1]) / 3600.0 for end in rows.end]
    found = []
    for kind, scan, before, after in (
        ("step", regression.scan_steps(model), 6, 3),
        ("ramp", regression.scan_ramps(model, hours), 4, 4),
    ):
        index = _best(scan, rows.end, clean, before, after, settings.trend_own_ratio)
        if index is not None:
            found.append(_judge(kind, index, scan, model, rows, hours, pool, history, settings))
    if not found:
        return None
    return max(found, key=lambda b: (b.objection is None, b.score))


def _explain(rows: Rows, holds: bool) -> regression.Fit:
    """Explain used blocks by load; heavier load and fewer scrapes make a row less certain."""
    columns = [[1.0] * len(rows.end), rows.running, rows.prompt_load, rows.output_load]
    spread = [running + 2.0 for running in rows.running]
    if holds:
        columns.append(rows.finished_load)
        spread = [s + 0.02 * f for s, f in zip(spread, rows.finished_load, strict=True)]
    full = [1.0 if share >= 0.2 else 0.0 for share in rows.saturated]
    if 0.0 < sum(full) < len(full):
        columns.append(full)
    weights = [math.sqrt(n / s) for n, s in zip(rows.scrapes, spread, strict=True)]
    return regression.fit(columns, rows.used, weights)


def _best(
    scan: regression.Scan,
    ends: Sequence[float],
    clean: float,
    before: int,
    after: int,
    own_ratio: float,
) -> int | None:
    """Row with the highest score among those with enough rows on both sides."""
    candidates = [
        index
        for index in range(len(ends) - after)
        if (index + 1 >= before or (index == 0 and before == 4))
        and ends[index] >= clean
        and scan.own[index] > own_ratio
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
    corrected = score * math.sqrt((1 - rho) / (1 + rho))
    rise = size if kind == "step" else -size * start
    return Break(
        kind,
        history.origin + rows.end[index],
        rise,
        0.0 if kind == "step" else size,
        abs(size / corrected) if corrected else math.inf,
        corrected,
        _objection(kind, index, rise, scan.own[index], rows, pool, settings),
        _busy_load([used - size * part for used, part in zip(rows.used, shape, strict=True)]),
    )


def _busy_load(load: list[float]) -> float:
    return max(0.0, sorted(load)[int(0.95 * (len(load) - 1))])


def _objection(
    kind: str,
    index: int,
    rise: float,
    own: float,
    rows: Rows,
    pool: int,
    settings: JudgeSettings,
) -> str | None:
    full = rows.saturated[-1] >= 0.5
    least = settings.trend_full_ratio if full else settings.trend_ratio
    if rise <= max(least * pool, settings.trend_least_blocks):
        return "too small to tell from noise"
    headroom = min(rows.headroom[-4:])
    if rise >= headroom + settings.trend_ratio * pool:
        return f"only {headroom:.0f} blocks were without a request at some moment"
    first = index + 1 if kind == "step" else (index + len(rows.end)) // 2
    before = _Mix.of(rows, 0, index + 1 if index else max(1, len(rows.end) // 4))
    after = _Mix.of(rows, first, len(rows.end))
    if abs(after.hit_ratio - before.hit_ratio) >= settings.trend_hit_change:
        return f"the prefix hit ratio went from {before.hit_ratio:.0%} to {after.hit_ratio:.0%}"
    if rise <= settings.trend_mix_share * after.change_of_mix(before):
        return "request sizes changed, which may explain it"
    doubt = max(settings.trend_load_share, settings.trend_collinear_share * (1.0 - own))
    if rise <= doubt * after.change_of_load(before):
        return "load changed at the same time, which may explain it"
    return None


class _Mix(NamedTuple):
    """What requests were like over some rows: running, blocks of prompt and output each, hits."""

    running: float
    prompt: float
    output: float
    hit_ratio: float

    @classmethod
    def of(cls, rows: Rows, first: int, last: int) -> _Mix:
        """Mean over rows *first* to *last* (excluded)."""
        part = slice(first, last)
        running = sum(rows.running[part])
        hits = [(h, q) for h, q in zip(rows.hits[part], rows.queries[part], strict=True) if q > 0]
        asked = sum(q for _, q in hits)
        return cls(
            running / max(1, last - first),
            sum(rows.prompt_load[part]) / running if running else 0.0,
            sum(rows.output_load[part]) / running if running else 0.0,
            sum(h for h, _ in hits) / asked if asked else 0.0,
        )

    def change_of_mix(self, before: _Mix) -> float:
        """Blocks that other sizes and less sharing can account for."""
        sizes = abs(self.prompt - before.prompt) + PROMPT_AND_OUTPUT * abs(
            self.output - before.output
        )
        shared = 0.7 * abs(self.hit_ratio - before.hit_ratio) * self.prompt
        return self.running * (sizes + shared)

    def change_of_load(self, before: _Mix) -> float:
        """Blocks that more running requests account for."""
        each = self.prompt + PROMPT_AND_OUTPUT * self.output
        return abs(self.running - before.running) * each
