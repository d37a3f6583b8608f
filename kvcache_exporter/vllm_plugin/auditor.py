"""One engine's audit: when to sample, what happened in between, what to tell."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvcache_exporter.vllm_plugin.walk import (
    GHOST,
    Counts,
    Snapshot,
    UnsupportedError,
    count,
    snapshot,
)

SAMPLE_SECONDS = 1.0
COST_SHARE = 0.002
"""At most this share of the engine thread's time goes into copies; large pools wait longer."""
COUNT_SHARE = 0.01
"""At most this share of a core goes into counting, which shares Python's lock with the engine."""
PAUSE_SECONDS = 0.0005
"""Between two chunks: long enough for a waiting thread to get the lock."""
SETTLE_SECONDS = 10.0
"""A block must stay nobody's this long: frees may be a step behind."""
CONNECTOR_SETTLE_SECONDS = 600.0
"""A connector may pin blocks without a request while it transfers them."""
EVENTS = ("abort", "request", "preemption", "transfer_error")


class Auditor:
    """Watches one scheduler; ``step`` is called in the engine's thread after each step."""

    def __init__(self, scheduler: Any, clock: Callable[[], float] = time.time) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._due = 0.0
        self._events: Counter[str] = Counter()
        self._orphaned: deque[tuple[float, int]] = deque(maxlen=1024)
        self._ghosts: deque[tuple[float, int]] = deque(maxlen=1024)
        self._after: Counter[str] = Counter()
        self._work: queue.Queue[tuple[Snapshot, Counter[str]]] = queue.Queue(maxsize=1)
        self._counts: Counts | None = None
        self._copy_seconds = 0.0
        self._count_seconds = 0.0
        self._samples = 0
        self._baseline = 0
        self.unsupported: str | None = None
        self._connector = getattr(scheduler, "connector", None) is not None
        with suppress(Exception):  # told as unsupported at the first sample
            # Some releases set blocks aside at start that are neither free nor anybody's.
            self._baseline = count(snapshot(scheduler, clock())).orphaned
        threading.Thread(target=self._run, name="kvcache-audit", daemon=True).start()

    def step(self) -> None:
        """Take a sample if one is due; costs a comparison otherwise."""
        if self._clock() >= self._due and self.unsupported is None:
            self._sample()

    def happened(self, event: str) -> None:
        """Count an end of a request, for what precedes new orphans."""
        self._events[event] += 1

    def report(self) -> dict[str, Any]:
        """Say what is known now; an idle engine is sampled here, for it makes no steps."""
        if self._is_idle() and self._clock() >= self._due and self.unsupported is None:
            self._sample(still=self._is_idle)
            time.sleep(0.05)  # the count follows in the other thread
        counts = self._counts
        told: dict[str, Any] = {
            "format": 1,
            "pid": os.getpid(),
            "engine": str(engine_rank(self._scheduler)),
            "supported": self.unsupported is None,
            "reason": self.unsupported,
            "connector": self._connector,
            "samples": self._samples,
            "copy_seconds": round(self._copy_seconds, 6),
            "count_seconds": round(self._count_seconds, 6),
        }
        if counts is not None:
            told |= {
                "time": counts.time,
                "age_seconds": round(self._clock() - counts.time, 3),
                "pool_blocks": counts.pool_blocks,
                "free_blocks": counts.free_blocks,
                "cached_blocks": counts.cached_blocks,
                "owners": dict(counts.owners) | {"set_aside": self._baseline},
                "requests": dict(counts.requests),
                "oldest_seconds": dict(counts.oldest_seconds),
                "orphaned_blocks": counts.orphaned,
                "settled_orphaned_blocks": self._settled(self._orphaned),
                "settled_ghost_blocks": self._settled(self._ghosts),
                "orphaned_after": dict(self._after),
            }
        return told

    def _sample(self, still: Callable[[], bool] = lambda: True) -> None:
        """Copy what is there, unless it turns out that it has not stood *still* meanwhile."""
        start = time.perf_counter()
        try:
            seen = snapshot(self._scheduler, self._clock())
        except UnsupportedError as error:
            self.unsupported = str(error)
            return
        except RuntimeError:  # a table changed under us, which only an idle sample can meet
            return
        if not still():
            return
        self._copy_seconds = time.perf_counter() - start
        self._due = self._clock() + sample_interval(self._copy_seconds, self._count_seconds)
        with suppress(queue.Full):  # the last one is still being counted: this one is left out
            self._work.put_nowait((seen, self._events))
            self._events = Counter()

    def _run(self) -> None:
        while True:
            seen, events = self._work.get()
            begin = time.thread_time()
            try:
                counts = count(seen, self._baseline, lambda: time.sleep(PAUSE_SECONDS))
            except Exception as error:
                self.unsupported = f"counting failed: {type(error).__name__}: {error}"
                continue
            self._count_seconds = time.thread_time() - begin
            self._attribute(counts.orphaned, events)
            self._orphaned.append((counts.time, counts.orphaned))
            self._ghosts.append((counts.time, counts.owners[GHOST]))
            self._counts, self._samples = counts, self._samples + 1

    def _attribute(self, orphaned: int, events: Counter[str]) -> None:
        """Put new orphans down to the kind of end before them, if it was one kind only."""
        before = self._orphaned[-1][1] if self._orphaned else 0
        kinds = [event for event in EVENTS if events[event]]
        if orphaned > before:
            self._after[kinds[0] if len(kinds) == 1 else "several"] += orphaned - before

    def _settled(self, samples: deque[tuple[float, int]]) -> int | None:
        """Smallest number in the time to settle, its first moment included; None = too early."""
        wait = CONNECTOR_SETTLE_SECONDS if self._connector else SETTLE_SECONDS
        seen = tuple(samples)  # the counting thread may add to it meanwhile
        before = [place for place, (time, _) in enumerate(seen) if time <= seen[-1][0] - wait]
        return min(blocks for _, blocks in seen[before[-1] :]) if before else None

    def _is_idle(self) -> bool:
        try:
            return not self._scheduler.has_requests()
        except Exception:
            return False


def sample_interval(copy_seconds: float, count_seconds: float) -> float:
    """Return seconds until the next sample, for what the last one took."""
    return max(SAMPLE_SECONDS, copy_seconds / COST_SHARE, count_seconds / COUNT_SHARE)


def engine_rank(scheduler: Any) -> int:
    """Return what this engine is called on vLLM's page; 0 where there is only one.

    Engines of a dense model are told that they are rank 0 of 1; the index is still their own.
    """
    config = getattr(scheduler, "vllm_config", None)
    parallel = getattr(config, "parallel_config", None) or getattr(
        scheduler, "parallel_config", None
    )
    rank = getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0))
    return rank if isinstance(rank, int) else 0
