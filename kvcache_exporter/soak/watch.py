"""Looks at the engines of one server while it is driven, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kvcache_exporter.clock import SteadyClock
from kvcache_exporter.config import Config, static_targets
from kvcache_exporter.explain import Looked
from kvcache_exporter.follow import Follower
from kvcache_exporter.look import look
from kvcache_exporter.model import Judgement
from kvcache_exporter.outside import Outside

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Moment:
    """All engines of the server at one time, added up; None = not told."""

    time: float
    used_blocks: int | None
    pool_blocks: int | None
    running: float | None
    waiting: float | None
    gpu_used_bytes: int | None

    @property
    def idle(self) -> bool:
        """Whether the server says that nobody runs or waits."""
        return self.running == 0.0 and self.waiting == 0.0


class Watch:
    """Start it, read ``moments`` at any time, stop it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.moments: list[Moment] = []
        """Only ever appended to, so it may be read from another thread."""
        self.judgements: tuple[tuple[str, Judgement], ...] = ()
        self.problem: str | None = None
        self.connector = False

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; waits for a look that is under way."""
        self._stop.set()
        self._thread.join(2.0 * self._config.scrape_timeout_seconds)

    def _run(self) -> None:
        asyncio.run(self._look())

    async def _look(self) -> None:
        outside = Outside(self._config, SteadyClock())
        follower = Follower(static_targets(self._config)[0], self._config.judge)
        try:
            while not self._stop.is_set():
                gpus = await outside.world.gpus.read([follower.target], outside.clock())
                self._take(await look(follower, outside, gpus, len(self.moments) + 1))
                await asyncio.to_thread(self._stop.wait, self._config.interval_seconds)
        finally:
            await outside.close()

    def _take(self, looked: Looked) -> None:
        problem = next(iter(looked.reading.problems), None)
        self.problem = problem.text if problem is not None else None
        if not looked.reading.engines:
            return
        readings = looked.reading.engines
        self.connector |= any(reading.connector for reading in readings)
        moment = Moment(
            time=looked.scrape.time,
            used_blocks=_sum([reading.used_blocks for reading in readings]),
            pool_blocks=_sum([reading.pool_blocks for reading in readings]),
            running=_sum([reading.running for reading in readings]),
            waiting=_sum([reading.waiting for reading in readings]),
            gpu_used_bytes=_gpu_bytes(looked),
        )
        self.moments.append(moment)
        self.judgements = tuple((status.engine, status.judgement) for status in looked.engines)


def _sum(values: Sequence[Number | None]) -> Number | None:
    """Add up; None as soon as one does not say."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _gpu_bytes(looked: Looked) -> int | None:
    owned = {gpu.uuid for gpus in looked.assignment.gpus.values() for gpu in gpus}
    sizes = [gpu.used_bytes for gpu in looked.gpus if gpu.uuid in owned]
    return _sum(sizes) if sizes else None
