"""Prefix hit ratio over a week: healthy wobble of every kind, and drops that must be reported.

Requests are drawn one by one (lognormal prompts, some share of each prompt cached), so that the
noise of a window is that of real traffic: a few hundred requests of very different length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.detection.workload import Floats
from kvcache_exporter.model import EngineReading, Observation

WINDOW_SECONDS = 300.0
WINDOWS_A_DAY = 288
DAYS = 7
ONSET_DAYS = 4.3
PROBATION_DAYS = 1.0
"""No alarm counts before: every detector may learn a day first."""
EPOCH = 1_789_948_800.0
"""Unix time of the first window, a midnight."""
DEVELOPMENT_SEEDS = range(100)
HELD_OUT_SEEDS = range(950, 958)


@dataclass(frozen=True, slots=True)
class HitScenario:
    """Mean ratio and what it does; ``drop`` gives the ratio from day and undisturbed ratio."""

    name: str
    requests: float = 120.0
    """Mean a window."""
    ratio: float = 0.55
    daily_swing: float = 0.0
    load_swing: float = 0.6
    wobble: float = 1.0
    """How strongly the mix of tenants wanders, in units of 2 points over an hour."""
    restarts: tuple[float, ...] = ()
    batches: tuple[float, ...] = ()
    """Days at which an hour of requests without any shared prefix begins."""
    drop: Callable[[Floats, Floats], Floats] | None = None


def _by(points: float, hours: float = 1e-6) -> Callable[[Floats, Floats], Floats]:
    def ratio(day: Floats, undisturbed: Floats) -> Floats:
        share = np.clip((day - ONSET_DAYS) * 24 / hours, 0, 1)
        return np.maximum(undisturbed - points * share, 0)

    return ratio


_WHOLE = 2.0
HEALTHY = (
    HitScenario("steady"),
    HitScenario("daily swing of 16 points", daily_swing=0.08),
    HitScenario("quiet nights", load_swing=0.97, requests=60),
    HitScenario("thin traffic", requests=6),
    HitScenario("tenants wobble", wobble=3),
    HitScenario("restarts", restarts=(2.2, 3.4, 5.1)),
    HitScenario("batches without prefix", batches=(3.5, 5.5)),
    HitScenario("ratio 0.9", ratio=0.9),
    HitScenario("ratio 0.1", ratio=0.1),
)
FAULTY = (
    HitScenario("to zero", drop=_by(_WHOLE)),
    HitScenario("-20 points", drop=_by(0.2)),
    HitScenario("-10 points", drop=_by(0.1)),
    HitScenario("-10 points, daily swing", drop=_by(0.1), daily_swing=0.08),
    HitScenario("-20 points over 12 h", drop=_by(0.2, 12)),
    HitScenario("-20 points over 48 h", drop=_by(0.2, 48)),
    HitScenario("-20 points, thin traffic", drop=_by(0.2), requests=6),
    HitScenario("-30 % of 0.9", drop=_by(0.27), ratio=0.9),
    HitScenario("-20 points, tenants wobble", drop=_by(0.2), wobble=3),
)


def tokens(made: HitScenario, seed: int) -> tuple[Floats, Floats]:
    """Hit and queried tokens of each five minutes of a week."""
    rng = np.random.default_rng([seed, *made.name.encode()])
    day = np.arange(WINDOWS_A_DAY * DAYS) / WINDOWS_A_DAY
    load = made.requests * (1 + made.load_swing * np.sin(2 * np.pi * (day - 0.35)))
    counts = rng.poisson(np.maximum(load, 0.02 * made.requests))
    ratio = made.ratio + made.daily_swing * np.sin(2 * np.pi * (day - 0.2))
    ratio = made.drop(day, ratio) if made.drop else ratio
    ratio = np.clip(ratio + _wander(rng, len(day)) * 0.02 * made.wobble, 0, 0.98)
    hits, queries = np.zeros(len(day)), np.zeros(len(day))
    for i, (at, count, mean) in enumerate(zip(day, counts, ratio, strict=True)):
        batch = any(begin <= at < begin + 1 / 24 for begin in made.batches)
        hits[i], queries[i] = _window(rng, count, int(2 * made.requests) * batch, mean)
        if any(begin <= at < begin + 1 / 144 for begin in made.restarts):
            hits[i] *= 0.3
    return hits, queries


def _wander(rng: np.random.Generator, count: int) -> Floats:
    keep = math.exp(-5 / 60)
    level = np.zeros(count)
    for i, step in enumerate(rng.normal(0, math.sqrt(1 - keep * keep), count - 1)):
        level[i + 1] = keep * level[i] + step
    return level


def _window(
    rng: np.random.Generator, requests: int, strangers: int, ratio: float
) -> tuple[float, float]:
    count = requests + strangers
    prompt = np.exp(rng.normal(6.6, 0.9, count)).clip(16, 16_000)
    cached = (rng.random(count) < ratio) * rng.beta(8, 1.2, count)
    cached[requests:] = 0
    return float((prompt // 16 * 16 * cached).sum()), float(prompt.sum())


def observations(made: HitScenario, seed: int) -> Iterator[Observation]:
    """The week as an engine's counters, a scrape each five minutes; a restart zeroes them."""
    hits = queries = 0.0
    started = EPOCH - 3600
    for i, (hit, query) in enumerate(zip(*tokens(made, seed), strict=True)):
        now = EPOCH + (i + 1) * WINDOW_SECONDS
        day = i / WINDOWS_A_DAY
        if any(begin <= day < begin + 1 / WINDOWS_A_DAY for begin in made.restarts):
            hits, queries, started = 0.0, 0.0, now - WINDOW_SECONDS
        hits, queries = hits + hit, queries + query
        yield Observation(now, made.name, "0", _reading(hits, queries, started, i))


def _reading(hits: float, queries: float, started: float, i: int) -> EngineReading:
    blank = EngineReading(engine="0", prefix_hit_tokens=hits, prefix_query_tokens=queries)
    return replace(
        blank,
        running=float(5 + i % 3),
        waiting=0.0,
        preemptions=0.0,
        prompt_tokens=queries,
        generation_tokens=queries / 4,
        process_start_time_seconds=started,
    )
