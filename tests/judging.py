"""Observations of an engine that serves, idles and loses blocks as told, for tests of the judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from kvcache_exporter.judge import Judge
from kvcache_exporter.model import EngineReading, Judgement, Observation

START = 1_790_000_000.0
POOL = 8192
HOUR = 3600.0


class Engine:
    """Serves requests of about 60 blocks each; ``lost`` blocks are used on top."""

    def __init__(self, seed: int = 1, interval: float = 15.0, **constants: object) -> None:
        self.random = random.Random(seed)
        self.interval = interval
        self.time = START
        self.lost = 0.0
        self.reading = EngineReading(
            "0",
            running=0.0,
            waiting=0.0,
            pool_blocks=POOL,
            block_size_tokens=16,
            prompt_tokens=0.0,
            generation_tokens=0.0,
            finished_prompt_tokens=0.0,
            finished_generation_tokens=0.0,
            finished_requests=0.0,
            first_tokens=0.0,
            completions=0.0,
            process_start_time_seconds=START,
        )
        self.constants = constants

    def busy(
        self, seconds: float, running: float = 20.0, lose: Callable[[float], float] | None = None
    ) -> Iterator[Observation]:
        """Serve; *lose* gives the blocks lost so far from the seconds since the call."""
        begin, before = self.time, self.lost
        while self.time < begin + seconds:
            if lose is not None:
                self.lost = before + lose(self.time - begin)
            now = max(1, round(self.random.gauss(running, running**0.5)))
            used = sum(self.random.uniform(20, 100) for _ in range(now))
            yield self._scrape(now, used, requests=4)

    def idle(self, seconds: float) -> Iterator[Observation]:
        """Nothing runs."""
        begin = self.time
        while self.time < begin + seconds:
            yield self._scrape(0, 0.0, requests=0)

    def restart(self) -> None:
        """Let a new process answer from now on: nothing is lost, counters begin at 0."""
        fresh = Engine().reading
        self.reading = replace(fresh, process_start_time_seconds=self.time)
        self.lost = 0.0

    def _scrape(self, running: int, used: float, requests: int) -> Observation:
        self.time += self.interval
        blocks = min(POOL, round(used + self.lost))
        grown = {
            name: (getattr(self.reading, name) or 0.0) + amount * requests
            for name, amount in (
                ("prompt_tokens", 800),
                ("generation_tokens", 160),
                ("finished_prompt_tokens", 800),
                ("finished_generation_tokens", 160),
                ("finished_requests", 1),
                ("first_tokens", 1),
                ("completions", 1),
            )
        }
        self.reading = replace(
            self.reading,
            running=float(running),
            used_blocks=blocks,
            usage_ratio=blocks / POOL,
            **grown,
        )
        seen = replace(self.reading, **self.constants)  # type: ignore[arg-type]
        return Observation(self.time, "engine", "0", seen)


def judge_all(judge: Judge, observations: Iterator[Observation]) -> list[Judgement]:
    """What the judge says after each observation, and in the end."""
    return [*(judge.observe(seen) for seen in observations), judge.conclude()]
