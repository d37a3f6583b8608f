"""Asleep or paused on purpose: blocks and requests may stand still for as long as they like."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

_AWAKE = Indication("paused", 0.0, False, "the engine says that it is awake", state=State.PAUSED)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """1 while the engine says that it sleeps."""
    reading = history.reading
    if reading is None or reading.sleeping is None:
        return None
    if not reading.sleeping:
        return _AWAKE
    usage = "unknown" if reading.usage_ratio is None else f"{reading.usage_ratio:.2%}"
    return Indication(
        "paused",
        1.0,
        True,
        f"the engine says that it sleeps or is paused (usage {usage}): nothing is judged until it "
        "wakes",
        state=State.PAUSED,
    )
