"""Counters that jump between two histories: several servers answer under one URL."""

from __future__ import annotations

from itertools import pairwise

from kvcache_exporter.history import History
from kvcache_exporter.indicators._recent import known, never_falls, span_seconds
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

EVERY_SECONDS = 240.0
COUNTERS = ("prompt_tokens", "generation_tokens", "completions", "http_requests", "preemptions")
FALLS = 2
RESTART_SHARE = 0.25
"""A new process begins near zero; a fall to more than this share is another process."""


_STEADY = Indication(
    "load_balanced",
    0.0,
    False,
    "no counter ever fell back to another process",
    state=State.UNTRUSTED,
    problem="load_balanced",
)


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Falls of a counter, among the recent scrapes, that no restart explains."""
    if history.reading is None:
        return None
    if history.time - history.fell_time > span_seconds(history):
        return _STEADY  # of two servers in turn, one has counted less
    series = {name: known(history, name) for name in COUNTERS}
    if not any(series.values()):
        return None
    name = max(series, key=lambda one: _falls(series[one]))
    falls = _falls(series[name])
    if not falls:
        return _STEADY
    shown = ", ".join(f"{value:.0f}" for value in series[name][-4:])
    return Indication(
        "load_balanced",
        float(falls),
        falls >= FALLS,
        f"{name} went {shown}: it fell {falls} times without starting anew, so different servers "
        "answer under this URL; scrape each of them by its own address",
        state=State.UNTRUSTED,
        problem="load_balanced",
    )


def _falls(values: list[float]) -> int:
    if never_falls(values):
        return 0
    return sum(RESTART_SHARE * before < after < before for before, after in pairwise(values))
