"""Prefix-cache tokens by the quarter of an hour, three days of them; they survive a restart."""

from __future__ import annotations

import math

from kvcache_exporter.history.marks import is_full
from kvcache_exporter.history.table import Table
from kvcache_exporter.model import EngineReading

HITS = ("hits", "queries")
SLOT_SECONDS = 900.0
SLOTS = 298
"""Three days, and the first window of the day that is compared with them."""


class HitLog:
    """Tokens found and looked up in each slot; every slot is a row, whether watched or not."""

    __slots__ = ("disturbed", "slot", "table")

    def __init__(self) -> None:
        self.table = Table(HITS, SLOTS)
        self.slot = -1
        """Number of the newest row: Unix seconds // 900."""
        self.disturbed = 0
        """Bit n = the slot n before the newest had preemptions, or a scrape with a queue before a
        full cache: up to vLLM 0.26 each attempt to admit a request counts as a lookup."""

    def add(self, time: float, known: EngineReading, reading: EngineReading) -> None:
        """Take in what was counted between two scrapes of one process; a fall counts as nothing."""
        hits, queries = reading.prefix_hit_tokens, reading.prefix_query_tokens
        before_hits, before_queries = known.prefix_hit_tokens, known.prefix_query_tokens
        if hits is None or queries is None or before_hits is None or before_queries is None:
            return
        if hits < before_hits or queries < before_queries:
            return  # counted anew
        slot = math.ceil(time / SLOT_SECONDS) - 1  # what a boundary ends lies before it
        if slot != self.slot:
            self._open(slot)
        if (reading.waiting and is_full(reading)) or reading.preemptions != known.preemptions:
            self.disturbed |= 1
        if queries != before_queries or hits != before_hits:
            self.table.add_to_last((hits - before_hits, queries - before_queries))

    def _open(self, slot: int) -> None:
        passed = min(slot - self.slot, SLOTS) if self.table.total else 1
        for _ in range(passed):
            self.table.append((0.0, 0.0))
        self.disturbed = self.disturbed << passed & (1 << SLOTS) - 1
        self.slot = slot
