"""One engine's audit: when to sample, what happened in between, what to tell."""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvcache_exporter.vllm_plugin.known import Known
from kvcache_exporter.vllm_plugin.walk import (
    GHOST,
    Snapshot,
    UnsupportedError,
    count,
    nobodys_blocks,
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
"""A connector may pin blocks without a request while it transfers them; so they are told as its."""
RETRY_SECONDS = 60.0
"""After a failure: seldom, for it may fail each time; not never, for it may have been chance."""
EVENTS = ("abort", "request", "preemption", "transfer_error")


class Auditor:
    """Watches one scheduler; ``step`` is called in the engine's thread after each step.

    Waits are measured by *clock*, which nobody sets back; only what is told has the time of day.
    """

    def __init__(self, scheduler: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._due = 0.0
        self._events: Counter[str] = Counter()
        self._orphaned: deque[tuple[float, int]] = deque(maxlen=1024)
        self._ghosts: deque[tuple[float, int]] = deque(maxlen=1024)
        self._after: Counter[str] = Counter()
        self._work: queue.Queue[tuple[float, Snapshot, Counter[str]]] = queue.Queue(maxsize=1)
        self._known: Known | None = None
        self._copy_seconds = 0.0
        self._count_seconds = 0.0
        self._baseline = 0
        self.unsupported: str | None = None
        self._connector = getattr(scheduler, "connector", None) is not None
        with suppress(Exception):  # told as unsupported at the first sample
            # Some releases set blocks aside at start that are neither free nor anybody's.
            self._baseline = nobodys_blocks(snapshot(scheduler, 0.0))
        threading.Thread(target=self._run, name="kvcache-audit", daemon=True).start()

    def step(self) -> None:
        """Take a sample if one is due; costs a comparison otherwise."""
        if self._clock() >= self._due:
            self._sample()

    def happened(self, event: str) -> None:
        """Count an end of a request, for what precedes new orphans."""
        self._events[event] += 1

    def report(self) -> dict[str, Any]:
        """Say what is known now; an idle engine is sampled here, for it makes no steps."""
        if self._is_idle() and self._clock() >= self._due:
            self._sample(still=self._is_idle)
            time.sleep(0.05)  # the count follows in the other thread
        known = self._known
        told = {
            "format": 1,
            "pid": os.getpid(),
            "engine": str(engine_rank(self._scheduler)),
            "supported": self.unsupported is None,
            "reason": self.unsupported,
            "connector": self._connector,
            "samples": 0 if known is None else known.samples,
            "copy_seconds": round(self._copy_seconds, 6),
            "count_seconds": round(self._count_seconds, 6),
        }
        return told if known is None else told | known.told(self._clock(), self._baseline)

    def _sample(self, still: Callable[[], bool] = lambda: True) -> None:
        """Copy what is there, unless it turns out that it has not stood *still* meanwhile."""
        start, now = time.perf_counter(), self._clock()
        self._due = now + RETRY_SECONDS
        try:
            seen = snapshot(self._scheduler, time.time())
        except RuntimeError:  # a table changed under us, which only an idle sample can meet
            self._due = now + SAMPLE_SECONDS
            return
        except Exception as error:
            self.unsupported = _reason("looking", error)
            return
        self._copy_seconds = time.perf_counter() - start
        self._due = now + sample_interval(self._copy_seconds, self._count_seconds)
        if not still():
            return
        with suppress(queue.Full):  # the last one is still being counted: this one is left out
            self._work.put_nowait((now, seen, self._events))
            self._events = Counter()

    def _run(self) -> None:
        while True:
            try:
                self._count(*self._work.get())
                self.unsupported = None
            except Exception as error:
                self.unsupported = _reason("counting", error)

    def _count(self, now: float, seen: Snapshot, events: Counter[str]) -> None:
        begin = time.thread_time()
        counts = count(seen, self._baseline, lambda: time.sleep(PAUSE_SECONDS))
        self._count_seconds = time.thread_time() - begin
        self._attribute(counts.orphaned, events)
        self._orphaned.append((now, counts.orphaned))
        self._ghosts.append((now, counts.owners[GHOST]))
        samples = 1 if self._known is None else self._known.samples + 1
        lost, ghosts = self._settled(self._orphaned), self._settled(self._ghosts)
        pinned = counts.orphaned - (lost or 0) if self._connector else 0
        self._known = Known(now, counts, lost, ghosts, pinned, dict(self._after), samples)

    def _attribute(self, orphaned: int, events: Counter[str]) -> None:
        """Put new orphans down to the kind of end before them, if it was one kind only."""
        before = self._orphaned[-1][1] if self._orphaned else 0
        kinds = [event for event in EVENTS if events[event]]
        if orphaned > before and not self._connector:  # that may have pinned them
            self._after[kinds[0] if len(kinds) == 1 else "several"] += orphaned - before

    def _settled(self, samples: deque[tuple[float, int]]) -> int | None:
        """Smallest number in the time to settle, its first moment included; None = too early."""
        wait = CONNECTOR_SETTLE_SECONDS if self._connector else SETTLE_SECONDS
        last = samples[-1][0]
        before = [place for place, (at, _) in enumerate(samples) if at <= last - wait]
        return min(blocks for _, blocks in tuple(samples)[before[-1] :]) if before else None

    def _is_idle(self) -> bool:
        try:
            return not self._scheduler.has_requests()
        except Exception:
            return False


def _reason(what: str, error: Exception) -> str:
    if isinstance(error, UnsupportedError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__)  # its text might have a request's id
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    return f"{what} failed: {type(error).__name__} at {place}"


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
