"""How fast the idle floor rises, and whether it alone says all there is to say about a leak."""

from __future__ import annotations

import math
from itertools import pairwise

from kvcache_exporter.history import History
from kvcache_exporter.history.table import Table
from kvcache_exporter.indicators import idle_floor
from kvcache_exporter.judge_settings import JudgeSettings

FEWEST_FLOORS = 4
SHORTEST_SECONDS = 1800.0


def floor_slope(history: History) -> tuple[float, float] | None:
    """Blocks an hour that the idle floor rises by, and the standard error; None = too few."""
    key = (history.epoch, history.idle.levels.total)
    known = history.memo.get("floor_slope")
    if known is None or known[0] != key:
        known = history.memo["floor_slope"] = (key, _floor_slope(history.idle.levels))
    return known[1]


def _floor_slope(levels: Table) -> tuple[float, float] | None:
    times, floors = levels.column("time"), levels.column("floor")
    if len(times) < FEWEST_FLOORS or times[-1] - times[0] < SHORTEST_SECONDS:
        return None
    if any(after < before for before, after in pairwise(floors)):
        return None
    count, middle, mean = len(times), sum(times) / len(times), sum(floors) / len(times)
    hours = [(time - middle) / 3600.0 for time in times]
    square = sum(h * h for h in hours)
    slope = sum(h * (f - mean) for h, f in zip(hours, floors, strict=True)) / square
    left = sum((f - mean - slope * h) ** 2 for h, f in zip(hours, floors, strict=True))
    return slope, math.sqrt(max(left, 1.0) / (count - 2) / square)


def tell_all(history: History, settings: JudgeSettings) -> bool:
    """Whether recent idle moments prove a loss and its rate, so that nothing is left to infer."""
    newest = history.idle.last()
    if newest is None or history.time - newest.end > settings.floor_seconds:
        return False
    floor = idle_floor.indicate(history, settings)
    return floor is not None and bool(floor.low) and floor_slope(history) is not None
