"""Prefix-cache tokens on a dense grid of quarter hours, with the sums of any window at hand."""

from __future__ import annotations

from itertools import accumulate

from kvcache_exporter.history import History

SLOT_SECONDS = 900.0
COLD_START_SLOTS = 2
"""Half an hour after a restart or a change of capacity the cache is still being filled."""


class Slots:
    """The finished slots of this epoch; windows are counted back from the newest one, exclusive."""

    def __init__(self, first: int, hits: list[float], queries: list[float]) -> None:
        self.first = first
        self.count = len(hits)
        self._hits = [0.0, *accumulate(hits)]
        self._queries = [0.0, *accumulate(queries)]

    @classmethod
    def of(cls, history: History, now: float | None = None) -> Slots:
        """Build from the history; disturbed slots and the cold start count as empty."""
        last = int(now if now is not None else history.time // SLOT_SECONDS)
        begin = history.epoch_start // SLOT_SECONDS + COLD_START_SLOTS
        table = history.hits
        rows = [
            (int(slot), hit, query)
            for slot, hit, query, disturbed in zip(
                *(table.column(name) for name in table.columns), strict=True
            )
            if begin <= slot < last and not disturbed
        ]
        first = max(min((row[0] for row in rows), default=last), last - table.capacity)
        hits, queries = [0.0] * (last - first), [0.0] * (last - first)
        for slot, hit, query in rows:
            if slot >= first:
                hits[slot - first] += hit
                queries[slot - first] += query
        return cls(first, hits, queries)

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
