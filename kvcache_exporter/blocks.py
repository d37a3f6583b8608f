"""15-minute blocks: what is kept of the scrapes once they have left the short window."""

from __future__ import annotations

from kvcache_exporter.model import EngineReading
from kvcache_exporter.table import NAN

BLOCK_COLUMNS = (
    "end",  # seconds since the history's origin
    "scrapes",
    "used",  # mean used blocks
    "running",  # mean
    "waiting",  # mean
    "size",  # blocks a running request needs on average
    "low_used",  # lowest used blocks and the requests running then
    "low_running",
    "headroom",  # lowest (used - running): orphans cannot be more
    "saturated",  # share of scrapes with more than 95 % used
    "stalled",  # share of scrapes with running > 0 and no token progress
    "szz",  # within-block sums of load z = running * size and of used
    "szu",
    "hits",  # prefix hit tokens in the block
    "queries",
    "preemptions",
    "completions",
    "aborts",  # estimated: first tokens - finished - running
    "prompt_tokens",
    "generation_tokens",
    "transfer_errors",
    "resident_bytes",  # at the end
)
COUNTERS = {
    "hits": "prefix_hit_tokens",
    "queries": "prefix_query_tokens",
    "preemptions": "preemptions",
    "completions": "completions",
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "transfer_errors": "transfer_errors",
}


class BlockBuilder:
    """Sums over the scrapes of the open block."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.scrapes = 0
        self.used = self.running = self.waiting = 0.0
        self.first: EngineReading | None = None
        self.last: EngineReading | None = None

    def add(self, reading: EngineReading) -> None:
        """Take one scrape into the block."""
        self.scrapes += 1
        self.first = self.first or reading
        self.last = reading
        self.used += reading.used_blocks or 0
        self.running += reading.running or 0
        self.waiting += reading.waiting or 0

    def row(self, end: float) -> list[float]:
        """The block as a row of BLOCK_COLUMNS."""
        values = dict.fromkeys(BLOCK_COLUMNS, NAN)
        count = max(1, self.scrapes)
        values.update(end=end, scrapes=self.scrapes, used=self.used / count)
        values.update(running=self.running / count, waiting=self.waiting / count)
        for column, field in COUNTERS.items():
            values[column] = _difference(self.first, self.last, field)
        return list(values.values())


def _difference(first: EngineReading | None, last: EngineReading | None, field: str) -> float:
    before, after = getattr(first, field, None), getattr(last, field, None)
    return NAN if before is None or after is None else float(after - before)
