"""Used blocks with nothing running and nothing waiting belong to nobody: exact, where it applies.

Proof needs the same blocks seen idle again and again with work in between: the least value over the
last three idle episodes that span ten minutes, or over two that had settled, and never more than
(used - running) at any moment in between. One reading can be late by a step, one long episode can
be a transfer that nobody has fetched yet: that is held, then suspect, never proven.
"""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.idle import Episode
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Used blocks at the last idle moment; low = those proven to be orphaned."""
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
            "idle_floor_blocks": round(newest.used),
            "idle_floor_time": newest.end,
            "orphaned_blocks": round(max(low, min(newest.floor, newest.between, newest.used), 0)),
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
    least = max(settings.floor_blocks, settings.floor_ratio * (pool or 0))
    seconds = newest.end - newest.start
    text = f"{newest.used:.0f} blocks in use with nothing running or waiting for {seconds:.0f} s"
    if not history.idle.is_idle or newest.used < least or not _has_settled(newest, settings):
        return None, text
    patience = history.hold_seconds + settings.held_seconds
    if seconds < patience:
        return State.HELD_IDLE, (
            f"{text}; they may rightly be held for {history.hold_seconds:.0f} s (hold time)"
        )
    return State.LEAK_SUSPECT, f"{text}, longer than the hold time of {history.hold_seconds:.0f} s"
