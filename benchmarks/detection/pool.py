"""The paged cache of one simulated process: who holds which blocks.

Decoding shares the engine, so progress is kept as one virtual clock of output tokens that all
running requests advance by together; a request is a pair of the clock at its first token and the
tokens that it shares with nobody.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from benchmarks.detection.scenario import Engine
from benchmarks.detection.workload import Requests

NEVER = float("inf")


class Pool:
    """Counts of blocks; fractions while requests run, for each wastes half a block on average."""

    def __init__(self, engine: Engine, requests: Requests, size: int) -> None:
        self.engine, self.requests, self.size = engine, requests, size
        groups = len(requests.group_tokens)
        self.clock = self.allocated = 0.0
        self.running: dict[int, tuple[float, int]] = {}
        self.own_blocks = self.begin_sum = 0.0
        self.references = [0] * groups
        self.cached_at = [-NEVER] * groups
        self.shared_blocks = self.held_blocks = self.lost = 0
        self.held: list[tuple[float, int]] = []

    def used(self) -> float:
        """Expected blocks in use, the null block not counted."""
        tokens = len(self.running) * self.clock - self.begin_sum
        return self.own_blocks + tokens * self.engine.blocks_per_token + self._fixed()

    def shown(self) -> int:
        """Exact blocks in use, as the gauge tells them."""
        per, extra, clock = self.engine.blocks_per_token, self.engine.request_blocks, self.clock
        own = sum(
            math.ceil((tokens + max(0.0, clock - begin)) * per + extra)
            for begin, tokens in self.running.values()
        )
        return min(self.size, own + self._fixed() + self.engine.base_blocks)

    def _fixed(self) -> int:
        return self.shared_blocks + self.held_blocks + self.lost + self.engine.parked_blocks

    def needed(self, i: int) -> float:
        """Blocks that must be free to admit a request."""
        shared, group = self._shared(i), self.requests.group[i]
        own = (self.requests.prompt[i] - shared) * self.engine.blocks_per_token
        new = shared // 16 if group >= 0 and not self.references[group] else 0
        return own + 1 + self.engine.request_blocks + new

    def fits_ever(self, i: int) -> bool:
        """Whether an otherwise idle engine could run the request."""
        return self.needed(i) <= self.size - self.lost - self.engine.parked_blocks

    def start(self, i: int, used: float) -> tuple[float, int]:
        """Allocate a request; return the clock at its first token, and its cached tokens."""
        prompt, group, shared = self.requests.prompt[i], self.requests.group[i], self._shared(i)
        hit = 0
        if group >= 0:
            kept = self.allocated - self.cached_at[group] < self.size - used
            hit = shared if self.references[group] or kept else 0
            self.shared_blocks += 0 if self.references[group] else shared // 16
            self.references[group] += 1
        begin = self.clock + (prompt - hit) / self.engine.prefill_ratio
        self.running[i] = (begin, prompt - shared)
        self.own_blocks += self._share(prompt - shared)
        self.begin_sum += begin
        self.allocated += prompt / 16 + self.requests.output[i] / 16
        return begin, hit

    def stop(self, i: int) -> int:
        """Take a request off the engine; return the blocks it had of its own."""
        begin, own = self.running.pop(i)
        self.own_blocks -= self._share(own)
        self.begin_sum -= begin
        done = max(0.0, self.clock - begin)
        group = self.requests.group[i]
        if group >= 0:
            self.references[group] -= 1
            if not self.references[group]:
                self.shared_blocks -= self.requests.group_tokens[group] // 16
                self.cached_at[group] = self.allocated
        return math.ceil((own + done) * self.engine.blocks_per_token + self.engine.request_blocks)

    def _shared(self, i: int) -> int:
        group = self.requests.group[i]
        return self.requests.group_tokens[group] if group >= 0 else 0

    def _share(self, own_tokens: int) -> float:
        return own_tokens * self.engine.blocks_per_token + 0.5 + self.engine.request_blocks

    def lose(self, blocks: int) -> None:
        """Blocks that nobody will ever give back."""
        self.lost = min(self.size, self.lost + blocks)

    def hold(self, time: float, blocks: int, rng: np.random.Generator) -> None:
        """Keep the blocks of a finished request until its transfer is done, or given up."""
        if hold := self.engine.hold:
            lost = rng.random() < hold.lost_share
            wait = hold.timeout_seconds if lost else rng.uniform(*hold.seconds)
            heapq.heappush(self.held, (time + wait, blocks))
            self.held_blocks += blocks

    def release(self, time: float) -> None:
        """Free what was held until now."""
        while self.held and self.held[0][0] <= time:
            self.held_blocks -= heapq.heappop(self.held)[1]

    def forget_cached(self) -> None:
        """``reset_prefix_cache``: nothing cached can be hit any more."""
        self.cached_at = [-NEVER] * len(self.cached_at)

    def decoded(self) -> float:
        """Output tokens of the requests that still run."""
        return sum(max(0.0, self.clock - begin) for begin, _ in self.running.values())
