"""Runs detectors over scenarios on a few processes, keeps traces on disk, shows what is left."""

from __future__ import annotations

import hashlib
import inspect
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.detection import leaks, pool, scenario, simulate, workload
from benchmarks.detection.detectors import all_detectors
from benchmarks.detection.prefill_suite import random_prefill
from benchmarks.detection.random_suite import random_scenario
from benchmarks.detection.scenario import Scenario, Trace
from benchmarks.detection.score import Outcome, outcome
from benchmarks.detection.suites import named

CACHE = Path(__file__).parents[2] / ".cache" / "detection"
PROCESSES = 2
T = TypeVar("T")
Job = tuple[str, int]
"""A named scenario, or "healthy" / "leaking" for a random one, and its seed."""
RANDOM = {"": random_scenario, "prefill": random_prefill}
"""Random suites by what stands before "healthy" and "leaking"."""


def scenario_of(job: Job) -> Scenario:
    """Jobs travel between processes by name, for load curves cannot be pickled."""
    name, seed = job
    kind, _, leaking = name.rpartition(" ")
    if leaking in ("healthy", "leaking") and kind in RANDOM:
        return RANDOM[kind](seed, leaking == "leaking", f"random {name}")
    return named()[name]


def trace_of(job: Job) -> Trace:
    """From the cache, or simulated; the cache key holds the source of the simulator."""
    made = scenario_of(job)
    path = CACHE / f"{_key(job)}.npz"
    connector = made.engine.hold is not None
    if path.exists():
        return Trace(made.name, np.load(path)["rows"], bool(made.leak), connector)
    trace = simulate.simulate(made, seed_of(job))
    CACHE.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, rows=trace.rows)
    part.replace(path)
    return trace


def seed_of(job: Job) -> int:
    """Differs between scenarios of one seed."""
    return int.from_bytes(hashlib.blake2b(repr(job).encode(), digest_size=6).digest(), "big")


def _key(job: Job) -> str:
    source = "".join(map(inspect.getsource, (simulate, pool, workload, leaks, scenario)))
    text = repr(job) + source + _definitions()
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _definitions() -> str:
    folder = Path(__file__).parent
    files = [
        folder / "random_suite.py",
        folder / "prefill_suite.py",
        *sorted((folder / "scenarios").glob("*.py")),
    ]
    return "".join(path.read_text() for path in files)


def score_job(job: Job, detectors: Sequence[str]) -> dict[str, Outcome]:
    """All detectors on one trace."""
    trace, known = trace_of(job), all_detectors()
    scores = {}
    for key in detectors:
        begin = time.process_time()
        alarms = known[key].alarms(trace)
        scores[key] = outcome(trace, alarms, time.process_time() - begin)
    return scores


def score_jobs(
    jobs: Sequence[Job], detectors: Sequence[str], processes: int = PROCESSES
) -> dict[str, list[Outcome]]:
    """One list of outcomes a detector, in the order of the jobs."""
    done: dict[Job, dict[str, Outcome]] = {}
    with ProcessPoolExecutor(processes) as pool:
        futures = {pool.submit(score_job, job, detectors): job for job in jobs}
        for future in with_progress(as_completed(futures), len(jobs)):
            done[futures[future]] = future.result()
    return {key: [done[job][key] for job in jobs] for key in detectors}


def with_progress(items: Iterable[T], total: int, what: str = "traces") -> Iterator[T]:
    """Pass items on; tell a terminal or a log how far things are and how long they will take."""
    begin = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        left = (time.monotonic() - begin) / count * (total - count)
        end = "\r" if sys.stderr.isatty() and count < total else "\n"
        if end == "\r" or count % max(1, total // 20) == 0:
            print(f"{count}/{total} {what}, {left / 60:.1f} min left", end=end, file=sys.stderr)
