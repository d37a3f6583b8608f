"""Scenarios drawn at random: the same seed always gives the same suite.

Development draws may be looked at; held-out draws are for the published table alone, and nothing
was ever changed because of one. A test holds the two ranges of seeds apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detection.leaks import (
    Accelerating,
    Constant,
    Leak,
    PerAbort,
    PerFinish,
    Plateau,
    Step,
    UnderLoad,
)
from benchmarks.detection.scenario import Engine, Hold, Incidents, Restart, Scenario
from benchmarks.detection.workload import (
    HOUR,
    Arrivals,
    Workload,
    bursty,
    diurnal,
    gamma_bursts,
    jump,
    nightly,
    ramp,
    steady,
    walk,
)

DEVELOPMENT_SEEDS = range(1_000, 2_000)
HELD_OUT_SEEDS = range(600_000, 700_000)
"""Until false alarms on them led to a change, those from 500,000 on were held out."""
PAGE_PATH_SEEDS = range(10_000_000, 20_000_000)


def random_scenario(seed: int, leaking: bool, name: str = "random") -> Scenario:
    """Load, model speed, pool, sharing, aborts and incidents at random, sized to one another."""
    rng = np.random.default_rng(seed)
    engine = _engine(rng)
    load = draw_workload(rng, seed)
    peak = float(rng.choice([0.25, 0.45, 0.7, 1.1], p=[0.3, 0.4, 0.2, 0.1]))
    engine = replace(engine, pool_blocks=max(1500, int(_peak_blocks(load, engine) / peak)))
    leak = draw_leak(rng, engine.pool_blocks, load) if leaking else None
    return Scenario(f"{name} {seed}", load, engine, draw_incidents(rng), leak)


def random_suite(seeds: range) -> list[Scenario]:
    """Every second one leaks."""
    return [random_scenario(seed, leaking=bool(seed % 2)) for seed in seeds]


def _engine(rng: np.random.Generator) -> Engine:
    engine = Engine(
        tokens_per_second=float(rng.uniform(12, 50)), slowdown=float(rng.uniform(60, 160))
    )
    draw = rng.random()
    if draw < 0.10:
        return replace(engine, blocks_per_token=float(rng.uniform(0.015, 0.05)), request_blocks=5.0)
    if draw < 0.20:
        return replace(engine, request_blocks=float(rng.integers(1, 4)))
    if draw < 0.30:
        return replace(engine, hold=Hold((0.2, float(rng.uniform(1, 10))), 0.02 * rng.random()))
    return engine


def _arrivals(rng: np.random.Generator, seed: int) -> Arrivals:
    high = float(np.exp(rng.uniform(np.log(0.3), np.log(3.0))))
    low = high * float(rng.choice([0.02, 0.15, 0.4]))
    shapes = (
        lambda: steady(high),
        lambda: diurnal(low, high),
        lambda: bursty(high, low, rng.uniform(120, 900), rng.uniform(300, 1800), seed),
        lambda: ramp(low, high, rng.uniform(0, 12) * HOUR, rng.uniform(24, 48) * HOUR),
        lambda: ramp(high, low, rng.uniform(0, 12) * HOUR, rng.uniform(24, 48) * HOUR),
        lambda: walk(high / 2, rng.uniform(0.3, 0.7), rng.uniform(0.5, 4) * HOUR, seed),
        lambda: jump(high / 3, high, rng.uniform(8, 30) * HOUR),
        lambda: nightly(high, high / 6, rng.uniform(1, 4)),
        lambda: gamma_bursts(high / 3, rng.uniform(1, 3), seed),
    )
    return shapes[rng.integers(len(shapes))]()


def draw_workload(rng: np.random.Generator, seed: int) -> Workload:
    """Arrivals, lengths, growth, sharing and aborts."""
    growth = float(rng.choice([0.0, 0.0, 0.0, 0.5, 1.5]))
    return Workload(
        _arrivals(rng, seed),
        prompt_median=float(np.exp(rng.uniform(np.log(200), np.log(2000)))),
        output_median=float(np.exp(rng.uniform(np.log(60), np.log(400)))),
        prompt_scale=(lambda t: 1 + growth * t / (48 * HOUR)) if growth else None,
        sharing=float(rng.choice([0.0, 0.4, 0.7, 0.95])),
        groups=int(rng.integers(4, 60)),
        abort_share=float(rng.choice([0.0, 0.01, 0.05, 0.3], p=[0.2, 0.4, 0.3, 0.1])),
    )


def _peak_blocks(load: Workload, engine: Engine) -> float:
    """Blocks in use at the highest mean rate, by Little's law."""
    output = load.output_median * np.exp(load.output_sigma**2 / 2)
    prompt = load.prompt_median * np.exp(load.prompt_sigma**2 / 2)
    if load.prompt_scale:
        prompt *= float(load.prompt_scale(np.array([48 * HOUR]))[0])
    seconds = (output + prompt / engine.prefill_ratio) / engine.tokens_per_second
    peak = min(load.arrivals.peak, 3.0)
    running = peak * seconds
    running = peak * seconds * (1 + min(running, 100) / engine.slowdown)
    each = (prompt + output / 2) * engine.blocks_per_token + engine.request_blocks
    shared = load.groups * 72 * 0.5 if load.sharing else 0.0
    return float(running * each + shared + 3 * each)


def draw_incidents(rng: np.random.Generator) -> Incidents:
    """Restarts, four of five announced, gaps and scrapes delivered twice."""
    restarts = tuple(
        Restart(float(t) * HOUR, float(rng.uniform(30, 300)), announced=bool(rng.random() < 0.8))
        for t in rng.uniform(2, 46, rng.choice([0, 0, 0, 1, 3]))
    )
    gaps = tuple(
        (float(t) * HOUR, float(t) * HOUR + float(rng.uniform(60, 7200)))
        for t in rng.uniform(1, 44, rng.choice([0, 0, 1, 3]))
    )
    return Incidents(restarts, gaps, duplicate_share=0.02 if rng.random() < 0.1 else 0.0)


def draw_leak(rng: np.random.Generator, pool: int, load: Workload) -> Leak:
    """One of eight ways of losing blocks, .05 to 5 % of the pool an hour or 1 to 8 % at once."""
    start = float(rng.uniform(1, 22)) * HOUR
    rate = float(np.exp(rng.uniform(np.log(0.05), np.log(5)))) / 100 * pool
    share = float(rng.uniform(0.01, 0.08))
    requests = max(50.0, float(load.arrivals.rate(np.linspace(0, 47 * HOUR, 200)).mean()) * 3600)
    blocks = load.prompt_median / 16
    ways = (
        lambda: Constant(start=start, rate=rate),
        lambda: Constant(start=start, rate=rate),
        lambda: Step(start=start, blocks=max(3, int(share * pool))),
        lambda: Plateau(start=start, rate=2 * rate, ceiling=max(3, int(share * pool))),
        lambda: Accelerating(start=start, rate=rate / 6),
        lambda: PerFinish(start=start, probability=min(1.0, rate / requests)),
        lambda: UnderLoad(start=start, rate=rate, running=3),
        lambda: PerAbort(
            start=start, probability=min(1.0, rate / (requests * load.abort_share * blocks))
        ),
    )
    return ways[rng.integers(len(ways) - (0 if load.abort_share else 1))]()
