"""What clients ask for: when requests come, how long they are, what they share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from .prefix import Segment
from .request import Request

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Poisson arrivals with a daily swing and bursts; log-normal lengths; shared prefixes."""

    requests_per_second: float = 0.5
    """At the busiest moment."""
    daily_swing: float = 0.0
    """0..1: how much of the rate is missing at 03:00."""
    busy_seconds: float = math.inf
    """Length of the bursts, with quiet stretches between them."""
    quiet_seconds: float = 0.0
    prompt_tokens: float = 400.0
    """Median of the part of a prompt that is its own."""
    output_tokens: float = 200.0
    """Median."""
    spread: float = 0.7
    """Standard deviation of the lengths' logarithm."""
    max_tokens: int = 2048
    shared_share: float = 0.7
    """Share of prompts that begin with one of the shared prefixes."""
    shared_share_later: float | None = None
    drift_seconds: float = 0.0
    """When the share becomes what it is later."""
    prefixes: int = 8
    prefix_tokens: int = 512
    abort_share: float = 0.03

    def rate(self, time: float) -> float:
        """Say how many requests per second come at a moment."""
        period = self.busy_seconds + self.quiet_seconds
        if self.quiet_seconds and time % period > self.busy_seconds:
            return 0.0
        night = 0.5 + 0.5 * math.cos(2 * math.pi * (time / DAY_SECONDS - 3 / 24))
        return self.requests_per_second * (1 - self.daily_swing * night)

    def share(self, time: float) -> float:
        """Say which share of prompts begins with a shared prefix at a moment."""
        drifted = self.shared_share_later is not None and time >= self.drift_seconds
        return self.shared_share_later or 0.0 if drifted else self.shared_share


def requests(workload: Workload, rng: Random) -> Iterator[Request]:
    """Draw requests without an end, in order of arrival."""
    time = 0.0
    for request_id in count():
        time = _next_arrival(workload, time, rng)
        prompt = max(1, _length(workload.prompt_tokens, workload, rng))
        output = max(1, _length(workload.output_tokens, workload, rng))
        hangs_up = rng.random() < workload.abort_share
        yield Request(
            request_id,
            time,
            _segments(workload, time, request_id, prompt, rng),
            output,
            workload.max_tokens,
            rng.randint(1, output) if hangs_up else None,
        )


def _next_arrival(workload: Workload, time: float, rng: Random) -> float:
    """Thin a Poisson process of the highest rate down to the rate of each moment."""
    while True:
        time += rng.expovariate(workload.requests_per_second)
        if rng.random() * workload.requests_per_second <= workload.rate(time):
            return time


def _length(median: float, workload: Workload, rng: Random) -> int:
    return min(workload.max_tokens, int(median * rng.lognormvariate(0, workload.spread)))


def _segments(
    workload: Workload, time: float, request_id: int, prompt: int, rng: Random
) -> tuple[Segment, ...]:
    """Prefixes have small content numbers, everything else one of its own."""
    own = (workload.prefixes + 1 + request_id, prompt)
    if rng.random() >= workload.share(time):
        return (own,)
    return (1 + rng.randrange(workload.prefixes), workload.prefix_tokens), own
