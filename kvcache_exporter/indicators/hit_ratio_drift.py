"""The prefix hit ratio against the same hours of earlier days; against itself on the first day.

A drop counts when it is large (both in points and as a share), several times the noise that the
same engine shows between equal hours of different days, and still there at the end of its window.
Only token sums are compared, never lifetime ratios, and never across a restart or a change of
capacity; slots with preemptions or with a queue before a full cache are left out, because lookups
are counted again there up to vLLM 0.26.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median, stdev

from kvcache_exporter.history import History
from kvcache_exporter.indicators._adwin import Cut, first_cut
from kvcache_exporter.indicators._slots import SLOT_SECONDS, Slots, recent_ratio
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 300.0
DAY = 96
"""Slots in a day."""
REFERENCE_DAYS = 3
REFERENCE_OFFSETS = (-4, 0, 4)
"""The hour before and after belong to the same time of day."""
RATIO_SLOTS = 8
"""The ratio that is shown covers two hours."""
MIN_TOKENS = 100_000
INFORMATION_TOKENS = 50_000
"""Fewer queried tokens than this say nothing, not even that hits are never counted."""
ENOUGH_PAIRS = 6
PRIOR_NOISE = 0.03
PRIOR_WEIGHT = 3.0
"""Noise assumed before there are days to compare, worth as much as three of them."""
REQUEST_TOKENS = 3_000
"""Tokens that hit or miss together: a typical token stands in a prompt of twice the mean length."""
TAIL_SHARE = 0.6
"""Share of the required drop that the last two quarters of the window must still show."""
SMALLEST_LOOK = 0.05
"""Smaller gaps are not worth the arithmetic."""


@dataclass(frozen=True, slots=True)
class Window:
    """One length of window, in slots, and what it takes to alarm there.

    Tuned on development seeds only: short windows find large drops soon, long ones small and slow
    drops at all.
    """

    slots: int
    points: float
    share: float
    sigmas: float


WINDOWS = (
    Window(8, 0.08, 0.15, 3.7),
    Window(12, 0.08, 0.15, 3.8),
    Window(16, 0.08, 0.15, 3.6),
    Window(32, 0.07, 0.13, 3.0),
)


@dataclass(frozen=True, slots=True)
class Drop:
    """A window beside the same hours of earlier days."""

    now: float
    usual: float
    noise: float
    tail: float
    """Drop that the end of the window still shows."""

    def exceeds(self, window: Window) -> bool:
        """Whether the drop is large, certain and lasting."""
        least = max(window.points, window.share * self.usual)
        gone = self.usual - self.now
        return gone > least and gone > window.sigmas * self.noise and self.tail > TAIL_SHARE * least


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """The hit ratio now, its reference, and whether it drifted."""
    reading = history.known
    if reading is None or reading.prefix_query_tokens is None:
        return _printed(history)
    if not reading.prefix_hit_tokens and reading.prefix_query_tokens >= INFORMATION_TOKENS:
        return _never_hit(reading.prefix_query_tokens)
    slots, now = Slots.of(history), recent_ratio(history, RATIO_SLOTS)
    drops = [(window, drop) for window in WINDOWS if (drop := _drop(slots, window.slots))]
    if not drops:
        return _first_day(now, first_cut(slots, MIN_TOKENS))
    window, drop = next(((w, d) for w, d in drops if d.exceeds(w)), drops[0])
    hours = window.slots * SLOT_SECONDS / 3600
    text = (
        f"prefix hit ratio {drop.now:.1%} over {hours:.0f} h, {drop.usual:.1%} at the same time of "
        f"earlier days ({(drop.usual - drop.now) / drop.noise:.1f} times the usual noise)"
    )
    return _answer(now, drop.usual, drop.exceeds(window), text)


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


def _drop(slots: Slots, width: int) -> Drop | None:
    end = slots.count
    now = slots.ratio(end - width, end, MIN_TOKENS)
    begins = [end - width - day * DAY for day in range(1, REFERENCE_DAYS + 1)]
    begins = [begin for begin in begins if begin >= 0]
    references = [
        slots.ratio(max(0, begin + offset), begin + width + offset, MIN_TOKENS)
        for begin in begins
        for offset in REFERENCE_OFFSETS
    ]
    known = [ratio for ratio in references if ratio is not None]
    if now is None or len(known) < 2:
        return None
    usual, quarters = median(known), _quarters(slots, width)
    if usual - now < SMALLEST_LOOK or len(quarters) < 4:
        return Drop(now, usual, max(0.01, PRIOR_NOISE), 0.0)
    between_days = _noise(slots, width)
    if width > WINDOWS[0].slots:  # a short window has more pairs to learn the noise from
        short = WINDOWS[0].slots
        between_days = max(between_days, _noise(slots, short) * math.sqrt(short / width))
    drawn = math.sqrt(usual * (1 - usual) * REQUEST_TOKENS / slots.tokens(end - width, end))
    within = max(between_days, drawn, stdev(quarters) / 2)
    noise = math.hypot(within, between_days / math.sqrt(len(begins)))
    return Drop(now, usual, max(0.01, noise), usual - max(quarters[-2:]))


def _quarters(slots: Slots, width: int) -> list[float]:
    step, begin = width // 4, slots.count - width
    ratios = (slots.ratio(begin + step * i, begin + step * (i + 1), 1.0) for i in range(4))
    return [ratio for ratio in ratios if ratio is not None]


def _noise(slots: Slots, width: int) -> float:
    """Standard deviation of a window between equal hours of consecutive days, before this one.

    The last day is left out where enough is known without it: a drift in it is no noise.
    """
    squares = _squares(slots, width, slots.count - DAY)
    if len(squares) < ENOUGH_PAIRS:
        squares = _squares(slots, width, slots.count - width)
    # Windows overlap by half, so that two of them are worth one.
    weight = len(squares) / 2 + PRIOR_WEIGHT
    return math.sqrt((sum(squares) / 2 + PRIOR_WEIGHT * PRIOR_NOISE**2) / weight)


def _squares(slots: Slots, width: int, end: int) -> list[float]:
    """Half the squared differences between windows up to *end* and those a day earlier."""
    squares = []
    while end - width - DAY >= 0:
        later = slots.ratio(end - width, end, MIN_TOKENS)
        earlier = slots.ratio(end - width - DAY, end - DAY, MIN_TOKENS)
        if later is not None and earlier is not None:
            squares.append((later - earlier) ** 2 / 2)
        end -= max(1, width // 2)
    return squares
