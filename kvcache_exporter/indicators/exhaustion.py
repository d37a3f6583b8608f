"""When the pool is full: free blocks beyond what busy requests need, over the rate of loss."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.indicators import idle_floor
from kvcache_exporter.indicators._floors import floor_slope
from kvcache_exporter.indicators._look import find_break, stands
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Seconds until the pool is full at the slope of an established loss, None without one.

    Pool less orphaned blocks less the load of a busy moment (95 % of the time it is lower), over
    the slope; the interval comes from that of the slope.
    """
    key = (history.epoch, history.blocks.total, history.idle.levels.total)
    known = history.memo.get("exhaustion")
    if known is None or known[0] != key:
        known = history.memo["exhaustion"] = (key, _indicate(history, settings))
    return known[1]


def _indicate(history: History, settings: JudgeSettings) -> Indication | None:
    loss = _loss(history, settings)
    pool = history.known.pool_blocks if history.known else None
    if loss is None or pool is None:
        return None
    slope, error, room = loss[0], loss[1], pool - loss[2]
    low, high = slope - 1.96 * error, slope + 1.96 * error
    if low <= 0:
        return None
    point, earliest, latest = (max(0.0, room) / rate * 3600.0 for rate in (slope, high, low))
    return Indication(
        "exhaustion",
        point,
        False,
        f"{max(0.0, room):.0f} blocks to spare at busy moments, {slope:.1f} lost an hour: full in "
        f"{point / 3600:.1f} h ({earliest / 3600:.1f} to {latest / 3600:.1f})",
        low=earliest,
        high=latest,
        details={
            "exhaustion_time": history.time + point,
            "exhaustion_earliest_time": history.time + earliest,
            "exhaustion_latest_time": history.time + latest,
        },
    )


def _loss(history: History, settings: JudgeSettings) -> tuple[float, float, float] | None:
    """Blocks lost an hour, its standard error, and blocks that are lost or needed."""
    found = find_break(history, settings)
    if found is not None and found.kind == "ramp" and stands(found, history, settings):
        return found.slope, found.error, found.rise + found.load
    floor, floors = idle_floor.indicate(history, settings), floor_slope(history)
    if floor is None or floor.state is not State.LEAK or floors is None:
        return None
    used = sorted(history.blocks.column("used")) or [0.0]
    return *floors, max(floor.value or 0.0, used[int(0.95 * (len(used) - 1))])
