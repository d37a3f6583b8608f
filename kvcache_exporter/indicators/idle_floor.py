"""Used blocks with nothing running and nothing waiting belong to nobody: exact, where it applies.

Proof needs the same blocks seen idle again and again with work in between: the least value over the
last three idle episodes that span ten minutes, or over two that had settled, and never more than
(used - running) at any moment in between. One reading can be late by a step, one long episode can
be a transfer that nobody has fetched yet: that is held, then suspect, never proven.
"""

from __future__ import annotations

from itertools import pairwise

from kvcache_exporter.history import History
from kvcache_exporter.history.idle import Episode
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

RISING = 3
"""Idle windows in a row that tell a leak from transfers that come and go."""


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Used blocks at the last idle moment; low = those proven to be orphaned."""
    key = (history.epoch, history.idle.changes, history.idle.is_idle)
    known = history.memo.get("idle_floor")
    if known is None or known[0] != key:
        known = history.memo["idle_floor"] = (key, _indicate(history, settings))
    return known[1]


def _indicate(history: History, settings: JudgeSettings) -> Indication | None:
    newest = history.idle.last()
    if newest is None:
        return None
    low = max(0.0, proven_blocks(history, settings))
    state, because = _state(history, newest, low, settings)
    return Indication(
        "idle_floor",
        newest.used,
        state is not None,
        because,
        low=low,
        state=state,
        details={
            "idle_floor_blocks": round(newest.used + history.idle.base),
            "idle_floor_time": newest.end,
            "orphaned_blocks": round(max(low, _estimate(newest, history.hold_seconds))),
            "orphaned_blocks_low": round(low),
        },
    )


def proven_blocks(history: History, settings: JudgeSettings) -> float:
    """Most blocks that a long enough row of idle episodes shows without exception, else 0."""
    newest = history.idle.last()
    if newest is None or newest.floor < settings.proof_blocks:
        return 0.0
    least, settled = newest.floor, True
    for back, episode in enumerate(history.idle.newest_first()):
        least = min(least, episode.floor, episode.between)
        settled = settled and _has_settled(episode, settings)
        if least < settings.proof_blocks:
            return 0.0
        span = newest.end - episode.start
        if back >= 2 and span >= settings.proof_seconds:
            return least
        if (
            back == 1
            and settled
            and not history.hold_seconds
            and span >= settings.proof_seconds / 2
        ):
            return least
    return 0.0


def _rising_blocks(history: History) -> float:
    """Least of three idle floors in a row, none lower than the one before, each beyond the hold."""
    episodes = [e for e in history.idle.newest_first() if e.end - e.start >= history.hold_seconds]
    if len(episodes) < RISING or episodes[0] != history.idle.last():
        return 0.0
    last = episodes[:RISING]
    if any(new.used < old.used or old.between < old.used for new, old in pairwise(last)):
        return 0.0
    return last[-1].used if last[0].used > last[-1].used else 0.0


def _grown_blocks(history: History, settings: JudgeSettings) -> float:
    """A single long idle floor that the engine was seen to work up to, and not to fall below.

    More than a tenth of the pool at once is taken for a transfer that nobody fetched.
    """
    newest, pool = history.idle.last(), history.known.pool_blocks if history.known else None
    headroom = history.blocks.column("headroom")
    if newest is None or not pool or not history.idle.is_idle or len(headroom) < 2:
        return 0.0
    long = newest.end - newest.start >= settings.single_seconds
    enough = (
        newest.scrapes >= settings.single_scrapes and newest.used <= pool * settings.single_ratio
    )
    if not long or not enough or min(headroom[:-1]) >= newest.used / 2:
        return 0.0
    lowest = min(headroom[-1], newest.used)
    return lowest if lowest >= settings.single_kept * newest.used else 0.0


def _estimate(newest: Episode, hold_seconds: float) -> float:
    """All that an engine holds that has been idle beyond the hold time, else what is overdue."""
    overdue = newest.used if newest.end - newest.start >= hold_seconds else newest.floor
    return max(0.0, min(overdue, newest.between))


def _has_settled(episode: Episode, settings: JudgeSettings) -> bool:
    long_enough = episode.end - episode.start >= settings.settle_seconds
    return long_enough and episode.scrapes > settings.settle_scrapes


def _state(
    history: History, newest: Episode, low: float, settings: JudgeSettings
) -> tuple[State | None, str]:
    if low:
        return State.LEAK, (
            f"{low:.0f} blocks are owned by nobody: they were in use at each of the last idle "
            f"moments, {newest.used:.0f} blocks at the newest"
        )
    pool = history.known.pool_blocks if history.known else None
    rising = _rising_blocks(history) if history.hold_seconds else _grown_blocks(history, settings)
    if rising >= settings.proof_blocks:
        return State.LEAK, (
            f"{newest.used:.0f} blocks are in use with nothing running or waiting, and at least "
            f"{rising:.0f} of them were in use all the while since the pool was emptier"
        )
    least = max(settings.floor_blocks, settings.floor_ratio * (pool or 0))
    seconds = newest.end - newest.start
    text = f"{newest.used:.0f} blocks in use with nothing running or waiting for {seconds:.0f} s"
    if not history.idle.is_idle or newest.used < least or not _has_settled(newest, settings):
        return None, text
    hold = history.hold_seconds
    if seconds < max(hold, settings.held_seconds):
        until = f"they may rightly be held for {hold:.0f} s" if hold else "too early to tell why"
        return State.HELD_IDLE, f"{text}: {until}"
    limit = f"the hold time of {hold:.0f} s" if hold else f"{settings.held_seconds:.0f} s"
    return State.LEAK_SUSPECT, f"{text}, longer than {limit}"
