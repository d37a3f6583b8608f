"""Requests as clients send them: when, how long, with which shared prefix, and who hangs up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = Callable[[Floats], Floats]
"""A value over time: seconds since the start of the trace in, one value each out."""

HOUR = 3600.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests per second over time, and a bound that it never exceeds."""

    rate: Curve
    peak: float


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths are lognormal in tokens; sharing is by groups with a Zipf popularity."""

    arrivals: Arrivals
    prompt_median: float = 600.0
    prompt_sigma: float = 0.9
    prompt_max: float = 16_000
    output_median: float = 200.0
    output_sigma: float = 0.8
    output_max: float = 4_000
    prompt_scale: Curve | None = None
    output_scale: Curve | None = None
    sharing: float | Curve = 0.7
    groups: int = 24
    zipf_exponent: float = 1.1
    prefix_tokens: tuple[int, int] = (256, 2048)
    abort_share: float = 0.03
    long_share: float = 0.0
    long_prompt: float = 60_000
    long_output: float = 8_000


@dataclass(frozen=True, slots=True)
class Requests:
    """Parallel lists, one entry a request, in order of arrival; group -1 shares nothing."""

    arrival: list[float]
    prompt: list[int]
    output: list[int]
    group: list[int]
    aborted: list[bool]
    group_tokens: list[int]


def draw(load: Workload, seconds: float, rng: np.random.Generator) -> Requests:
    """An aborted request stops after a uniform share of its output."""
    at = _arrival_times(load.arrivals, seconds, rng)
    n = len(at)
    prompt = np.exp(rng.normal(math.log(load.prompt_median), load.prompt_sigma, n))
    output = np.exp(rng.normal(math.log(load.output_median), load.output_sigma, n))
    prompt = prompt * load.prompt_scale(at) if load.prompt_scale else prompt
    output = output * load.output_scale(at) if load.output_scale else output
    prompt, output = prompt.clip(8, load.prompt_max), output.clip(1, load.output_max)
    if load.long_share:
        long = rng.random(n) < load.long_share
        prompt[long] = load.long_prompt * rng.uniform(0.5, 1.2, long.sum())
        output[long] = load.long_output * rng.uniform(0.5, 1.5, long.sum())
    group, tokens = _groups(load, at, rng)
    prompt = prompt.astype(int) + np.where(group >= 0, tokens[np.maximum(group, 0)], 0)
    aborted = rng.random(n) < load.abort_share
    output = np.where(aborted, np.maximum(1, output * rng.random(n)), output).astype(int)
    columns = (at, prompt, output, group, aborted, tokens)
    return Requests(*(column.tolist() for column in columns))


def _arrival_times(arrivals: Arrivals, seconds: float, rng: np.random.Generator) -> Floats:
    at = np.sort(rng.random(rng.poisson(arrivals.peak * seconds)) * seconds)
    return at[rng.random(len(at)) < arrivals.rate(at) / arrivals.peak]


def _groups(load: Workload, at: Floats, rng: np.random.Generator) -> tuple[Any, Any]:
    weights = 1.0 / np.arange(1, load.groups + 1) ** load.zipf_exponent
    share = load.sharing(at) if callable(load.sharing) else load.sharing
    chosen = rng.choice(load.groups, len(at), p=weights / weights.sum())
    group = np.where(rng.random(len(at)) < share, chosen, -1)
    low, high = load.prefix_tokens
    return group, rng.integers(low // 16, high // 16, load.groups) * 16


def prefill(arrivals: Arrivals) -> Workload:
    """The prefill half of a disaggregated pair: one token, then the blocks wait to be fetched."""
    return Workload(arrivals, output_median=1.0, output_sigma=0.01)


def steady(rate: float) -> Arrivals:
    """The same mean rate all day."""
    return Arrivals(lambda t: np.full_like(t, rate), rate)


def diurnal(low: float, high: float) -> Arrivals:
    """Lowest at 03:00, highest at 15:00."""

    def rate(t: Floats) -> Floats:
        wave = 0.5 - 0.5 * np.cos(2 * np.pi * (t / DAY - 3 / 24))
        return low + (high - low) * wave**1.5

    return Arrivals(rate, high)


def ramp(first: float, last: float, begin: float = 0.0, end: float = 2 * DAY) -> Arrivals:
    """Linear from ``first`` at ``begin`` to ``last`` at ``end``, flat outside."""
    return Arrivals(
        lambda t: first + (last - first) * np.clip((t - begin) / (end - begin), 0, 1),
        max(first, last),
    )


def jump(first: float, last: float, at: float) -> Arrivals:
    """One rate, then another."""
    return Arrivals(lambda t: np.where(t < at, first, last), max(first, last))


def nightly(batch: float, day: float, hours: float = 2.0) -> Arrivals:
    """A batch job in the first hours of each day on top of a light day."""
    return Arrivals(lambda t: np.where(t % DAY < hours * HOUR, batch, day), max(batch, day))


def bursty(
    busy: float, quiet: float, busy_seconds: float = 300, quiet_seconds: float = 900, seed: int = 11
) -> Arrivals:
    """Exponential on and off times."""
    rng = np.random.default_rng(seed)
    spells = int(8 * DAY / (busy_seconds + quiet_seconds)) + 16
    lengths = np.stack(
        [rng.exponential(quiet_seconds, spells), rng.exponential(busy_seconds, spells)]
    )
    edges = np.cumsum(lengths.T.ravel())
    return Arrivals(
        lambda t: np.where(np.searchsorted(edges, t, side="right") % 2, busy, quiet),
        max(busy, quiet),
    )


def walk(mean: float, sigma: float, memory: float = 2 * HOUR, seed: int = 5) -> Arrivals:
    """Log-normal Ornstein-Uhlenbeck rate: load that wanders without a reason."""
    rng = np.random.default_rng(seed)
    keep = math.exp(-60.0 / memory)
    noise = rng.normal(0, sigma * math.sqrt(1 - keep * keep), int(8 * DAY / 60))
    level = np.zeros(len(noise) + 1)
    for i, step in enumerate(noise):
        level[i + 1] = keep * level[i] + step
    rate = np.minimum(mean * np.exp(level), 3 * mean)
    return Arrivals(lambda t: rate[(t / 60.0).astype(int)], 3 * mean)


def gamma_bursts(mean: float, variation: float = 2.0, seed: int = 7) -> Arrivals:
    """A Gamma-distributed rate each minute, as production chat traces show (BurstGPT)."""
    rng = np.random.default_rng(seed)
    shape = 1.0 / variation**2
    rate = np.minimum(rng.gamma(shape, mean / shape, int(8 * DAY / 60)), 8 * mean)
    return Arrivals(lambda t: rate[(t / 60.0).astype(int)], float(rate.max()))
