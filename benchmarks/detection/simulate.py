"""A discrete-event vLLM-V1-like engine: what its gauges and counters say at every scrape.

Mechanics that decide what a detector can see: cached blocks nobody refers to are free; gauges
move only with a step, so an idle engine shows its last one; aborted requests count in the token
totals and never in the finished ones; admission is first come, first served with a head of line
that blocks; preemption takes the youngest request and recomputes it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import numpy as np

from benchmarks.detection.leaks import Leak, Step
from benchmarks.detection.pool import NEVER, Pool
from benchmarks.detection.scenario import COLUMNS, Restart, Scenario, Trace
from benchmarks.detection.workload import HOUR, Floats, Requests, draw

Chance = Callable[[np.random.Generator, int], int]
MAX_QUEUE = 400


def simulate(scenario: Scenario, seed: int) -> Trace:
    """Deterministic in scenario and seed."""
    rng = np.random.default_rng(seed)
    requests = draw(scenario.workload, scenario.seconds, rng)
    rows = _Simulation(scenario, requests, rng).run()
    connector = scenario.engine.hold is not None
    trace = np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS))
    return Trace(scenario.name, _as_scraped(scenario, trace, rng), bool(scenario.leak), connector)


def _as_scraped(scenario: Scenario, rows: Floats, rng: np.random.Generator) -> Floats:
    """Clock jumps and double deliveries, as a scraper would record them."""
    for at, offset in scenario.incidents.clock_jumps:
        rows[rows[:, 0] >= at, 0] += offset
    if share := scenario.incidents.duplicate_share:
        rows = np.repeat(rows, 1 + (rng.random(len(rows)) < share), axis=0)
    return rows


class _Simulation:
    """State of one run."""

    def __init__(self, scenario: Scenario, requests: Requests, rng: np.random.Generator) -> None:
        self.scenario, self.engine, self.rng = scenario, scenario.engine, rng
        self.requests = requests
        self.leak = scenario.leak or Leak(start=NEVER)
        self.size = self.engine.pool_blocks
        self.restarts = deque(sorted(scenario.incidents.restarts, key=lambda r: r.time))
        self.resets = deque(sorted(scenario.incidents.cache_resets))
        self.time = self.down_until = self.start_time = 0.0
        self.frozen = self.asleep = False
        self.arrived = 0
        self.rows: list[tuple[float, ...]] = []
        self.begin()

    def begin(self) -> None:
        """A new process knows nothing."""
        self.pool = Pool(self.engine, self.requests, self.size)
        self.finishing: list[tuple[float, int]] = []
        self.prefilling: set[int] = set()
        self.waiting: deque[int] = deque()
        self.prompt = self.generation = self.finished_prompt = self.finished_generation = 0.0
        self.finished = self.first = self.hits = self.queries = self.preemptions = self.http = 0
        self.show()

    def run(self) -> list[tuple[float, ...]]:
        arrivals, scrape = self.requests.arrival, 0.0
        while True:
            arrival = arrivals[self.arrived] if self.arrived < len(arrivals) else NEVER
            restart = self.restarts[0].time if self.restarts else NEVER
            speed = self.speed()
            finish = self.next_finish(speed)
            now = min(arrival, scrape, restart, finish)
            if now >= self.scenario.seconds:
                return self.rows
            if not self.frozen and self.pool.running:
                self.pool.clock += (now - self.time) * speed
            self.time = now
            if now == restart:
                self.restart(self.restarts.popleft())
            elif now == finish:
                self.finish_next()
            elif now == arrival:
                self.arrive()
            else:
                self.scrape()
                scrape += self.scenario.interval

    def speed(self) -> float:
        slower = len(self.pool.running) / self.engine.slowdown
        return self.engine.tokens_per_second / (1.0 + slower)

    def next_finish(self, speed: float) -> float:
        queue, running, output = self.finishing, self.pool.running, self.requests.output
        while queue:
            clock, i = queue[0]
            if i in running and running[i][0] + output[i] == clock:
                break
            heapq.heappop(queue)  # left over from a preempted or aborted run
        if not queue or self.frozen:
            return NEVER
        return self.time + max(0.0, queue[0][0] - self.pool.clock) / speed

    def restart(self, restart: Restart) -> None:
        self.down_until = self.time + restart.down_seconds
        self.size = restart.pool_blocks or self.size
        if restart.announced:
            self.start_time = self.down_until
        self.begin()

    def arrive(self) -> None:
        i, self.arrived = self.arrived, self.arrived + 1
        if self.time < self.down_until or self.asleep or len(self.waiting) >= MAX_QUEUE:
            return
        self.http += 1
        self.waiting.append(i)
        if not self.frozen:
            self.step()

    def step(self) -> None:
        self.pool.release(self.time)
        self.admit()
        self.preempt()

    def admit(self) -> None:
        """First come, first served: a head of line that does not fit blocks the others."""
        pool = self.pool
        while self.waiting and len(pool.running) < self.engine.max_requests:
            i, used = self.waiting[0], pool.used()
            if used + pool.needed(i) > pool.size:
                if pool.running or pool.fits_ever(i):
                    return
                self.waiting.popleft()  # can never fit: the client gives up
                continue
            self.waiting.popleft()
            begin, hit = pool.start(i, used)
            self.queries += self.requests.prompt[i]
            self.hits += hit
            self.prefilling.add(i)
            heapq.heappush(self.finishing, (begin + self.requests.output[i], i))

    def preempt(self) -> None:
        """Take the youngest off; it will be computed again."""
        pool = self.pool
        while pool.used() > pool.size and len(pool.running) > 1:
            i = next(reversed(pool.running))
            self.lose(self.leak.at_preemption, pool.stop(i))
            self.prefilling.discard(i)
            self.preemptions += 1
            self.waiting.appendleft(i)

    def finish_next(self) -> None:
        clock, i = heapq.heappop(self.finishing)
        self.pool.clock = max(self.pool.clock, clock)
        blocks = self.pool.stop(i)
        self.count_first_token(i)
        self.generation += self.requests.output[i]
        if self.requests.aborted[i]:
            self.lose(self.leak.at_abort, blocks)
        else:
            self.finished += 1
            self.finished_prompt += self.requests.prompt[i]
            self.finished_generation += self.requests.output[i]
            self.lose(self.leak.at_finish, blocks)
            self.pool.hold(self.time, blocks, self.rng)
        self.step()
        if not self.pool.running:
            self.show()

    def count_first_token(self, i: int) -> None:
        if i in self.prefilling:
            self.prefilling.discard(i)
            self.prompt += self.requests.prompt[i]
            self.first += 1

    def lose(self, chance: Chance, blocks: int) -> None:
        if self.time >= self.leak.start:
            self.pool.lose(chance(self.rng, blocks))

    def scrape(self) -> None:
        incidents = self.scenario.incidents
        self.frozen = _inside(self.time, incidents.hangs) or _inside(self.time, incidents.pauses)
        self.sleep(_inside(self.time, incidents.sleeps))
        while self.resets and self.resets[0] <= self.time:
            self.resets.popleft()
            self.pool.forget_cached()
        if self.time >= self.down_until:
            self.leak_with_time()
            self.refresh()
        if not _inside(self.time, incidents.gaps):
            self.rows.append(self.row())

    def sleep(self, asleep: bool) -> None:
        if asleep and not self.asleep:
            for i in list(self.pool.running):
                self.pool.stop(i)
            self.waiting.clear()
            self.prefilling.clear()
            self.show()
        self.asleep = asleep

    def leak_with_time(self) -> None:
        leak, pool = self.leak, self.pool
        if self.time < leak.start:
            return
        if isinstance(leak, Step) and self.time - self.scenario.interval < leak.start:
            pool.lose(leak.blocks)
        rate = leak.per_hour(self.time, len(pool.running), pool.lost)
        if rate:
            pool.lose(int(self.rng.poisson(rate * self.scenario.interval / HOUR)))

    def refresh(self) -> None:
        """What a step since the last scrape left in the gauges; an idle engine takes none."""
        if self.frozen:
            return
        pool, hold = self.pool, self.engine.hold
        for i in [i for i in self.prefilling if pool.running[i][0] <= pool.clock]:
            self.count_first_token(i)
        polls = hold is None or not hold.needs_step
        if pool.running or self.waiting or (pool.held and polls):
            self.step()
        elif not (pool.lost and polls):
            return
        self.show()

    def show(self) -> None:
        """One engine step refreshes all gauges together."""
        waiting = len(self.waiting) + self.engine.parked_sessions
        self.gauges = (self.pool.shown(), len(self.pool.running), waiting)

    def row(self) -> tuple[float, ...]:
        up = self.time >= self.down_until
        used, running, waiting = self.gauges
        generation = int(self.generation + self.pool.decoded())
        admits = self.asleep or _inside(self.time, self.scenario.incidents.pauses)
        return (
            *(self.time, float(up), used, self.pool.size, running, waiting, self.prompt),
            *(generation, self.finished_prompt, self.finished_generation),
            *(self.finished, self.first, self.hits, self.queries, self.preemptions, self.http),
            *(self.start_time, float(admits), self.pool.lost),
        )


def _inside(time: float, spans: tuple[tuple[float, float], ...]) -> bool:
    return any(begin <= time < end for begin, end in spans)
