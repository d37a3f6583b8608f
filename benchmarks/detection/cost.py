"""``python -m benchmarks.detection.cost``: CPU of a scrape and bytes of an engine, for our judge.

CPU is process time of the judge alone, from a reading to a verdict, best of some rounds; run it on
a quiet machine. Writes the table in docs/detection.md, as ``make bench-detection`` does.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TypeVar

from benchmarks.detection import report
from benchmarks.detection.dev import random_jobs
from benchmarks.detection.feed import observations
from benchmarks.detection.random_suite import DEVELOPMENT_SEEDS
from benchmarks.detection.runner import Job, trace_of
from benchmarks.detection.suites import named
from kvcache_exporter.history import History
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Observation

PAGE = Path(__file__).parents[2] / "docs" / "detection.md"
TRACES = 24
ROUNDS = 7
EVERY_NAMED = 12
T = TypeVar("T")


def table() -> str:
    """What one engine costs, healthy and leaking."""
    jobs = random_jobs(DEVELOPMENT_SEEDS, 0, TRACES)
    some = [(name, 0) for name in named()][::EVERY_NAMED]
    history = max(kept_bytes(job, lambda: History(JudgeSettings()), History.add) for job in some)
    judge = max(kept_bytes(job, Judge, Judge.observe) for job in some)
    cost = microseconds(jobs)
    rows = [
        ("CPU a scrape of a healthy engine", f"{mean(cost[::2]):.1f} µs"),
        ("CPU a scrape of an engine that begins to leak", f"{mean(cost[1::2]):.1f} µs"),
        ("history of an engine, at most", f"{history / 1024:.1f} KiB"),
        ("the whole judge with its last answers, at most", f"{judge / 1024:.1f} KiB"),
    ]
    return report.markdown(("a scrape every 15 s, two days", ""), rows)


def microseconds(jobs: Sequence[Job]) -> list[float]:
    """Of the judge, a scrape of each trace: its best round.

    A machine may be slow for minutes, so all traces have their turn before the next round begins.
    Garbage is not collected meanwhile, as the exporter itself sees to it.
    """
    traces = [list(observations(trace_of(job))) for job in jobs]
    gc.disable()
    rounds = [[_round(seen) for seen in traces] for _ in range(ROUNDS)]
    gc.enable()
    best = (min(of_one) for of_one in zip(*rounds, strict=True))
    return [1e6 * seconds / len(seen) for seconds, seen in zip(best, traces, strict=True)]


def _round(seen: Sequence[Observation]) -> float:
    judge = Judge()
    begin = time.process_time()
    for one in seen:
        judge.observe(one)
    return time.process_time() - begin


def kept_bytes(job: Job, make: Callable[[], T], take: Callable[[T, Observation], object]) -> int:
    """Bytes allocated and not given back, what all engines share left out."""
    trace = trace_of(job)
    take(make(), next(observations(trace)))
    gc.collect()
    tracemalloc.start()
    one = make()
    for seen in observations(trace):
        take(one, seen)
    del seen
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


def main() -> None:
    made = table()
    print(made)
    report.insert(PAGE, {"cost": made})


if __name__ == "__main__":
    main()
