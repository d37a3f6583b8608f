"""History blocks: what is kept of the scrapes once they have left the short window.

A block covers ten minutes; once it is ten hours old, six of them are merged into an hour. Within
ten minutes requests come and go often enough that the residuals of neighbouring blocks are
uncorrelated (measured lag-1 correlation between -0.1 and 0.1), so that a block is one observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

from kvcache_exporter.history.table import NAN, Table
from kvcache_exporter.model import EngineReading

TREND_COLUMNS = (
    "end",  # seconds since the history's origin
    "scrapes",  # 0 where the block is no evidence (stalled, or too few scrapes)
    "used",  # mean used blocks
    "running",  # mean requests running
    "prompt_load",  # running times the prompt of a started request, in blocks
    "output_load",  # running times the output of a finished request, in blocks
    "finished_load",  # blocks of the requests that ended
    "saturated",  # share of scrapes with nearly everything used
    "headroom",  # least of used - running: orphans cannot be more
    "hits",  # prefix-cache tokens found ...
    "queries",  # ... and asked for
)
BLOCK_COLUMNS = (
    *TREND_COLUMNS,
    "preemptions",
    "completions",
    "generation_tokens",
    "resident_bytes",  # at the end
)
SUMMED = frozenset({"scrapes", "finished_load", "hits", "queries"})
BLOCK_ROWS, HOUR_ROWS, MERGED = 60, 48, 6
NEARLY_FULL = 0.95
FEW_REQUESTS = 20
"""Below this many requests in a block, the mean size of the block before counts in as well."""
STALLED_SHARE = 0.2
"""Above this share of scrapes with running requests and no token, a block is no evidence."""
USUAL_BLOCK_SIZE = 16
COUNTERS = ("prompt_tokens", "first_tokens", "finished_prompt_tokens",
            "finished_generation_tokens", "finished_requests", "prefix_hit_tokens",
            "prefix_query_tokens", "preemptions", "completions", "generation_tokens")  # fmt: skip
_counters = attrgetter(*COUNTERS)


def new_tables() -> tuple[Table, Table]:
    """Empty tables for the recent blocks and for the hours before them."""
    return Table(BLOCK_COLUMNS, BLOCK_ROWS), Table(TREND_COLUMNS, HOUR_ROWS)


def append_block(blocks: Table, hours: Table, row: list[float], together: int = 1) -> None:
    """Add a block; the sixth that is about to go takes its five predecessors into an hour.

    *together* is how many blocks `trend_columns` will merge into one row, where it does.
    """
    if len(blocks) == BLOCK_ROWS and (blocks.total - BLOCK_ROWS) % MERGED == 0:
        rows = [blocks.row(i)[: len(TREND_COLUMNS)] for i in range(MERGED)]
        hours.append(_hour(rows, together))
    blocks.append(row)


def trend_columns(blocks: Table, hours: Table, together: int = 1) -> list[list[float]]:
    """TREND_COLUMNS one by one, oldest row first, of all rows that are evidence.

    *together* recent blocks are merged into one row, from the newest back.
    """
    merged = -(blocks.total - len(blocks)) % MERGED
    recent: Sequence[Sequence[float]]
    if together == 1:
        recent = [blocks.column(name)[merged:] for name in TREND_COLUMNS]
    else:
        recent = _grouped(blocks, merged, together)
    columns = [[*hours.column(name), *new] for name, new in zip(TREND_COLUMNS, recent, strict=True)]
    kept = [count > 0 for count in columns[1]]
    if all(kept):
        return columns
    return [[v for v, keep in zip(c, kept, strict=True) if keep] for c in columns]


def _grouped(blocks: Table, skip: int, together: int) -> Sequence[Sequence[float]]:
    rows = [blocks.row(i)[: len(TREND_COLUMNS)] for i in range(skip, len(blocks))]
    first = len(rows) % together
    groups = [_merge(rows[i : i + together]) for i in range(first, len(rows), together)]
    return list(zip(*groups, strict=True)) or [()] * len(TREND_COLUMNS)


def _hour(rows: list[list[float]], together: int) -> list[float]:
    """One row for six; its headroom is the mean of the leasts of *together* blocks each.

    The least of an hour would be lower than those of the rows after it, as if blocks were lost.
    """
    merged, at = _merge(rows), TREND_COLUMNS.index("headroom")
    known = [row[at] for row in rows if row[1] > 0]
    first = len(known) % together if len(known) > together else 0
    least = [min(known[i : i + together]) for i in range(first, len(known), together)]
    merged[at] = sum(least) / len(least) if least else NAN
    return merged


def _merge(rows: list[list[float]]) -> list[float]:
    """One row for several: sums, the least headroom, means weighted by scrapes."""
    rows = [row for row in rows if row[1] > 0] or rows
    total = sum(row[1] for row in rows)
    merged = []
    for index, name in enumerate(TREND_COLUMNS):
        values = [row[index] for row in rows]
        if name in SUMMED:
            merged.append(sum(values))
        elif name == "headroom":
            merged.append(min(values))
        elif name == "end":
            merged.append(max(values))
        elif not total:
            merged.append(sum(values) / len(values))
        else:
            merged.append(sum(row[index] * row[1] for row in rows) / total)
    return merged


class BlockBuilder:
    """Sums over the scrapes of the open block."""

    __slots__ = (
        "first",
        "full",
        "headroom",
        "last",
        "running",
        "scrapes",
        "sizes",
        "stalled",
        "start",
        "used",
    )  # fmt: skip

    def __init__(self, start: float, first: EngineReading, sizes: tuple[float, float]) -> None:
        self.start = start
        self.first = _counters(first)
        """Where the block's counters began."""
        self.last = first
        self.sizes = sizes
        """Blocks of a prompt and of an output in the block before, NAN = not known."""
        self.scrapes = self.full = self.stalled = 0
        self.used = self.running = 0.0
        self.headroom = math.inf

    def add(self, reading: EngineReading) -> None:
        """Take one scrape into the block; one without usage or running says nothing."""
        used, running, last = reading.used_blocks, reading.running, self.last
        self.last = reading
        if used is None or running is None:
            return
        self.scrapes += 1
        self.used += used
        self.running += running
        if used - running < self.headroom:
            self.headroom = used - running
        if reading.pool_blocks and used > NEARLY_FULL * reading.pool_blocks:
            self.full += 1
        if (
            running
            and reading.generation_tokens is not None
            and reading.generation_tokens == last.generation_tokens
            and reading.prompt_tokens == last.prompt_tokens
        ):
            self.stalled += 1

    def row(self, end: float, expected_scrapes: float) -> list[float]:
        """Row of BLOCK_COLUMNS; less than half of the expected scrapes are no evidence."""
        count = self.scrapes
        evidence = count and count >= expected_scrapes / 2 and self.stalled <= STALLED_SHARE * count
        used, running = self.used / max(1, count), self.running / max(1, count)
        gained = self._gained()
        self.sizes = self._sizes(gained)
        prompt, output = (0.0 if size != size else size for size in self.sizes)
        return [
            end,
            count if evidence else 0.0,
            used,
            running,
            running * prompt,
            running * output,
            self._finished(gained),
            self.full / max(1, count),
            self.headroom if count else NAN,
            gained["prefix_hit_tokens"],
            gained["prefix_query_tokens"],
            gained["preemptions"],
            gained["completions"],
            gained["generation_tokens"],
            self.last.resident_memory_bytes or NAN,
        ]

    def _gained(self) -> dict[str, float]:
        pairs = zip(self.first, _counters(self.last), strict=True)
        steps = (NAN if a is None or b is None else float(b - a) for a, b in pairs)
        return dict(zip(COUNTERS, steps, strict=True))

    def _sizes(self, gained: Mapping[str, float]) -> tuple[float, float]:
        prompt, output = self.sizes
        block = self.last.block_size_tokens or USUAL_BLOCK_SIZE
        return (
            _size(gained["prompt_tokens"] / block, gained["first_tokens"], prompt),
            _size(
                gained["finished_generation_tokens"] / block,
                gained["finished_requests"],
                output,
            ),
        )

    def _finished(self, gained: Mapping[str, float]) -> float:
        block = self.last.block_size_tokens or USUAL_BLOCK_SIZE
        ended = gained["finished_prompt_tokens"] + gained["finished_generation_tokens"]
        blocks = ended / block + gained["finished_requests"]
        return 0.0 if math.isnan(blocks) else blocks


def _size(total: float, count: float, before: float) -> float:
    """Mean size in this block; fewer than FEW_REQUESTS are filled up with the size before."""
    if math.isnan(total) or not count > 0:
        return before
    if count >= FEW_REQUESTS or math.isnan(before):
        return total / count
    return (total + before * (FEW_REQUESTS - count)) / FEW_REQUESTS
