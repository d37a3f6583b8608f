"""Load-independent slope of free blocks: what vanishes that no request accounts for.

On an engine that is idle now and then, the slope of the idle floor (least squares over the times
and floors of the last idle moments). Otherwise the break that explains used blocks best beside
load (see ``_trend``); one that is large enough, certain enough and not explained by a change of
load, request sizes or sharing is a suspicion, twice in a row an established trend.
"""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.indicators._floors import floor_slope
from kvcache_exporter.indicators._look import find_break, stands
from kvcache_exporter.indicators._trend import Break
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Free blocks gained an hour, negative while leaking, with its 95 % interval."""
    key = (history.epoch, history.blocks.total, history.idle.levels.total)
    known = history.memo.get("slope")
    if known is None or known[0] != key:
        known = history.memo["slope"] = (key, _indicate(history, settings))
    return known[1]


def _indicate(history: History, settings: JudgeSettings) -> Indication | None:
    found = find_break(history, settings)
    if found is not None and stands(found, history, settings):
        return _trend(found, history)
    floors = floor_slope(history)
    if floors is None:
        return None if found is None else _quiet(found)
    slope, error = floors
    return _answer(slope, error, False, f"the idle floor rises by {slope:.1f} blocks an hour")


def _trend(found: Break, history: History) -> Indication:
    pool = history.known.pool_blocks if history.known else None
    share = f" ({found.rise / pool:.1%} of the pool)" if pool else ""
    hours = (history.time - found.since) / 3600.0
    if found.kind == "step":
        text = f"{found.rise:.0f} blocks{share} went missing {hours:.1f} h ago"
    else:
        text = f"{found.rise:.0f} blocks{share} have gone missing over {hours:.1f} h"
    because = f"{text} that load does not explain ({found.score:.1f} standard errors)"
    slope = found.slope if found.kind == "ramp" else None
    return _answer(slope, found.error, True, because, found)


def _quiet(found: Break) -> Indication:
    reason = found.objection or f"only {found.score:.1f} standard errors"
    return Indication(
        "slope",
        None,
        False,
        f"the likeliest break, {found.rise:.0f} blocks, is no evidence: {reason}",
    )


def _answer(
    slope: float | None, error: float, alarming: bool, because: str, found: Break | None = None
) -> Indication:
    low = high = None
    details: dict[str, float | None] = {}
    if slope is not None:
        low, high = -slope - 1.96 * error, -slope + 1.96 * error
        details = {
            "free_slope_per_second": -slope / 3600.0,
            "free_slope_low_per_second": low / 3600.0,
            "free_slope_high_per_second": high / 3600.0,
        }
    if found is not None:
        details["rise"] = found.rise
    return Indication(
        "slope",
        None if slope is None else -slope,
        alarming,
        because,
        low=low,
        high=high,
        details=details,
        state=State.LEAK_SUSPECT,
    )
