"""Idle episodes: the moments at which used blocks are orphaned blocks, exactly.

vLLM counts cached blocks that nobody references as free, so with nothing running and nothing
waiting every used block is owned by nobody (on real engines: equal to the injected truth, to the
block). Two things blur this. Early releases count the null block, so an idle engine reads 1. And a
KV connector may hold the blocks of a finished request until somebody fetched them: what ended
within the hold time before the last activity (an idle engine's clock stands still) is allowed for.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator
from typing import NamedTuple

from kvcache_exporter.history.table import NAN, Table
from kvcache_exporter.model import EngineReading

EPISODES = ("start", "end", "scrapes", "used", "floor", "between")
EVENTS = ("aborts", "requests", "preemptions", "transfer_errors")
"""What blocks may be lost with, counted since the start of the engine."""
LEVELS = ("time", "floor", *EVENTS)
LEVEL_SECONDS = 600.0
MARKS_PER_HOLD = 16
USUAL_BLOCK_SIZE = 16


class Episode(NamedTuple):
    """One uninterrupted stretch with nothing running, waiting, begun or finished."""

    start: float
    """Unix seconds."""
    end: float
    scrapes: float
    used: float
    """Least used blocks, the null block not counted."""
    floor: float
    """The same without what may rightly be held; -inf when nobody can say what that is."""
    between: float
    """Least (used - running) since, until the next episode: orphans cannot be more."""


class IdleLog:
    """The last idle episodes of an epoch."""

    def __init__(self, together_seconds: float) -> None:
        self._together_seconds = together_seconds
        self.table = Table(EPISODES, 10, "d")
        self.levels = Table(LEVELS, 16, "d")
        """The floor, whenever it had changed or ten minutes had passed, and the events so far."""
        self.base = 0.0
        """1 where an empty pool reads 1; learned once it worked, for a new server shows 0."""
        self._base_known = False
        self.clean_time = -math.inf
        """When an idle reading last showed the pool empty, in Unix seconds."""
        self.is_idle = False
        self.changes = 0
        """Goes up whenever an episode begins, goes on, or is put in doubt."""
        self.activity_time = NAN
        """The last time something ran or finished."""
        self._activity = NAN
        self._finished = Table(("time", "finished", "begun"), MARKS_PER_HOLD + 4, "d")

    def add(self, now: float, reading: EngineReading, hold_seconds: float) -> None:
        """Take in one scrape."""
        used, running = reading.used_blocks, reading.running
        if used is None or running is None or reading.waiting is None:
            return
        activity = (reading.first_tokens or 0.0) + (reading.completions or 0.0)
        moved = activity != self._activity
        if moved:
            self._activity = activity
            if hold_seconds:
                self._mark(now, reading, hold_seconds)
        was_idle, self.is_idle = self.is_idle, not running and not reading.waiting
        if moved or not self.is_idle:
            self.activity_time = now
        if not self.is_idle:
            if self.table.total and used - running - self.base < self.table.last("between"):
                self.table.set_last("between", used - running - self.base)
                self.changes += 1
            return
        self._read(now, reading, used, begins=moved or not was_idle, hold_seconds=hold_seconds)

    def last(self) -> Episode | None:
        """Return the newest episode, None when there was none."""
        return next(self.newest_first(), None)

    def newest_first(self) -> Iterator[Episode]:
        """Yield the episodes that are remembered."""
        for index in range(len(self.table) - 1, -1, -1):
            yield Episode(*self.table.row(index))

    def _read(
        self, now: float, reading: EngineReading, used: float, begins: bool, hold_seconds: float
    ) -> None:
        self.changes += 1
        if self._activity or reading.first_tokens is None:
            self._learn_base(used)
        used -= self.base
        if used < 2:
            self.clean_time = now
        floor = used - self._held(reading, hold_seconds) if hold_seconds else used
        if used != self.levels.last("floor") or now - self.levels.last("time") >= LEVEL_SECONDS:
            self.levels.append((now, used, *_events(reading)))
        table = self.table
        if begins and not now - table.last("start") < self._together_seconds:
            table.append((now, now, 1.0, used, floor, math.inf))
            return
        if begins:
            floor = min(floor, table.last("between"))
            table.set_last("between", math.inf)
        table.set_last("end", now)
        table.set_last("scrapes", table.last("scrapes") + 1)
        table.set_last("used", min(used, table.last("used")))
        table.set_last("floor", min(floor, table.last("floor")))

    def _learn_base(self, used: float) -> None:
        if used == 0 or not self._base_known:
            self.base = 1.0 if used == 1 else 0.0
            self._base_known = True

    def _mark(self, now: float, reading: EngineReading, hold_seconds: float) -> None:
        last = self._finished.last("time")
        if math.isnan(last) or now - last >= hold_seconds / MARKS_PER_HOLD:
            self._finished.append((now, *_blocks_so_far(reading)))

    def _held(self, reading: EngineReading, hold_seconds: float) -> float:
        """Most blocks that requests can hold which ended within the hold time."""
        marks, since = self._finished, [0.0, 0.0]
        before = bisect(marks.column("time"), self.activity_time - hold_seconds)
        if before:
            _, *since = marks.row(before - 1)
        finished, begun = _blocks_so_far(reading)
        held = max(finished - since[0], begun - since[1])
        return math.inf if math.isnan(held) else held


def _blocks_so_far(reading: EngineReading) -> tuple[float, float]:
    """Blocks of requests counted when they finish, and when they begin (which aborts do too)."""
    size = reading.block_size_tokens or USUAL_BLOCK_SIZE
    return (
        _sum(reading.finished_prompt_tokens, reading.finished_generation_tokens) / size
        + _sum(reading.finished_requests),
        _sum(reading.prompt_tokens, reading.generation_tokens) / size + _sum(reading.first_tokens),
    )


def _events(reading: EngineReading) -> tuple[float, float, float, float]:
    """Aborts, finished requests, preemptions and transfer errors so far."""
    begun, ended = reading.first_tokens, reading.finished_requests
    return (
        NAN if begun is None or ended is None else begun - ended,
        _sum(ended),
        _sum(reading.preemptions),
        _sum(reading.transfer_errors),
    )


def _sum(*values: float | None) -> float:
    return sum(NAN if value is None else value for value in values)
