"""All that is remembered of one engine: bounded, incremental, cut at a restart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter, le
from statistics import median
from typing import Any

from kvcache_exporter.history.blocks import BlockBuilder, append_block, new_tables
from kvcache_exporter.history.changes import Changes
from kvcache_exporter.history.growth import MemoryLog
from kvcache_exporter.history.hits import HitLog
from kvcache_exporter.history.idle import IdleLog
from kvcache_exporter.history.table import NAN, Table
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Audit, EngineReading, Observation, Problem

RECENT = ("time", "used", "running", "waiting", "prompt_tokens", "generation_tokens",
          "completions", "preemptions", "http_requests")  # fmt: skip
"""One row a scrape, times in Unix seconds; survives a restart of the engine."""
_recent = attrgetter("used_blocks", *RECENT[2:])
CUTS = ("time", "restart", "counter_fell", "pool_changed")
"""When the history was cut, and why (1 = that was it)."""
FALLING = ("generation_tokens", "prompt_tokens", "finished_requests")
"""Counters that a new process begins at zero."""
ANEW_SHARE = 0.25
"""A counter that falls below this share of itself counts anew, whatever the others do; one that
falls alone and less took something back, such as the tokens of a preempted request."""


_falling = attrgetter(*FALLING)


class History:
    """Bounded memory of one engine.

    ``recent`` (the last 32 scrapes), ``hits`` and ``cuts`` outlive a restart of the engine;
    ``blocks`` (ten hours of ten-minute rows), ``hours`` (the two days before that),
    ``idle`` and ``memory`` belong to the present epoch alone.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self.time = NAN
        self.origin = NAN
        """Unix seconds that block times count from."""
        self.epoch_start = NAN
        self.epoch = 0
        self.reading: EngineReading | None = None
        """The newest reading, None when the last scrape failed."""
        self.known: EngineReading | None = None
        """The newest reading there ever was."""
        self.fell_time = -math.inf
        """When one of FALLING last fell, or was not told."""
        self.problems: tuple[Problem, ...] = ()
        self.audit: Audit | None = None
        """What the audit inside the engine counted last; None while it is silent."""
        self.recent = Table(RECENT, 32, "d")
        self.hits = HitLog()
        self.cuts = Table(CUTS, 16, "d")
        self.changes = Changes()
        self.memo: dict[str, Any] = {}
        """Answers that hold until the next block closes, by who asked."""
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.epoch_start = self.time
        self.epoch += 1
        self.blocks, self.hours = new_tables()
        self.builder: BlockBuilder | None = None
        self.idle = IdleLog(self.settings.together_seconds)
        self.memory = MemoryLog()
        """GPU memory of the present epoch."""

    def add(self, observation: Observation) -> None:
        """Take in one observation; an older or repeated time stamp is ignored."""
        if observation.time <= self.time:
            return
        if math.isnan(self.time):
            self.origin = self.epoch_start = observation.time
        self.time = observation.time
        self.problems = observation.problems
        self.audit = observation.audit
        reading, known = observation.reading, self.known
        self.reading = reading
        if reading is None:
            self.memory.latest = observation.gpus
            return
        if known is not None:
            self._cut(known, reading)
        self.changes.add(self.time, known, reading)
        self.recent.append(_recent_row(self.time, reading))
        if known is not None and self.epoch_start != self.time:
            self.hits.add(self.time, known, reading)
        self._block(known or reading, reading)
        self.idle.add(self.time, reading, self.hold_seconds)
        if observation.gpus or self.memory.gpus:
            self.memory.add(observation, worked=_worked(known, reading))
        self.known = reading

    @property
    def hold_seconds(self) -> float:
        """How long blocks may rightly outlive their request on this engine."""
        if self.settings.hold_seconds is not None:
            return self.settings.hold_seconds
        held = self.reading is not None and self.reading.connector
        return self.settings.connector_hold_seconds if held else 0.0

    @property
    def blocks_together(self) -> int:
        """Blocks after which nothing is held any more that was held before the first of them."""
        hold = self.hold_seconds
        return 1 + math.ceil(hold / self.settings.block_seconds) if hold else 1

    def unchanged_seconds(self, name: str) -> float | None:
        """How long a watched reading has not moved; None when it was never seen."""
        since = self.changes.time(name)
        return None if since is None else self.time - since

    def _cut(self, known: EngineReading, reading: EngineReading) -> None:
        grew = _all_grew(known, reading)
        if not grew:
            self.fell_time = self.time
        reasons = (
            _differ(known.process_start_time_seconds, reading.process_start_time_seconds),
            not grew and _counts_anew(known, reading),
            _resized(known.pool_blocks, reading.pool_blocks),
        )
        if True in reasons:
            self._begin_epoch()
            self.cuts.append((self.time, *reasons))

    def _block(self, known: EngineReading, reading: EngineReading) -> None:
        builder, now = self.builder, self.time
        if builder is None:
            since = reading if self.epoch_start == now else known
            builder = self.builder = BlockBuilder(now, since, (NAN, NAN))
        builder.add(reading)
        if now - builder.start >= self.settings.block_seconds:
            expected = self.settings.block_seconds / self._interval_seconds()
            row = builder.row(now - self.origin, expected)
            append_block(self.blocks, self.hours, row, self.blocks_together)
            self.builder = BlockBuilder(now, reading, builder.sizes)

    def _interval_seconds(self) -> float:
        """Usual time between scrapes."""
        times = self.recent.column("time")
        return median(b - a for a, b in pairwise(times)) if len(times) > 1 else math.inf


def _recent_row(now: float, reading: EngineReading) -> Sequence[float]:
    values = _recent(reading)
    if None in values:
        return [now, *(NAN if value is None else value for value in values)]
    return (now, *values)


def _all_grew(known: EngineReading, reading: EngineReading) -> bool:
    """Whether all that a new process begins at zero is told, and none of it fell."""
    try:
        return all(map(le, _falling(known), _falling(reading)))
    except TypeError:
        return False  # None: one of them is not counted


def _counts_anew(known: EngineReading, reading: EngineReading) -> bool:
    """Whether one counter begins near zero again, or all of them fell."""
    before, after = _falling(known), _falling(reading)
    both = [(old, new) for old, new in zip(before, after, strict=True) if old and new is not None]
    fell = [new < old for old, new in both]
    if True not in fell:
        return False
    return all(fell) or any(new < ANEW_SHARE * old for old, new in both)


def _resized(before: int | None, after: int | None) -> bool:
    """Whether the pool changed; until a ratio has told, its size may be off by the null block."""
    return before is not None and after is not None and abs(before - after) > 1


def _worked(known: EngineReading | None, reading: EngineReading) -> bool:
    """Whether tokens moved since the last reading, as far as this page counts tokens at all."""
    return known is None or any(
        _differ(getattr(known, name), getattr(reading, name)) or getattr(reading, name) is None
        for name in ("prompt_tokens", "generation_tokens")
    )


def _differ(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and before != after
