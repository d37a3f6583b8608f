"""When each reading that ought to move last moved, so that standing still can be told from calm."""

from __future__ import annotations

import math
from itertools import compress
from operator import attrgetter, ne

from kvcache_exporter.history.marks import MARKS, marks
from kvcache_exporter.history.table import NAN, Table
from kvcache_exporter.model import EngineReading

WATCHED = ("usage_ratio", "running", "waiting", "prompt_tokens", "generation_tokens",
           "completions", "preemptions", "http_requests", "resident_memory_bytes",
           "prefix_query_tokens", "steps", "first_tokens", "hit_ratio")  # fmt: skip
"""Readings whose last change is timed."""
INDEX = {name: index for index, name in enumerate((*WATCHED, *MARKS))}
_watched = attrgetter(*WATCHED)
_ALL = range(len(WATCHED))


class Changes:
    """Unix seconds at which each of WATCHED and MARKS last changed; NaN = never seen."""

    __slots__ = ("last", "times")

    def __init__(self) -> None:
        self.last: tuple[float | None, ...] | None = None
        """What was watched in the reading before; None = to be taken from that reading."""
        self.times = Table(tuple(INDEX), 1, "d")
        self.times.append([NAN] * len(INDEX))

    def add(self, now: float, known: EngineReading | None, reading: EngineReading) -> None:
        """Take in one reading, and the one that was taken in before it if there was one."""
        before = self.last or (_watched(known) if known is not None else (None,) * len(WATCHED))
        self.last = after = _watched(reading)
        times = self.times.data
        for index in compress(_ALL, map(ne, before, after)):
            times[index] = NAN if after[index] is None else now
        for name in marks(known, reading):
            times[INDEX[name]] = now

    def time(self, name: str) -> float | None:
        """When this last changed, None when it was never seen."""
        time = self.times.data[INDEX[name]]
        return None if math.isnan(time) else time
