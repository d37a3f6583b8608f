"""Memory of what is remembered about an engine, over 72 hours of simulated time."""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.scrape.pages import Busy
from benchmarks.scrape.processes import resident_bytes
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Scrape, Target

HOURS = 72
LOOKS = (1, 24, 48, HOURS)
ENGINES = 30
WARM_UP_HOURS = 3
"""Of one more engine, so that what all of them share is not put down to them."""
INTERVAL_SECONDS = 60.0
"""Longer than usual: history is kept by time, so the same span at a sixth of the CPU."""
START = 1.8e9


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes a followed engine takes after some hours."""

    hours: int
    bytes_per_engine: float


def measure(page: bytes) -> list[Kept]:
    """Follow engines whose pages move at random."""
    busy = Busy(page)
    first = [_follower("first")]
    for step in range(1, int(WARM_UP_HOURS * 3600 / INTERVAL_SECONDS)):
        _look(first, busy, step)
    before = resident_bytes(os.getpid())
    followers = [_follower(f"t{n}") for n in range(ENGINES)]
    kept, step = [], 0
    for hours in LOOKS:
        while step * INTERVAL_SECONDS < hours * 3600.0:
            step += 1
            _look(followers, busy, step)
        kept.append(Kept(hours, (resident_bytes(os.getpid()) - before) / ENGINES))
    return kept


def _follower(name: str) -> Follower:
    return Follower(Target(name, "http://h/metrics"), JudgeSettings())


def _look(followers: list[Follower], busy: Busy, step: int) -> None:
    for seed, follower in enumerate(followers):
        now = START + step * INTERVAL_SECONDS
        scrape = Scrape(follower.target.name, now, 0.01, busy.at(step + 50 * 1000 * seed))
        follower.judge(scrape, follower.read(scrape))
