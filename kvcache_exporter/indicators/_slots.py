"""Prefix-cache tokens on a dense grid of quarter hours, with the sums of any window at hand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from kvcache_exporter.history import History

SLOT_SECONDS = 900.0
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
        last = int(history.time // SLOT_SECONDS)
        begin = history.epoch_start // SLOT_SECONDS + COLD_START_SLOTS
        slot, hits, queries, disturbed = map(history.hits.column, history.hits.columns)
        rows = range(bisect_left(slot, begin), bisect_left(slot, last))
        if not rows:
            return cls((), ())
        first = int(slot[rows[0]])
        if last - first == len(rows) and not any(disturbed):
            return cls(hits[rows.start : rows.stop], queries[rows.start : rows.stop])
        dense_hits, dense_queries = [0.0] * (last - first), [0.0] * (last - first)
        for row in rows:
            if not disturbed[row]:
                dense_hits[int(slot[row]) - first] = hits[row]
                dense_queries[int(slot[row]) - first] = queries[row]
        keep = history.hits.capacity
        return cls(dense_hits[-keep:], dense_queries[-keep:])

    def tokens(self, begin: int, end: int) -> float:
        """Queried tokens between two slots."""
        return self._queries[end] - self._queries[begin]

    def ratio(self, begin: int, end: int, least_tokens: float) -> float | None:
        """Hit ratio of a window, None when it lies outside or holds too few tokens."""
        if begin < 0 or end > self.count:
            return None
        tokens = self.tokens(begin, end)
        if tokens < least_tokens or tokens <= 0:
            return None
        return (self._hits[end] - self._hits[begin]) / tokens


def recent_ratio(history: History, slots: int) -> float | None:
    """Hit ratio of the last slots, the open one included; None without a lookup in them."""
    oldest = history.time // SLOT_SECONDS - slots
    hits = queries = 0.0
    for back in range(min(slots + 1, len(history.hits))):
        if history.hits.last("slot", back) < oldest:
            break
        hits += history.hits.last("hits", back)
        queries += history.hits.last("queries", back)
    return hits / queries if queries > 0 else None
