"""A discrete-event vLLM-V1-like engine: what its gauges and counters say at every scrape.

Mechanics that decide what a detector can see: cached blocks nobody refers to are free; gauges
move only with a step, so an idle engine shows its last one; aborted requests count in the token
totals and never in the finished ones; admission is first come, first served with a head of line
that blocks; preemption takes the youngest request and recomputes it; decoding shares the engine,
kept as one virtual clock of tokens that all running requests advance by together.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from benchmarks.detection.leaks import Leak, Step
from benchmarks.detection.scenario import COLUMNS, Restart, Scenario, Trace
from benchmarks.detection.workload import HOUR, Floats, Requests, draw

Chance = Callable[[np.random.Generator, int], int]
NEVER = float("inf")
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
    """State of one run; ``clock`` counts output tokens since each request began (virtual time)."""

    def __init__(self, scenario: Scenario, requests: Requests, rng: np.random.Generator) -> None:
        self.scenario, self.engine, self.rng = scenario, scenario.engine, rng
        self.requests = requests
        self.leak = scenario.leak or Leak(start=NEVER)
        self.pool = self.engine.pool_blocks
        self.restarts = deque(sorted(scenario.incidents.restarts, key=lambda r: r.time))
        self.resets = deque(sorted(scenario.incidents.cache_resets))
        self.time = self.down_until = self.start_time = 0.0
        self.frozen = self.asleep = False
        self.arrived = 0
        self.rows: list[tuple[float, ...]] = []
        self.forget()

    def forget(self) -> None:
        """What a new process knows: nothing."""
        groups = len(self.requests.group_tokens)
        self.clock = self.allocated = 0.0
        self.running: dict[int, tuple[float, int]] = {}  # id -> (clock of first token, own tokens)
        self.finishing: list[tuple[float, int]] = []
        self.prefilling: set[int] = set()
        self.waiting: deque[int] = deque()
        self.own_blocks = self.begin_sum = 0.0
        self.references = [0] * groups
        self.cached_at = [-NEVER] * groups
        self.shared_blocks = self.held_blocks = self.lost = 0
        self.held: list[tuple[float, int]] = []
        self.stepped = False
        self.prompt = self.generation = self.finished_prompt = self.finished_generation = 0.0
        self.finished = self.first = self.hits = self.queries = self.preemptions = self.http = 0
        base = min(self.pool, self.engine.base_blocks + self.engine.parked_blocks)
        self.gauges: tuple[int, int, int] = (base, 0, self.engine.parked_sessions)

    # -- the event loop -------------------------------------------------------------------

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
            if not self.frozen and self.running:
                self.clock += (now - self.time) * speed
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
        return self.engine.tokens_per_second / (1.0 + len(self.running) / self.engine.slowdown)

    def next_finish(self, speed: float) -> float:
        queue, running, output = self.finishing, self.running, self.requests.output
        while queue:
            clock, i = queue[0]
            if i in running and running[i][0] + output[i] == clock:
                break
            heapq.heappop(queue)  # left over from a preempted or aborted run
        if not queue or self.frozen:
            return NEVER
        return self.time + max(0.0, queue[0][0] - self.clock) / speed

    def restart(self, restart: Restart) -> None:
        self.down_until = self.time + restart.down_seconds
        self.pool = restart.pool_blocks or self.pool
        if restart.announced:
            self.start_time = self.down_until
        self.forget()

    def arrive(self) -> None:
        i, self.arrived = self.arrived, self.arrived + 1
        if self.time < self.down_until or self.asleep or len(self.waiting) >= MAX_QUEUE:
            return
        self.http += 1
        self.waiting.append(i)
        if not self.frozen:
            self.step()

    def step(self) -> None:
        self.stepped = True
        self.release_held()
        self.admit()
        self.preempt()

    # -- blocks ---------------------------------------------------------------------------

    def used(self) -> float:
        """Expected blocks in use: each running request wastes half a block on average."""
        tokens = len(self.running) * self.clock - self.begin_sum
        fixed = self.shared_blocks + self.held_blocks + self.lost + self.engine.parked_blocks
        return self.own_blocks + tokens * self.engine.blocks_per_token + fixed

    def admit(self) -> None:
        while self.waiting and len(self.running) < self.engine.max_requests:
            i = self.waiting[0]
            used, need = self.used(), self.blocks_needed(i)
            if used + need > self.pool:
                if self.running or need <= self.pool - self.lost - self.engine.parked_blocks:
                    return
                self.waiting.popleft()  # can never fit: the client gives up
                continue
            self.waiting.popleft()
            self.start(i, used)

    def blocks_needed(self, i: int) -> float:
        group = self.requests.group[i]
        shared = self.requests.group_tokens[group] if group >= 0 else 0
        own = (self.requests.prompt[i] - shared) * self.engine.blocks_per_token
        new = shared // 16 if group >= 0 and not self.references[group] else 0
        return own + 1 + self.engine.request_blocks + new

    def start(self, i: int, used: float) -> None:
        prompt, group = self.requests.prompt[i], self.requests.group[i]
        shared = self.requests.group_tokens[group] if group >= 0 else 0
        hit = 0
        if group >= 0:
            kept = self.allocated - self.cached_at[group] < self.pool - used
            hit = shared if self.references[group] or kept else 0
            self.shared_blocks += 0 if self.references[group] else shared // 16
            self.references[group] += 1
        self.queries += prompt
        self.hits += hit
        begin = self.clock + (prompt - hit) / self.engine.prefill_ratio
        self.running[i] = (begin, prompt - shared)
        self.prefilling.add(i)
        self.own_blocks += self.request_share(prompt - shared)
        self.begin_sum += begin
        self.allocated += prompt / 16 + self.requests.output[i] / 16
        heapq.heappush(self.finishing, (begin + self.requests.output[i], i))

    def request_share(self, own_tokens: int) -> float:
        return own_tokens * self.engine.blocks_per_token + 0.5 + self.engine.request_blocks

    def stop(self, i: int) -> int:
        """Take a request off the engine; return the blocks it had of its own."""
        begin, own = self.running.pop(i)
        self.own_blocks -= self.request_share(own)
        self.begin_sum -= begin
        done = max(0.0, self.clock - begin)
        blocks = math.ceil((own + done) * self.engine.blocks_per_token + self.engine.request_blocks)
        group = self.requests.group[i]
        if group >= 0:
            self.references[group] -= 1
            if not self.references[group]:
                self.shared_blocks -= self.requests.group_tokens[group] // 16
                self.cached_at[group] = self.allocated
        return blocks

    def preempt(self) -> None:
        while self.used() > self.pool and len(self.running) > 1:
            i = next(reversed(self.running))
            self.lose(self.leak.at_preemption, self.stop(i))
            self.prefilling.discard(i)
            self.preemptions += 1
            self.waiting.appendleft(i)

    def finish_next(self) -> None:
        clock, i = heapq.heappop(self.finishing)
        self.clock = max(self.clock, clock)
        blocks = self.stop(i)
        self.count_first_token(i)
        self.generation += self.requests.output[i]
        if self.requests.aborted[i]:
            self.lose(self.leak.at_abort, blocks)
        else:
            self.finished += 1
            self.finished_prompt += self.requests.prompt[i]
            self.finished_generation += self.requests.output[i]
            self.lose(self.leak.at_finish, blocks)
            self.hold(blocks)
        self.step()
        if not self.running:
            self.show()

    def count_first_token(self, i: int) -> None:
        if i in self.prefilling:
            self.prefilling.discard(i)
            self.prompt += self.requests.prompt[i]
            self.first += 1

    def lose(self, chance: Chance, blocks: int) -> None:
        if self.time >= self.leak.start:
            self.lost = min(self.pool, self.lost + chance(self.rng, blocks))

    def hold(self, blocks: int) -> None:
        if hold := self.engine.hold:
            lost = self.rng.random() < hold.lost_share
            wait = hold.timeout_seconds if lost else self.rng.uniform(*hold.seconds)
            heapq.heappush(self.held, (self.time + wait, blocks))
            self.held_blocks += blocks

    def release_held(self) -> None:
        while self.held and self.held[0][0] <= self.time:
            self.held_blocks -= heapq.heappop(self.held)[1]

    # -- what a scrape sees ----------------------------------------------------------------

    def scrape(self) -> None:
        incidents = self.scenario.incidents
        self.frozen = _inside(self.time, incidents.hangs) or _inside(self.time, incidents.pauses)
        self.sleep(_inside(self.time, incidents.sleeps))
        while self.resets and self.resets[0] <= self.time:
            self.resets.popleft()
            self.cached_at = [-NEVER] * len(self.cached_at)
        if self.time >= self.down_until:
            self.leak_with_time()
            self.refresh()
        if not _inside(self.time, incidents.gaps):
            self.rows.append(self.row())

    def sleep(self, asleep: bool) -> None:
        if asleep and not self.asleep:
            for i in list(self.running):
                self.stop(i)
            self.waiting.clear()
            self.prefilling.clear()
            self.show()
        self.asleep = asleep

    def leak_with_time(self) -> None:
        leak = self.leak
        if self.time < leak.start:
            return
        if isinstance(leak, Step) and self.time - self.scenario.interval < leak.start:
            self.lost = min(self.pool, self.lost + leak.blocks)
        rate = leak.per_hour(self.time, len(self.running), self.lost)
        if rate:
            lost = int(self.rng.poisson(rate * self.scenario.interval / HOUR))
            self.lost = min(self.pool, self.lost + lost)

    def refresh(self) -> None:
        if self.frozen:
            return
        for i in [i for i in self.prefilling if self.running[i][0] <= self.clock]:
            self.count_first_token(i)
        hold = self.engine.hold
        polls = bool(self.held) and not (hold and hold.needs_step)
        if self.running or self.waiting or polls:
            self.step()
            self.show()
        elif self.lost and not (hold and hold.needs_step):
            self.show()

    def show(self) -> None:
        """One engine step refreshes all gauges together."""
        per, extra, clock = self.engine.blocks_per_token, self.engine.request_blocks, self.clock
        blocks = sum(
            math.ceil((own + max(0.0, clock - begin)) * per + extra)
            for begin, own in self.running.values()
        )
        fixed = self.shared_blocks + self.held_blocks + self.lost + self.engine.parked_blocks
        used = min(self.pool, blocks + fixed + self.engine.base_blocks)
        self.gauges = (used, len(self.running), len(self.waiting) + self.engine.parked_sessions)

    def row(self) -> tuple[float, ...]:
        up = self.time >= self.down_until
        used, running, waiting = self.gauges
        clock = self.clock
        decoding = sum(max(0.0, clock - begin) for begin, _ in self.running.values())
        admits = self.asleep or _inside(self.time, self.scenario.incidents.pauses)
        return (
            *(self.time, float(up), used, self.pool, running, waiting, self.prompt),
            *(int(self.generation + decoding), self.finished_prompt, self.finished_generation),
            *(self.finished, self.first, self.hits, self.queries, self.preemptions, self.http),
            *(self.start_time, float(admits), self.lost),
        )


def _inside(time: float, spans: tuple[tuple[float, float], ...]) -> bool:
    return any(begin <= time < end for begin, end in spans)
