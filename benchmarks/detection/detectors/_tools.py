"""What several textbook detectors share; usage is 0..1, times in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import Floats

Flags = NDArray[np.bool_]
P99 = 2.33
"""One-sided 1 % quantile of the normal distribution."""


def usage(trace: Trace) -> tuple[Floats, Floats]:
    """Time and usage of the successful scrapes, in order of time."""
    up = trace["up"] == 1
    time, ratio = trace["time"][up], trace["used"][up] / trace["pool"][up]
    order = np.argsort(time, kind="stable")
    return time[order], ratio[order]


def held_for(flags: Flags, samples: int) -> Flags:
    """True where the flag has been true for that many samples in a row: a rule's ``for:``."""
    run, out = 0, np.zeros(len(flags), dtype=np.bool_)
    for i, flag in enumerate(flags):
        run = run + 1 if flag else 0
        out[i] = run >= samples
    return out


def binned(
    trace: Trace, seconds: float, combine: Callable[[Floats], float]
) -> tuple[Floats, Floats]:
    """End times of consecutive bins, and one value each; NaN for an empty bin."""
    time, ratio = usage(trace)
    edges = np.arange(0, time[-1] + seconds, seconds)
    at = np.searchsorted(time, edges)
    spans = pairwise(at)
    return edges[1:], np.array([combine(ratio[a:b]) if b > a else np.nan for a, b in spans])


def regression(trace: Trace, window: float, step: float = 60.0) -> tuple[Floats, Floats, Floats]:
    """Least squares over a sliding window, as ``deriv`` does it: time, slope a second, level."""
    time, ratio = usage(trace)
    sums = [np.concatenate([[0.0], np.cumsum(x)]) for x in (time * 0 + 1, time, ratio)]
    sums += [np.concatenate([[0.0], np.cumsum(x)]) for x in (time * ratio, time * time)]
    at = np.arange(time[0] + window, time[-1], step)
    first, last = np.searchsorted(time, at - window), np.searchsorted(time, at, side="right")
    n, x, y, xy, xx = (total[last] - total[first] for total in sums)
    n = np.maximum(n, 1)
    slope = (n * xy - x * y) / np.maximum(n * xx - x * x, 1e-9)
    return at, slope, y / n + slope * (at - x / n)


def over_windows(values: Floats, length: int, alarm: Callable[[Floats], bool]) -> Flags:
    """Alarm of each window that ends at a value; too short a history is silent."""
    out = np.zeros(len(values), dtype=np.bool_)
    for end in range(length, len(values) + 1):
        out[end - 1] = alarm(values[end - length : end])
    return out


def sen_slope(values: Floats) -> float:
    """Median slope over all pairs, per bin."""
    at = np.nonzero(~np.isnan(values))[0]
    if len(at) < 3:
        return 0.0
    i, j = np.triu_indices(len(at), 1)
    return float(np.median((values[at[j]] - values[at[i]]) / (at[j] - at[i])))


def mann_kendall(values: Floats, correct: bool = False) -> float:
    """Standard score of the trend; ``correct`` = Hamed and Rao's variance for autocorrelation."""
    y = values[~np.isnan(values)]
    n = len(y)
    if n < 8:
        return 0.0
    score = float(np.triu(np.sign(y[None, :] - y[:, None]), 1).sum())
    variance = n * (n - 1) * (2 * n + 5) / 18.0
    if correct:
        variance *= _hamed_rao(y, sen_slope(y))
    return (score - math.copysign(score != 0, score)) / math.sqrt(variance)


def _hamed_rao(y: Floats, slope: float) -> float:
    n = len(y)
    ranks = np.argsort(np.argsort(y - slope * np.arange(n))).astype(float)
    ranks -= ranks.mean()
    total = float(ranks @ ranks)
    extra = 0.0
    for lag in range(1, n - 1):
        rho = float(ranks[:-lag] @ ranks[lag:]) / total
        if abs(rho) > 1.96 / math.sqrt(n):
            extra += (n - lag) * (n - lag - 1) * (n - lag - 2) * rho
    return max(0.2, 1 + 2 * extra / (n * (n - 1) * (n - 2)))
