"""Memory of what is remembered about an engine, over 72 hours of simulated time."""

from __future__ import annotations

import os
import random
import re
from dataclasses import dataclass

from benchmarks.scrape.processes import resident_bytes
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Scrape, Target

HOURS = 72
LOOKS = (1, 24, 48, HOURS)
ENGINES = 10
INTERVAL_SECONDS = 60.0
"""Longer than usual: history is kept by time, so the same span at a sixth of the CPU."""
START = 1.8e9
_GAUGE = re.compile(rb"(?m)^(vllm:num_requests_(?:running|waiting)\{[^}]*\}) .*$")
_USAGE = re.compile(rb"(?m)^(vllm:kv_cache_usage_perc\{[^}]*\}) .*$")
_COUNTER = re.compile(rb"(?m)^(vllm:\w+(?:_total|_sum|_count)\{[^}]*\}) .*$")
_BLOCKS = re.compile(rb'num_gpu_blocks="(\d+)"')


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes a followed engine takes after some hours."""

    hours: int
    bytes_per_engine: float


def measure(page: bytes) -> list[Kept]:
    """Follow engines whose pages move at random."""
    before = resident_bytes(os.getpid())
    followers = [
        Follower(Target(f"t{n}", "http://h/metrics"), JudgeSettings()) for n in range(ENGINES)
    ]
    kept, step = [], 0
    for hours in LOOKS:
        while step * INTERVAL_SECONDS < hours * 3600.0:
            step += 1
            _look(followers, page, START + step * INTERVAL_SECONDS, step)
        kept.append(Kept(hours, (resident_bytes(os.getpid()) - before) / ENGINES))
    return kept


def _look(followers: list[Follower], page: bytes, now: float, step: int) -> None:
    for seed, follower in enumerate(followers):
        scrape = Scrape(follower.target.name, now, 0.01, _moved(page, step, seed))
        follower.judge(scrape, follower.read(scrape))


def _moved(page: bytes, step: int, seed: int) -> bytes:
    chance = random.Random(step * ENGINES + seed)
    match = _BLOCKS.search(page)
    blocks = int(match[1]) - 1 if match else 1
    running = chance.randrange(8) if step % 50 else 0
    used = running * chance.randrange(1, 20)
    page = _GAUGE.sub(rb"\g<1> %d.0" % running, page)
    page = _USAGE.sub(rb"\g<1> %b" % repr(min(used, blocks) / blocks).encode(), page)
    return _COUNTER.sub(rb"\g<1> %d.0" % (step * 7), page)
