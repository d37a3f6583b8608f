"""A full cache that nobody works with: its blocks are lost, whoever may have held them once.

Nothing runs, requests wait for room, and nothing has begun, gone on or ended for longer than any
block may rightly be held. Waiting requests own no blocks, and what finished ones were owed time for
is overdue.
"""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.history.marks import FULL_RATIO
from kvcache_exporter.indicators._recent import minutes
from kvcache_exporter.indicators.stall import wedged_seconds
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

EVERY_SECONDS = 30.0


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Used blocks of a full cache that nothing has touched for the hold time, at least 10 min."""
    reading = history.reading
    if reading is None or not reading.waiting or reading.sleeping or not reading.used_blocks:
        return None
    seconds = wedged_seconds(history, reading)
    full = (reading.usage_ratio or 0.0) >= FULL_RATIO
    if not full or seconds < max(history.hold_seconds, settings.held_seconds):
        return None
    return Indication(
        "wedge",
        float(reading.used_blocks),
        True,
        f"{reading.used_blocks} blocks have been in use with nothing running for "
        f"{minutes(seconds)}, longer than any may be held, while requests wait for room",
        state=State.LEAK,
    )
