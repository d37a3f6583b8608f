"""Requests wait and none is served: judged by completions, for tokens may trickle on for hours.

Three pictures of one thing. Nothing runs at all although requests wait (a wedged scheduler, with an
empty cache as often as with a full one); something runs and nothing completes; and, where nobody
counts completions, a queue that has not become shorter once although the cache has room.
"""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.history.marks import FULL_RATIO
from kvcache_exporter.indicators._recent import minutes
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, Indication, State

EVERY_SECONDS = 30.0
WEDGED_SECONDS = 300.0
CONNECTOR_SECONDS = 600.0
"""With a connector nothing runs while the only requests wait for remote blocks."""
BLOCKED_SECONDS = 900.0
"""Long answers of a slow model end some minutes apart, not a quarter of an hour."""


_SERVED = Indication("stall", 0.0, False, "no request waits", state=State.STALLED)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Seconds for which requests have waited in vain."""
    reading = history.reading
    if reading is None or reading.waiting is None or reading.running is None:
        return None
    if not reading.waiting or reading.sleeping:
        return _SERVED
    wedged, blocked = wedged_seconds(history, reading), _blocked_seconds(history, reading)
    limit = CONNECTOR_SECONDS if reading.connector else WEDGED_SECONDS
    if wedged >= limit and not _parked(history, reading):
        return _answer(wedged, True, _wedge_text(reading, wedged))
    if blocked >= BLOCKED_SECONDS and reading.running:
        return _answer(blocked, True, _blocked_text(history, reading, blocked))
    text = f"{reading.waiting:.0f} waiting, {reading.running:.0f} running"
    return _answer(max(wedged, blocked), False, text)


def _answer(seconds: float, alarming: bool, text: str) -> Indication:
    return Indication("stall", seconds, alarming, text, state=State.STALLED)


def wedged_seconds(history: History, reading: EngineReading) -> float:
    """How long requests have waited while nothing ran, completed or got a token."""
    if reading.running:
        return 0.0
    names = ("queue", "running", "completions", "first_tokens", "generation_tokens")
    return _least(history, names)


def _blocked_seconds(history: History, reading: EngineReading) -> float:
    """How long requests have waited while none completed, or, uncounted, while none got in."""
    if reading.completions is not None:
        return _least(history, ("queue", "completions"))
    if (reading.usage_ratio or 0.0) >= FULL_RATIO:
        return 0.0
    return _least(history, ("queue", "queue_fell", "first_tokens"))


def _least(history: History, names: tuple[str, ...]) -> float:
    seconds = (history.unchanged_seconds(name) for name in names)
    return min((one for one in seconds if one is not None), default=0.0)


def _parked(history: History, reading: EngineReading) -> bool:
    """Sessions between two turns wait and hold blocks too, but then nobody joins the queue."""
    usage = reading.usage_ratio or 0.0
    if not 0.0 < usage < FULL_RATIO:
        return False
    rose, ran = history.changes.time("queue_rose"), history.changes.time("running")
    return rose is None or ran is None or rose <= ran


def _cache(reading: EngineReading) -> str:
    if reading.usage_ratio is None:
        return "how full the cache is, is unknown"
    if reading.usage_ratio == 0.0:
        return "the cache is empty, so it is not what they wait for"
    return f"the cache is {reading.usage_ratio:.1%} used"


def _wedge_text(reading: EngineReading, seconds: float) -> str:
    return (
        f"{reading.waiting:.0f} requests wait and none has run for {minutes(seconds)}; "
        f"{_cache(reading)}: the scheduler admits nothing, restart the engine (a /health of 200 "
        "says nothing about it)"
    )


def _blocked_text(history: History, reading: EngineReading, seconds: float) -> str:
    what = (
        "none has completed" if reading.completions is not None else "the queue never got shorter"
    )
    flowing = history.unchanged_seconds("generation_tokens")
    trickle = " (a few tokens still trickle)" if flowing is not None and flowing < 60 else ""
    return (
        f"{reading.waiting:.0f} requests wait behind {reading.running:.0f} running ones and {what} "
        f"for {minutes(seconds)}{trickle}; {_cache(reading)}: admission is blocked, look for one "
        "stuck request, abort it or restart the engine"
    )
