"""Time what the audit does in the engine's thread, and for how long counting makes that wait."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from statistics import median, quantiles

from benchmarks.audit.shapes import Scheduler
from kvcache_exporter.vllm_plugin.auditor import PAUSE_SECONDS, sample_interval
from kvcache_exporter.vllm_plugin.hooks import Audits, _after_step
from kvcache_exporter.vllm_plugin.walk import count, snapshot

POOLS = (0, 10_000, 130_000, 1_000_000)
ROUNDS = 7
STEPS = 100_000
FEWEST_WAITS = 2_000
HEADER = (
    "blocks, all held",
    "step without a sample, µs",
    "step with a sample, ms",
    "a sample every, s",
    "share of the engine's thread",
    "counting, ms of a core",
    "wait for the lock meanwhile (p99), ms",
    "without counting, ms",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """At one pool size; times in seconds."""

    blocks: int
    quiet_step: float
    copy: float
    counting: float
    wait: float
    wait_alone: float

    @property
    def interval(self) -> float:
        """Time from sample to sample that the audit allows itself."""
        return sample_interval(self.copy, self.counting)


def measure(blocks: int, rounds: int = ROUNDS, steps: int = STEPS) -> Cost:
    """Measure at one pool size, as medians over *rounds*."""
    scheduler = Scheduler(blocks)
    gc.collect()
    gc.freeze()  # as vLLM does once it is up, so that no collection looks at every block again
    copies, countings, waits = zip(*(_round(scheduler) for _ in range(rounds)), strict=True)
    alone = _p99(_waits(lambda: True))
    return Cost(blocks, _quiet_step(steps), median(copies), median(countings), median(waits), alone)


def _round(scheduler: Scheduler) -> tuple[float, float, float]:
    """Take one sample; return seconds for the copy, core seconds for counting, p99 of the wait."""
    begin = time.perf_counter()
    seen = snapshot(scheduler, 0.0)
    copy = time.perf_counter() - begin
    spent: list[float] = []

    def counting() -> None:
        start = time.thread_time()
        count(seen, pause=lambda: time.sleep(PAUSE_SECONDS))
        spent.append(time.thread_time() - start)

    thread = threading.Thread(target=counting)
    thread.start()
    waits = _waits(lambda: bool(spent))
    thread.join()
    return copy, spent[0], _p99(waits)


def _waits(is_over: Callable[[], bool]) -> list[float]:
    """Let go of Python's lock again and again, as an engine's thread does, and time its return."""
    waits: list[float] = []
    while not is_over() or len(waits) < FEWEST_WAITS:
        begin = time.perf_counter()
        time.sleep(0)
        waits.append(time.perf_counter() - begin)
    return waits


def _p99(waits: list[float]) -> float:
    return quantiles(waits, n=100)[-1]


@cache  # one engine a process can be listened to
def _quiet_step(steps: int) -> float:
    """Return seconds that a step at which no sample is due takes longer for being watched."""
    scheduler, make_stats = Scheduler(0), lambda scheduler: None
    audited = _after_step(make_stats, Audits())
    audited(scheduler)
    return (_time(audited, scheduler, steps) - _time(make_stats, scheduler, steps)) / steps


def _time(call: Callable[[Scheduler], None], scheduler: Scheduler, times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call(scheduler)
    return time.perf_counter() - begin


def table(costs: Iterable[Cost]) -> str:
    """Return the costs as a Markdown table."""
    lines = [HEADER, ("--:",) * len(HEADER), *map(_row, costs)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(cost: Cost) -> tuple[str, ...]:
    return (
        f"{cost.blocks:,}",
        f"{cost.quiet_step * 1e6:.2f}",
        f"{cost.copy * 1e3:.2f}",
        f"{cost.interval:.1f}",
        f"{cost.copy / cost.interval:.3%}",
        f"{cost.counting * 1e3:.1f}",
        f"{cost.wait * 1e3:.2f}",
        f"{cost.wait_alone * 1e3:.2f}",
    )
