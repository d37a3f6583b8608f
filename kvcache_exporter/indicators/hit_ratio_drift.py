"""The prefix hit ratio against the same hours of earlier days; against itself on the first day.

A drop counts when it is large (both in points and as a share), several times what such a window
strays by on this engine, still there in the last hour, and no work of a single odd hour. Only token
sums are compared, never lifetime ratios, and never across a restart or a change of capacity; slots
with preemptions or with a queue before a full cache are left out, because lookups are counted again
there up to vLLM 0.26.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from kvcache_exporter.history import History
from kvcache_exporter.history.hits import SLOT_SECONDS
from kvcache_exporter.indicators._adwin import Cut, first_cut
from kvcache_exporter.indicators._hit_noise import (
    DAY,
    HOUR,
    MIN_TOKENS,
    WIDTHS,
    Wandering,
    drawn,
)
from kvcache_exporter.indicators._slots import Slots, recent_ratio
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 300.0
REFERENCE_DAYS = 3
RATIO_SLOTS = 8
"""The ratio that is shown covers two hours."""
FIRST_DAY_TOKENS = 100_000
"""In each of the equal pieces that ADWIN cuts the first day into."""
POINTS = 0.07
SHARE = 0.13
SIGMAS = 4.2
"""Tuned on development draws only, as are the widths and the prior of the noise."""
SMALLEST_NOISE = 0.01
LASTING_SHARE = 0.5
"""Share of the required drop that the last hour must still show."""
COMMON_SHARE = 0.6
"""Share of the drop that must be left without the window's oddest hour."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A window beside the same hours of earlier days."""

    width: int
    now: float
    usual: float
    noise: float | None
    """Standard deviation of the drop; None where it is too small or too odd to ask."""
    drifted: bool = False


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """The hit ratio now, its reference, and whether it drifted."""
    reading = history.known
    if reading is None or reading.prefix_query_tokens is None:
        return _printed(history)
    if not reading.prefix_hit_tokens and reading.prefix_query_tokens >= MIN_TOKENS:
        return _never_hit(reading.prefix_query_tokens)
    found, now = _found(history), recent_ratio(history, RATIO_SLOTS)
    if isinstance(found, Drop):
        return _answer(now, found.usual, found.drifted, _text(found))
    return _first_day(now, found)


def _found(history: History) -> Drop | Cut | None:
    """What the finished slots tell, looked at once a slot."""
    key = (history.epoch, history.time // SLOT_SECONDS)
    known = history.memo.get("hit_ratio_drift")
    if known is None or known[0] != key:
        known = history.memo["hit_ratio_drift"] = (key, _find(Slots.of(history)))
    return known[1]


def _find(slots: Slots) -> Drop | Cut | None:
    """The shortest window that drifted, else the shortest that can be compared at all."""
    wandering, shortest = Wandering(slots), None
    for width in WIDTHS:
        drop = _drop(slots, width, wandering)
        if drop is not None and drop.drifted:
            return drop
        shortest = shortest or drop
    return shortest or first_cut(slots, FIRST_DAY_TOKENS)


def _text(drop: Drop) -> str:
    hours = drop.width * SLOT_SECONDS / 3600
    text = (
        f"prefix hit ratio {drop.now:.1%} over {hours:g} h, {drop.usual:.1%} at the same time of "
        "earlier days"
    )
    if drop.noise is None:
        return text
    return f"{text} ({(drop.usual - drop.now) / drop.noise:.1f} times the usual noise)"


def _answer(now: float | None, usual: float | None, drifted: bool, text: str) -> Indication:
    advice = ": either the requests changed or the cache works worse" if drifted else ""
    return Indication(
        "hit_ratio_drift",
        now,
        drifted,
        text + advice,
        details={
            "hit_ratio": now,
            "hit_ratio_window_seconds": RATIO_SLOTS * SLOT_SECONDS,
            "hit_ratio_baseline": usual,
            "hit_ratio_drift": None if usual is None else drifted,
        },
        finding="hit_ratio_drift",
    )


def _printed(history: History) -> Indication | None:
    ratio = history.known.hit_ratio if history.known else None
    return (
        None if ratio is None else _answer(ratio, None, False, f"a ratio of {ratio:.1%} is shown")
    )


def _never_hit(tokens: float) -> Indication:
    return _answer(
        0.0,
        None,
        False,
        f"not one hit in {tokens:.0f} tokens looked up since the start: nothing is shared, shared "
        "prefixes are shorter than a block, or this version does not count hits; no drift",
    )


def _first_day(now: float | None, cut: Cut | None) -> Indication | None:
    if now is None:
        return None
    if cut is None:
        return _answer(now, None, False, f"prefix hit ratio {now:.1%}, and no day to compare with")
    text = f"prefix hit ratio {cut.after:.1%} for {cut.hours:.1f} h, {cut.before:.1%} before that"
    return _answer(now, cut.before, True, text)


def _drop(slots: Slots, width: int, wandering: Wandering) -> Drop | None:
    end = slots.count
    now = slots.ratio(end - width, end, MIN_TOKENS)
    earlier = (_usual(slots, width, day) for day in range(1, REFERENCE_DAYS + 1))
    known = [ratio for ratio in earlier if ratio is not None]
    if now is None or not known:
        return None
    usual = median(known)
    gone, least = usual - now, max(POINTS, SHARE * usual)
    if gone <= least:
        return Drop(width, now, usual, None)
    lasts = usual - (slots.ratio(end - HOUR, end, 1.0) or 0.0) > LASTING_SHARE * least
    if not lasts or usual - _without_oddest_hour(slots, width) <= COMMON_SHARE * gone:
        return Drop(width, now, usual, None)
    luck = drawn(usual, slots.tokens(end - width, end))
    days = 1 + width / (width + 2 * HOUR) / len(known)  # what is usual strays too, less
    if gone <= SIGMAS * math.sqrt(luck * days):
        return Drop(width, now, usual, None)
    noise = max(SMALLEST_NOISE, math.sqrt((wandering.variance(width) + luck) * days))
    return Drop(width, now, usual, noise, gone > SIGMAS * noise)


def _usual(slots: Slots, width: int, days: int) -> float | None:
    """Ratio of these hours that many days ago; the hour before and after belong to them."""
    begin = slots.count - width - days * DAY
    if begin < 0:
        return None
    return slots.ratio(max(0, begin - HOUR), begin + width + HOUR, MIN_TOKENS)


def _without_oddest_hour(slots: Slots, width: int) -> float:
    """Highest ratio that leaving out an hour can give: one batch of strangers is no drift."""
    begin, end = slots.count - width, slots.count
    return max(
        _joint(slots, (begin, odd), (odd + HOUR, end)) for odd in range(begin, end - HOUR + 1)
    )


def _joint(slots: Slots, *windows: tuple[int, int]) -> float:
    """Ratio of windows together; infinite where nothing was looked up, which confirms no drop."""
    tokens = sum(slots.tokens(begin, end) for begin, end in windows)
    if tokens <= 0:
        return math.inf
    return sum(slots.hits(begin, end) for begin, end in windows) / tokens
