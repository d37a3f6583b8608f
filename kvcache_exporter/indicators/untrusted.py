"""Readings that contradict themselves: nothing is derived from them, and nothing is clamped."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, Indication, State

CODES = frozenset({"usage_out_of_range", "not_finite", "duplicate_series"})
"""Problems of a reading after which its numbers cannot be believed."""


_FINE = Indication(
    "untrusted",
    0.0,
    False,
    "the numbers of the reading agree with each other",
    state=State.UNTRUSTED,
)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """1 while the reading cannot be true."""
    reading = history.reading
    if reading is None:
        return None
    problems = reading.problems
    reasons = [one.text for one in problems if one.code in CODES] if problems else []
    reasons += _contradictions(reading)
    if not reasons:
        return _FINE
    return Indication("untrusted", 1.0, True, "; ".join(reasons), state=State.UNTRUSTED)


def _contradictions(reading: EngineReading) -> list[str]:
    reasons = []
    used, pool = reading.used_blocks, reading.pool_blocks
    if used is not None and pool is not None and not 0 <= used <= pool:
        reasons.append(
            f"{used} blocks used of {pool}: more blocks are free or used than exist, blocks were "
            "freed twice or counted wrongly; report it to vLLM with a recording"
        )
    for name in ("running", "waiting"):
        value = getattr(reading, name)
        if value is not None and value < 0:
            reasons.append(f"{name} is {value:g}, below zero: the page is wrong")
    return reasons
