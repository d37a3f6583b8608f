"""One simulated engine: a workload, a scheduler and a KV cache on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from .config import EngineConfig
from .kv_cache import KVCache
from .leaks import lost_between
from .metrics import Metrics
from .page import EngineLabels
from .request import Request
from .scheduler import Scheduler
from .workload import Workload, requests


class Engine:
    """Deterministic by seed, however the time is cut into calls of `advance`."""

    def __init__(
        self, config: EngineConfig, workload: Workload, seed: int, start_time: float = 1.8e9
    ) -> None:
        self.config = config
        self.clock = 0.0
        """Virtual seconds since the simulation began; `start_time` is that moment in unix time."""
        self._epoch = start_time
        self._seed = seed
        self._requests: Iterator[Request] = requests(workload, Random(seed))  # noqa: S311
        self._next = next(self._requests)
        self._now = 0.0
        self._is_hung = False
        self._is_asleep = False
        self.restart()

    @property
    def used_blocks(self) -> int:
        """Blocks with a reference now, whatever the frozen gauges say."""
        return self.scheduler.cache.pool.used_blocks

    @property
    def leaked_blocks(self) -> int:
        """Blocks that nobody owns and that are never given back: the truth to find."""
        return self.scheduler.cache.pool.leaked_blocks

    def restart(self, num_gpu_blocks: int | None = None) -> None:
        """Begin anew with an empty pool and counters at 0; leaks with a start time go on."""
        config = self.config
        blocks = num_gpu_blocks or config.num_gpu_blocks
        self.metrics = Metrics(config.templates, self._epoch + self.clock)
        cache = KVCache(blocks, config.block_size, config.prefix_caching)
        rng = Random(self._seed + 1)  # noqa: S311
        self.scheduler = Scheduler(cache, self.metrics, config, rng)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock += seconds
        if self._is_hung:
            return
        while (start := self._next_start()) + self.config.step_seconds <= self.clock:
            self._step(start)

    def hang(self) -> None:
        """Stop stepping: gauges freeze, requests pile up at the door."""
        self._is_hung = True

    def stall(self) -> None:
        """Keep stepping without computing: requests wait, none completes."""
        self.scheduler.is_stalled = True

    def sleep(self, level: int = 1) -> None:
        """Abort everything, give the memory back and turn requests away."""
        self.scheduler.abort_all(self.clock)
        self.scheduler.cache.prefix.clear()
        self.metrics.set_sleep_level(level)
        self._is_asleep = True

    def resume(self) -> None:
        """End a hang, a stall or a sleep."""
        self._now = max(self._now, self.clock)
        self._is_hung = self._is_asleep = self.scheduler.is_stalled = False
        self.metrics.set_sleep_level(0)

    def labels(self, rank: str = "0", pool_label: int | None = None) -> EngineLabels:
        """Say how the engine appears on a page; `pool_label` is the sum over ranks."""
        pool = self.scheduler.cache.pool.num_gpu_blocks
        size = self.config.block_size
        return EngineLabels(
            rank,
            self.config.model_name,
            (
                ("block_size", str(size)),
                ("effective_attention_block_size", str(size)),
                ("enable_prefix_caching", str(self.config.prefix_caching)),
                ("kv_cache_memory_bytes", "None"),
                ("kv_cache_max_concurrency", str(pool * size / 2048)),
                ("kv_cache_size_tokens", str(pool * size)),
                ("num_gpu_blocks", str(pool_label or pool)),
                ("num_gpu_blocks_override", "None"),
                ("user_specified_block_size", "True"),
            ),
        )

    def _next_start(self) -> float:
        """Find when the next step can begin: at once with requests, else at the next event."""
        if self.scheduler.has_requests:
            return self._now
        release_time = self.scheduler.next_release_time
        return max(self._now, min(self._next.arrival_time, release_time))

    def _step(self, start: float) -> None:
        end = start + self.config.step_seconds
        while self._next.arrival_time <= start:
            self._enqueue(self._next)
            self._next = next(self._requests)
        self.scheduler.cache.lose(lost_between(self.config.leaks, self._now, end))
        self.scheduler.step(start, self.config.step_seconds)
        self._now = end

    def _enqueue(self, request: Request) -> None:
        if self._is_asleep:
            return
        if len(self.scheduler.waiting) >= self.config.max_num_queued_reqs:
            self.metrics.add('vllm:admission_rejections_total{reason="max_num_queued_reqs"}')
            return
        self.scheduler.waiting.append(request)
