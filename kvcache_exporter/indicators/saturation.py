"""More demand than the cache can hold: requests wait while it is full. Not a leak by itself."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.history.marks import FULL_RATIO, is_full
from kvcache_exporter.indicators._recent import minutes
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

SATURATED_SECONDS = 60.0


_ROOM = Indication(
    "saturation", 0.0, False, "no request waits before a full cache", state=State.SATURATED
)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Seconds for which requests have waited for room in the cache."""
    reading = history.reading
    if reading is None or reading.usage_ratio is None or reading.waiting is None:
        return None
    if not is_full(reading):
        return _ROOM
    seconds = history.unchanged_seconds("full") or 0.0
    return Indication(
        "saturation",
        seconds,
        is_saturated(history),
        f"{reading.waiting:.0f} requests wait and the cache is {reading.usage_ratio:.1%} used, "
        f"above {FULL_RATIO:.0%} with a queue for {minutes(seconds)}: add capacity or admit less",
        state=State.SATURATED,
    )


def is_saturated(history: History) -> bool:
    """Whether they have for long enough to say so."""
    reading = history.reading
    if reading is None or not is_full(reading):
        return False
    return (history.unchanged_seconds("full") or 0.0) >= SATURATED_SECONDS
