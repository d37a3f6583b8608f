"""Moments worth timing that are no value of a single reading: a queue that began, or fell."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_exporter.model import EngineReading

MARKS = ("queue", "queue_fell", "queue_rose", "full", "idle")
_AT_EASE = ("queue_fell",)
FULL_RATIO = 0.9
"""With a queue and this much used, the cache is what requests wait for: a big block or two may
always stay free, since a request that needs more is not admitted."""


def marks(known: EngineReading | None, reading: EngineReading) -> Sequence[str]:
    """Name what happened between the last reading and this one.

    ``queue``: it became empty or non-empty; ``queue_fell``, ``queue_rose``: so did its length;
    ``full``: queue and a full cache, together, began or ended; ``idle``: nothing running and
    nothing waiting began or ended. The first reading begins everything.
    """
    if known is None:
        return MARKS
    before, now = known.waiting or 0.0, reading.waiting or 0.0
    if not before and not now and known.running and reading.running:
        return _AT_EASE  # as it mostly is
    happened = {
        "queue": bool(before) != bool(now),
        "full": is_full(known) != is_full(reading),
        "idle": is_idle(known) != is_idle(reading),
        "queue_fell": now < before or not now,
        "queue_rose": now > before,
    }
    return [name for name, did in happened.items() if did]


def is_queued(reading: EngineReading) -> bool:
    """Whether requests wait."""
    return bool(reading.waiting)


def is_full(reading: EngineReading) -> bool:
    """Whether requests wait for room in the cache."""
    return is_queued(reading) and (reading.usage_ratio or 0.0) >= FULL_RATIO


def is_idle(reading: EngineReading) -> bool:
    """Whether nothing runs and nothing waits."""
    return reading.running == 0 and reading.waiting == 0
