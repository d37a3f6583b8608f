"""What a simulated engine is, what happens to it, and the trace it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.leaks import Leak
from benchmarks.detection.workload import DAY, Workload

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Hold:
    """Blocks that outlive their request, as on a prefill engine whose peer fetches them."""

    seconds: Span = (0.2, 5.0)
    lost_share: float = 0.0
    """Share of transfers that never happen, released after ``timeout_seconds``."""
    timeout_seconds: float = 480.0
    needs_step: bool = False
    """Older engines release only while they step, so an idle one holds on for hours."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Decode runs at ``tokens_per_second / (1 + running / slowdown)`` for each request."""

    pool_blocks: int = 8192
    max_requests: int = 256
    tokens_per_second: float = 60.0
    slowdown: float = 80.0
    prefill_ratio: float = 300.0
    """Prompt tokens that cost as much as one output token."""
    blocks_per_token: float = 1 / 16
    request_blocks: float = 0.0
    """Blocks a request holds beside its tokens: look-ahead slots, recurrent state."""
    base_blocks: int = 0
    """Counted as used for ever: the null block of old versions, sink blocks."""
    hold: Hold | None = None
    parked_blocks: int = 0
    parked_sessions: int = 0
    """Streaming sessions between turns: they wait, and hold ``parked_blocks`` in all."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A new process after ``down_seconds``; ``announced`` shows in its start time."""

    time: float
    down_seconds: float = 120.0
    pool_blocks: int | None = None
    announced: bool = True


@dataclass(frozen=True, slots=True)
class Incidents:
    """What happens beside load; spans are (begin, end) seconds."""

    restarts: tuple[Restart, ...] = ()
    gaps: tuple[Span, ...] = ()
    """No scrape."""
    hangs: tuple[Span, ...] = ()
    """No step: gauges freeze, requests pile up unseen."""
    pauses: tuple[Span, ...] = ()
    """A hang that the engine admits to."""
    sleeps: tuple[Span, ...] = ()
    """Everything aborted, nothing admitted, and the engine says so."""
    cache_resets: tuple[float, ...] = ()
    clock_jumps: tuple[tuple[float, float], ...] = ()
    """(when, seconds): the scraper's clock is off by that much from then on."""
    duplicate_share: float = 0.0
    """Share of scrapes that are delivered twice."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One engine for a while; ``leak`` None means that every alarm is a false one."""

    name: str
    workload: Workload
    engine: Engine = Engine()
    incidents: Incidents = Incidents()
    leak: Leak | None = None
    seconds: float = 2 * DAY
    interval: float = 15.0
    tags: frozenset[str] = field(default_factory=frozenset)


COLUMNS = (
    "time",
    "up",
    "used",
    "pool",
    "running",
    "waiting",
    "prompt_tokens",
    "generation_tokens",
    "finished_prompt_tokens",
    "finished_generation_tokens",
    "finished_requests",
    "first_tokens",
    "prefix_hit_tokens",
    "prefix_query_tokens",
    "preemptions",
    "http_requests",
    "start_time",
    "sleeping",
    "lost",
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One row a scrape, in ``COLUMNS``; ``lost`` is the truth that no detector may read."""

    scenario: str
    rows: NDArray[np.float64]
    leaky: bool
    connector: bool
    block_size: int = 16

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.rows[:, COLUMNS.index(column)]
        return values

    @property
    def days(self) -> float:
        """Simulated engine-days."""
        return float(self["time"].max() - self["time"].min()) / DAY

    @property
    def onset(self) -> float | None:
        """When two blocks were lost for good; None while healthy."""
        lost = self["lost"] >= 2
        return float(self["time"][lost][0]) if self.leaky and lost.any() else None
