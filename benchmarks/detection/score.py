"""Scores: an alarm before the leak is false, and one that was on already has found nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.regime import leak_rate, regime
from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import HOUR

EPISODE_GAP_SECONDS = 3600.0
"""Silence that ends an alarm episode."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One detector on one trace."""

    scenario: str
    leaky: bool
    false_alarms: int
    healthy_days: float
    delay_hours: float | None
    """From the second lost block to the first alarm that begins after it."""
    cpu_seconds: float = 0.0
    scrapes: int = 0
    regime: str = ""
    rate: float = 0.0
    """Per cent of the pool an hour."""


def episodes(alarms: Alarms) -> list[float]:
    """Start times of the alarm episodes."""
    starts: list[float] = []
    last = -math.inf
    times, on = alarms
    for time in times[on]:
        if time - last > EPISODE_GAP_SECONDS:
            starts.append(float(time))
        last = time
    return starts


def outcome(trace: Trace, alarms: Alarms, cpu_seconds: float = 0.0) -> Outcome:
    """Score one trace; all of a healthy one, the part before the onset of a leaky one."""
    starts, onset = episodes(alarms), trace.onset
    end = math.inf if onset is None else onset
    after = [start for start in starts if start >= end]
    return Outcome(
        scenario=trace.scenario,
        leaky=onset is not None,
        false_alarms=sum(start < end for start in starts),
        healthy_days=trace.days if onset is None else onset / 86400,
        delay_hours=(after[0] - end) / HOUR if after else None,
        cpu_seconds=cpu_seconds,
        scrapes=len(trace.rows),
        regime=regime(trace),
        rate=leak_rate(trace),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """One row of the table. Rates are per engine-day of healthy traces."""

    healthy: int
    healthy_alarmed: int
    leaky: int
    found: int
    alarmed_early: int
    false_alarms: int
    healthy_days: float
    delays: tuple[float, ...]
    microseconds_per_scrape: float

    @property
    def precision(self) -> float:
        """Detections over everything that was called."""
        called = self.found + self.healthy_alarmed + self.alarmed_early
        return self.found / called if called else math.nan

    @property
    def recall(self) -> float:
        """Share of leaky traces found."""
        return self.found / self.leaky if self.leaky else math.nan

    @property
    def false_alarms_per_day(self) -> float:
        """Over the healthy traces."""
        return self.false_alarms / self.healthy_days if self.healthy_days else math.nan

    @property
    def false_alarms_bound(self) -> float:
        """Upper end of the exact one-sided 95 % Poisson interval, per day."""
        return (
            poisson_upper(self.false_alarms) / self.healthy_days if self.healthy_days else math.nan
        )

    def delay(self, quantile: float) -> float:
        """Hours, over the leaks that were found."""
        return float(np.quantile(self.delays, quantile)) if self.delays else math.nan


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Sum over traces."""
    healthy = [o for o in outcomes if not o.leaky]
    leaky = [o for o in outcomes if o.leaky]
    delays = tuple(o.delay_hours for o in leaky if o.delay_hours is not None)
    scrapes = sum(o.scrapes for o in outcomes)
    return Summary(
        healthy=len(healthy),
        healthy_alarmed=sum(o.false_alarms > 0 for o in healthy),
        leaky=len(leaky),
        found=len(delays),
        alarmed_early=sum(o.false_alarms > 0 for o in leaky),
        false_alarms=sum(o.false_alarms for o in healthy),
        healthy_days=sum(o.healthy_days for o in healthy),
        delays=delays,
        microseconds_per_scrape=1e6 * sum(o.cpu_seconds for o in outcomes) / max(1, scrapes),
    )


def poisson_upper(events: int, confidence: float = 0.95) -> float:
    """Largest mean under which seeing at most *events* has probability 1 - confidence."""
    low, high = 0.0, 10.0 + 3.0 * events
    for _ in range(60):
        mean = (low + high) / 2
        # In logarithms: of some hundred events, powers and factorials are beyond any float.
        terms = (
            math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(events + 1)
        )
        low, high = (mean, high) if sum(terms) > 1 - confidence else (low, mean)
    return high
