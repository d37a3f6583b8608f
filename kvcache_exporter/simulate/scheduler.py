"""Continuous batching: who computes in a step, who is admitted, who is preempted."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from random import Random

from .config import EngineConfig
from .kv_cache import KVCache
from .leaks import Event, lost_at
from .metrics import Metrics
from .request import Request


@dataclass(slots=True)
class Step:
    """What is left to do, and what has been done, between two moments."""

    start: float
    end: float
    budget: int
    """Prefill tokens that can still be computed."""
    decode: int
    """Tokens that each decoding request gets."""
    computed: int = 0
    decoded: int = 0

    def share_of(self, request: Request) -> int:
        """Count the tokens that a running request computes."""
        missing = request.prefill_tokens - request.computed_tokens
        if missing > 0:
            return min(self.budget, missing)
        return min(self.decode, request.last_token - request.generated_tokens)


class Scheduler:
    """First come, first served; a head of the queue that does not fit blocks the rest.

    One call of `step` stands for as many engine steps as fit into its seconds.
    """

    def __init__(self, cache: KVCache, metrics: Metrics, config: EngineConfig, rng: Random) -> None:
        self.cache = cache
        self.metrics = metrics
        self.config = config
        self.rng = rng
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.held: deque[tuple[float, Request]] = deque()
        """(release time, request) whose blocks wait to be read after the request has ended."""
        self.is_stalled = False
        self._decode_carry = 0.0

    @property
    def has_requests(self) -> bool:
        """Whether there is anything to do now."""
        return bool(self.waiting or self.running)

    @property
    def next_release_time(self) -> float:
        """When the next held blocks become free, infinity if none are held."""
        return self.held[0][0] if self.held else math.inf

    def step(self, now: float, seconds: float) -> None:
        """Compute for some seconds, free what has ended, admit, and publish the gauges."""
        self._release_held(now)
        if not self.is_stalled:
            budget = int(self.config.speed.prefill_tokens_per_second * seconds)
            step = Step(now, now + seconds, budget, self._decode_tokens(seconds))
            self._compute_running(step)
            self._end_requests(step.end)
            self._admit(step)
            self.metrics.record_step(step.computed, step.decoded, step.decode, seconds)
        self.publish()

    def publish(self) -> None:
        """Refresh the gauges, which only a step does."""
        usage = self.cache.pool.usage
        self.metrics.set_gauges(len(self.running), len(self.waiting), usage)

    def abort_all(self, now: float) -> None:
        """End every request, as going to sleep does."""
        for request in self.running:
            self._free(request, "abort", now)
        self._release_held(math.inf)
        self.running.clear()
        self.waiting.clear()
        self.publish()

    def _decode_tokens(self, seconds: float) -> int:
        """Count the tokens each decoding request gets, carrying fractions to the next step."""
        slowdown = 1 + len(self.running) / self.config.speed.half_speed_requests
        exact = self.config.speed.decode_tokens_per_second / slowdown * seconds + self._decode_carry
        self._decode_carry = exact % 1
        return int(exact)

    def _compute_running(self, step: Step) -> None:
        """Serve the running requests in order, preempting from the end where blocks run out."""
        index = 0
        while index < len(self.running):
            request = self.running[index]
            tokens = step.share_of(request)
            while not self.cache.extend(request, request.computed_tokens + tokens):
                self._preempt(step.end)
                if index == len(self.running):
                    return  # the last to come was this request itself
            self._account(request, tokens, step)
            index += 1

    def _admit(self, step: Step) -> None:
        while self.waiting and len(self.running) < self.config.max_num_seqs and step.budget > 0:
            request = self.waiting[0]
            total = request.prompt_tokens + request.generated_tokens
            matched = self.cache.match(request, total)
            hits = len(matched) * self.cache.block_size
            tokens = min(step.budget, total - hits)
            if not self.cache.admit(request, matched, hits + tokens):
                return
            self.running.append(self.waiting.popleft())
            request.prefill_tokens = total
            if request.admission_time is None:
                request.admission_time, request.cached_tokens = step.start, hits
                if self.cache.prefix_caching:
                    self.metrics.record_lookup(total, hits)
            self._account(request, tokens, step)

    def _account(self, request: Request, tokens: int, step: Step) -> None:
        step.computed += tokens
        if request.computed_tokens - tokens >= request.prefill_tokens:
            request.generated_tokens += tokens
            step.decoded += tokens
            return
        step.budget -= tokens
        if request.computed_tokens == request.prefill_tokens:
            self._finish_prefill(request, step.end)

    def _finish_prefill(self, request: Request, now: float) -> None:
        request.generated_tokens += 1
        self.metrics.add("vllm:generation_tokens_total")
        if request.first_token_time is None:
            request.first_token_time = now
            self.metrics.record_first_token(request, now)

    def _preempt(self, now: float) -> None:
        """Send the last to come back to the head of the queue, to be computed again."""
        victim = self.running.pop()
        victim.preemptions += 1
        self.metrics.add("vllm:num_preemptions_total")
        self._free(victim, "preemption", now)
        self.waiting.appendleft(victim)

    def _end_requests(self, now: float) -> None:
        ended = [request for request in self.running if request.is_over]
        if not ended:
            return
        self.running = [request for request in self.running if not request.is_over]
        for request in ended:
            if request.is_aborted:
                self._free(request, "abort", now)
            else:
                self.metrics.record_end(request, now)
                self._finish(request, now)

    def _finish(self, request: Request, now: float) -> None:
        if self.config.hold_seconds:
            self.held.append((now + self.config.hold_seconds, request))
        else:
            self._free(request, "finish", now)

    def _release_held(self, now: float) -> None:
        while self.held and self.held[0][0] <= now:
            release_time, request = self.held.popleft()
            self._free(request, "finish", release_time)

    def _free(self, request: Request, event: Event, now: float) -> None:
        self.cache.free(request, lost_at(self.config.leaks, event, request.blocks, now, self.rng))
