"""Sums and rates over the last scrapes, shared by indicators that look at minutes."""

from __future__ import annotations

import math
from itertools import pairwise

from kvcache_exporter.history import History


def gained(history: History, column: str) -> float:
    """Increase of a counter over the recent scrapes; a fall is a new process and counts from 0."""
    values = known(history, column)
    if never_falls(values):
        return values[-1] - values[0] if values else 0.0
    steps = pairwise(values)
    return sum(after - before if after >= before else after for before, after in steps)


def known(history: History, column: str) -> list[float]:
    """The values of a column of the recent scrapes, without the unknown ones."""
    values = history.recent.column(column).tolist()
    if math.isnan(sum(values)):
        return [value for value in values if not math.isnan(value)]
    return values


def never_falls(values: list[float]) -> bool:
    """Whether a counter only grew."""
    return values == sorted(values)


def span_seconds(history: History) -> float:
    """From the oldest recent scrape to the newest."""
    times = history.recent.column("time")
    return times[-1] - times[0] if len(times) > 1 else 0.0


def minutes(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
