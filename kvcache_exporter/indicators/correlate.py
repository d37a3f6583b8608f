"""What blocks are lost with: aborts, finished requests, preemptions or transfer errors.

Between idle moments the floor rises by what was lost and counters rise by what happened. The event
whose count explains the rises best (least squares through the origin) is named when it explains
most of them; blocks per event is the slope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kvcache_exporter.history import History
from kvcache_exporter.history.idle import EVENTS
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

NAMES = {
    "aborts": "abort",
    "requests": "request",
    "preemptions": "preemption",
    "transfer_errors": "transfer_error",
}
EVERY_SECONDS = 300.0
FEWEST_RISES = 3
EXPLAINED = 0.5
TIED = 0.1
"""Events that explain nearly as much as the best: the rarest of them says most."""


class Correlate(NamedTuple):
    """An event, the blocks lost with each, and the share of the rises it explains."""

    event: str
    blocks: float
    explained: float


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Blocks lost per event of the best correlate; the event is a key of ``details``."""
    key = (history.epoch, history.idle.levels.total)
    known = history.memo.get("correlate")
    if known is None or known[0] != key:
        known = history.memo["correlate"] = (key, _indicate(history))
    return known[1]


def _indicate(history: History) -> Indication | None:
    levels = history.idle.levels
    rises = _differences(levels.column("floor"))
    if sum(rise > 0 for rise in rises) < FEWEST_RISES:
        return None
    found = [_correlate(name, rises, _differences(levels.column(name))) for name in EVENTS]
    good = [f for f in found if f is not None and f.explained >= EXPLAINED]
    if not good:
        return None
    enough = max(f.explained for f in good) - TIED
    best = max((f for f in good if f.explained >= enough), key=lambda f: f.blocks)
    return Indication(
        "correlate",
        best.blocks,
        False,
        f"blocks are lost with each {best.event.replace('_', ' ')}, {best.blocks:.2g} on average "
        f"(explains {best.explained:.0%} of the rises of the idle floor)",
        details={f"blocks_lost_per_{best.event}": best.blocks},
    )


def _correlate(name: str, rises: Sequence[float], events: Sequence[float]) -> Correlate | None:
    if any(math.isnan(event) or event < 0 for event in events):
        return None
    square = sum(event * event for event in events)
    if not square:
        return None
    blocks = sum(rise * event for rise, event in zip(rises, events, strict=True)) / square
    left = sum((r - blocks * e) ** 2 for r, e in zip(rises, events, strict=True))
    return Correlate(NAMES[name], blocks, 1.0 - left / sum(rise * rise for rise in rises))


def _differences(values: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(values)]
