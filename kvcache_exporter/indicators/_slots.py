"""Prefix-cache tokens of quarter hours, with the sums and the ratio of any window at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kvcache_exporter.history import History
from kvcache_exporter.history.hits import HITS, SLOT_SECONDS

COLD_START_SLOTS = 2
"""Half an hour after a restart or a change of capacity the cache is still being filled."""


class Slots:
    """The finished slots of this epoch, oldest first; a window is begin and end (exclusive)."""

    def __init__(self, hits: Sequence[float], queries: Sequence[float]) -> None:
        self.count = len(hits)
        self._hits = list(accumulate(hits, initial=0.0))
        self._queries = list(accumulate(queries, initial=0.0))

    @classmethod
    def of(cls, history: History) -> Slots:
        """Build from the history; disturbed slots and the cold start count as empty."""
        log, now = history.hits, int(history.time // SLOT_SECONDS)
        oldest = log.slot - len(log.table) + 1
        begin = int(history.epoch_start // SLOT_SECONDS) + COLD_START_SLOTS
        part = slice(max(0, begin - oldest), max(0, now - oldest))
        silent = [0.0] * min(now - log.slot - 1, log.table.capacity)
        columns = [list(log.table.column(name)) for name in HITS]
        for column in columns if log.disturbed else ():
            for back in range(log.disturbed.bit_length()):
                if log.disturbed >> back & 1:
                    column[-1 - back] = 0.0
        hits, queries = ((column + silent)[part] for column in columns)
        return cls(hits, queries)

    def hits(self, begin: int, end: int) -> float:
        """Tokens found between two slots."""
        return self._hits[end] - self._hits[begin]

    def tokens(self, begin: int, end: int) -> float:
        """Queried tokens between two slots."""
        return self._queries[end] - self._queries[begin]

    def sums(self, begin: int, end: int) -> tuple[float, float]:
        """Tokens found and queried between two slots."""
        hits, queries = self._hits, self._queries
        return hits[end] - hits[begin], queries[end] - queries[begin]

    def ratio(self, begin: int, end: int, least_tokens: float) -> float | None:
        """Hit ratio of a window, None when it lies outside or holds too few tokens."""
        if begin < 0 or end > self.count:
            return None
        tokens = self._queries[end] - self._queries[begin]
        if tokens < least_tokens or tokens <= 0:
            return None
        return (self._hits[end] - self._hits[begin]) / tokens


def recent_ratio(history: History, slots: int) -> float | None:
    """Hit ratio of the last slots, the open one included; None without a lookup in them."""
    log = history.hits
    oldest = int(history.time // SLOT_SECONDS) - slots
    newest = max(0, min(len(log.table), log.slot - oldest + 1))
    hits, queries = (sum(log.table.column(name)[-newest:]) for name in HITS) if newest else (0, 0)
    return hits / queries if queries > 0 else None
