"""Faults that lose blocks: what triggers them, how many blocks, and from when to when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Event = Literal["abort", "finish", "preemption"]


@dataclass(frozen=True, slots=True)
class Leak:
    """Blocks lost at an event, steadily (`hour`: so many blocks an hour), or `once` at the start.

    Times are seconds on the engine's clock.
    """

    per: Event | Literal["hour", "once"]
    probability: float = 1.0
    blocks: float | None = None
    """How many; None = all that the request has."""
    start_seconds: float = 0.0
    stop_seconds: float = math.inf


def lost_at(
    leaks: Sequence[Leak], event: Event, blocks: Sequence[int], now: float, rng: Random
) -> list[int]:
    """Choose the blocks that an event loses: the last ones of the request."""
    for leak in leaks:
        active = leak.per == event and leak.start_seconds <= now < leak.stop_seconds
        if active and rng.random() < leak.probability:
            count = len(blocks) if leak.blocks is None else int(leak.blocks)
            return list(blocks[-count:]) if count else []
    return []


def lost_between(leaks: Sequence[Leak], before: float, now: float) -> int:
    """Count the blocks that time alone has lost between two moments."""
    return sum(_lost_until(leak, now) - _lost_until(leak, before) for leak in leaks)


def _lost_until(leak: Leak, now: float) -> int:
    if leak.per == "once":
        return int(leak.blocks or 0) if now >= leak.start_seconds else 0
    if leak.per == "hour":
        active = min(now, leak.stop_seconds) - leak.start_seconds
        return int(max(0.0, active) / 3600 * (leak.blocks or 0))
    return 0
