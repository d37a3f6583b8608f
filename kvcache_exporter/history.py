"""All that is remembered of one engine: bounded, incremental, cut at a restart."""

from __future__ import annotations

from kvcache_exporter.blocks import BLOCK_COLUMNS, BlockBuilder
from kvcache_exporter.growth import MemoryLog
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.marks import is_full, marks
from kvcache_exporter.model import EngineReading, Observation, Problem
from kvcache_exporter.table import NAN, Table

RECENT = ("time", "used", "running", "waiting", "prompt_tokens", "generation_tokens",
          "completions", "preemptions", "http_requests")  # fmt: skip
"""One row a scrape, times in Unix seconds; survives a restart of the engine."""
WATCHED = ("usage_ratio", "running", "waiting", "prompt_tokens", "generation_tokens",
           "completions", "preemptions", "http_requests", "resident_memory_bytes",
           "prefix_query_tokens", "steps", "first_tokens", "hit_ratio")  # fmt: skip
"""Readings whose last change is timed."""
HITS = ("slot", "hits", "queries", "disturbed")
"""Prefix-cache tokens per quarter of an hour; slot = Unix seconds // 900; survives restarts.

Disturbed = preemptions, and scrapes with a queue before a full cache: up to vLLM 0.26 each attempt
to admit a request counts as a lookup.
"""
CUTS = ("time", "restart", "counter_fell", "pool_changed")
"""When the history was cut, and why (1 = that was it)."""
FALLING = ("generation_tokens", "prompt_tokens", "finished_requests")
"""Counters whose fall means that a new process answers."""


class History:
    """Bounded memory of one engine.

    ``recent`` (the last 32 scrapes) and ``cuts`` outlive a restart of the engine; ``blocks``
    (a day of 15-minute rows) belong to the present epoch alone.
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
        self.problems: tuple[Problem, ...] = ()
        self.recent = Table(RECENT, 32, "d")
        self.blocks = Table(BLOCK_COLUMNS, 96)
        self.hits = Table(HITS, 298)
        self.cuts = Table(CUTS, 16, "d")
        self.changed: dict[str, float] = {}
        """Unix seconds at which each of WATCHED last changed (or was first seen)."""
        self.builder: BlockBuilder | None = None
        self.memory = MemoryLog()
        """GPU memory of the present epoch."""

    def add(self, observation: Observation) -> None:
        """Take in one observation; an older or repeated time stamp is ignored."""
        if observation.time <= self.time:
            return
        self.time = observation.time
        self.problems = observation.problems
        self.reading = observation.reading
        if observation.reading is None:
            self.memory.latest = observation.gpus
            return
        self._cut(observation.reading)
        self._watch(observation.reading)
        self._append(observation.reading)
        self.memory.add(observation, worked=_worked(self.known, observation.reading))
        self.known = observation.reading

    def unchanged_seconds(self, name: str) -> float | None:
        """How long one of WATCHED has not moved; None when it was never seen."""
        since = self.changed.get(name)
        return None if since is None else self.time - since

    def _cut(self, reading: EngineReading) -> None:
        reasons = _cut_reasons(self.known, reading)
        if self.known is None or any(reasons):
            self.epoch_start = self.time
            self.epoch += 1
            self.blocks.clear()
            self.builder = None
            self.memory = MemoryLog()
        if any(reasons):
            self.cuts.append((self.time, *reasons))

    def _watch(self, reading: EngineReading) -> None:
        known, changed, now = self.known, self.changed, self.time
        for name in WATCHED:
            value = getattr(reading, name)
            if value is None:
                changed.pop(name, None)
            elif name not in changed or getattr(known, name) != value:
                changed[name] = now
        for name in marks(known, reading):
            changed[name] = now

    def _append(self, reading: EngineReading) -> None:
        row = (
            self.time,
            _or_nan(reading.used_blocks),
            _or_nan(reading.running),
            _or_nan(reading.waiting),
            _or_nan(reading.prompt_tokens),
            _or_nan(reading.generation_tokens),
            _or_nan(reading.completions),
            _or_nan(reading.preemptions),
            _or_nan(reading.http_requests),
        )
        self.recent.append(row)
        self._hit(reading)
        if self.origin != self.origin:
            self.origin = self.time
        if self.builder is None:
            self.builder = BlockBuilder(self.time)
        self.builder.add(reading)
        if self.time - self.builder.start >= self.settings.block_seconds:
            self.blocks.append(self.builder.row(self.time - self.origin))
            self.builder = None

    def _hit(self, reading: EngineReading) -> None:
        known = self.known
        if known is None or self.epoch_start == self.time:
            return
        hits, queries = reading.prefix_hit_tokens, reading.prefix_query_tokens
        before_hits, before_queries = known.prefix_hit_tokens, known.prefix_query_tokens
        if hits is None or queries is None or before_hits is None or before_queries is None:
            return
        slot = self.time // 900
        if self.hits.last("slot") != slot:
            self.hits.append((slot, 0.0, 0.0, 0.0))
        disturbed = (reading.preemptions or 0.0) - (known.preemptions or 0.0) + is_full(reading)
        for name, gained in (
            ("hits", hits - before_hits),
            ("queries", queries - before_queries),
            ("disturbed", disturbed),
        ):
            self.hits.set_last(name, self.hits.last(name) + gained)


def _cut_reasons(known: EngineReading | None, reading: EngineReading) -> tuple[bool, bool, bool]:
    if known is None:
        return (False, False, False)
    restart = _differ(known.process_start_time_seconds, reading.process_start_time_seconds)
    fell = any(_fell(getattr(known, name), getattr(reading, name)) for name in FALLING)
    return (restart, fell, _differ(known.pool_blocks, reading.pool_blocks))


def _worked(known: EngineReading | None, reading: EngineReading) -> bool:
    """Whether tokens moved since the last reading, as far as this page counts tokens at all."""
    return known is None or any(
        _differ(getattr(known, name), getattr(reading, name)) or getattr(reading, name) is None
        for name in ("prompt_tokens", "generation_tokens")
    )


def _differ(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and before != after


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _or_nan(value: float | None) -> float:
    return NAN if value is None else float(value)
