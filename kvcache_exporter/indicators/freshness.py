"""Frozen gauges: requests are said to run while no gauge and no counter moves at all."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.indicators._recent import minutes
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

GAUGES = ("usage_ratio", "running", "waiting")
COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "completions",
    "preemptions",
    "prefix_query_tokens",
    "steps",
    "first_tokens",
    "hit_ratio",
)
FROZEN_SECONDS = 120.0
"""A step of a very long prefill may take half a minute; two minutes without one is no step."""
FROZEN_SCRAPES = 3
SURE_SECONDS = 20.0
SURE_BLOCKS = 100.0
"""So many new blocks all running requests together would have needed at one token a second each."""
BLOCK_TOKENS = 16.0


_ALIVE = Indication(
    "freshness",
    0.0,
    False,
    f"requests run, and something moved within {SURE_SECONDS:.0f} s",
    state=State.STALE,
)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Seconds since the engine last showed a sign of life while it says that requests run."""
    reading = history.reading
    if reading is None or not reading.running:
        return None
    frozen = _still_seconds(history)
    if frozen < SURE_SECONDS:
        return _ALIVE
    alarming = _is_frozen(history, frozen, reading.running) and not reading.sleeping
    return Indication(
        "freshness",
        frozen,
        alarming,
        _because(history, frozen, reading.running, reading.waiting or 0.0),
        state=State.STALE,
        problem="gauges_frozen",
    )


def _still_seconds(history: History) -> float:
    """Time since the last change of anything; usage is asked first, for it hardly ever rests."""
    still = history.time
    for name in (*GAUGES, *COUNTERS):
        seconds = history.unchanged_seconds(name)
        still = still if seconds is None else min(still, seconds)
        if still < SURE_SECONDS:
            break
    return still


def _is_frozen(history: History, frozen: float, running: float) -> bool:
    scrapes = sum(time >= history.time - frozen for time in history.recent.column("time"))
    if scrapes < FROZEN_SCRAPES:
        return False
    needed = running * frozen / BLOCK_TOKENS
    return frozen >= FROZEN_SECONDS or (frozen >= SURE_SECONDS and needed >= SURE_BLOCKS)


def _because(history: History, frozen: float, running: float, waiting: float) -> str:
    reading = history.reading
    usage = "" if reading is None or reading.usage_ratio is None else f", {reading.usage_ratio:.1%}"
    text = (
        f"{running:.0f} running, {waiting:.0f} waiting{usage} used, and no gauge or counter has "
        f"moved for {minutes(frozen)}: "
    )
    return text + _which(history, frozen)


def _which(history: History, frozen: float) -> str:
    asked = history.unchanged_seconds("http_requests")
    probe = "send a request of 1 token to tell: "
    if asked is None:
        return (
            f"{probe}if it is answered, only the gauges were frozen (requests were aborted and no "
            "step followed); if not, the engine hangs"
        )
    if asked < frozen:
        return (
            f"requests still arrive (the last {minutes(asked)} ago) and nothing happens, so the "
            f"engine probably hangs; {probe}a hung engine does not answer"
        )
    return (
        "no request has arrived since, so the engine is probably idle and shows its last step; "
        f"{probe}the gauges move again if it answers"
    )
