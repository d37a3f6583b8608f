"""``python -m benchmarks.detection.page_path``: thousands of healthy engine-days, no page allowed.

The page path is what may wake somebody: proven orphaned blocks, and a stall. Results go to a file,
one line a trace, so that the run can be interrupted and taken up again, and to docs/detection.md
when all is done. Seven of eight engines are light and scraped once a minute, because only an engine
that rests can be paged for, and they cost less. Only results of the present judge count.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.detection import report
from benchmarks.detection.feed import observations
from benchmarks.detection.random_suite import PAGE_PATH_SEEDS, random_scenario
from benchmarks.detection.runner import CACHE, PROCESSES, with_progress
from benchmarks.detection.scenario import Scenario
from benchmarks.detection.score import poisson_upper
from benchmarks.detection.simulate import simulate
from benchmarks.detection.workload import DAY, Arrivals, Workload
from kvcache_exporter import judge_settings
from kvcache_exporter.history import blocks, history, idle, marks
from kvcache_exporter.indicators import (
    _explain,
    _floors,
    _look,
    _objection,
    _regression,
    _trend,
    idle_floor,
    slope,
    stall,
)
from kvcache_exporter.judge import Judge, judge, leak, verdict
from kvcache_exporter.model import State

PAGE = Path(__file__).parents[2] / "docs" / "detection.md"
LIGHT = 0.1
LIGHT_DAYS = 12
LIGHT_INTERVAL = 60.0
FULL_EVERY = 8
MEAN_DAYS = (2 + (FULL_EVERY - 1) * LIGHT_DAYS) / FULL_EVERY
RESULTS = CACHE / "page_path.jsonl"


class Checked(NamedTuple):
    """One healthy trace: scrapes at which a page, or a ticket, would have been open."""

    judge: str
    """Digest of the sources that decide about pages."""
    seed: int
    days: float
    proven: int
    stalled: int
    tickets: int


def scenario(seed: int) -> Scenario:
    """A random healthy engine, light unless the seed is a multiple of eight."""
    made = random_scenario(seed, leaking=False)
    if seed % FULL_EVERY == 0:
        return made
    full = made.workload.arrivals
    light = Arrivals(lambda t: LIGHT * full.rate(t % made.seconds), LIGHT * full.peak)
    pool = max(300, int(made.engine.pool_blocks * LIGHT))
    return replace(
        made,
        workload=_fitting(replace(made.workload, arrivals=light), 16.0 * pool),
        engine=replace(made.engine, pool_blocks=pool),
        seconds=LIGHT_DAYS * DAY,
        interval=LIGHT_INTERVAL,
    )


def _fitting(load: Workload, pool_tokens: float) -> Workload:
    """Leave out requests that could never be admitted: they would stall the engine for good."""
    return replace(
        load,
        prompt_max=min(load.prompt_max, 0.3 * pool_tokens),
        output_max=min(load.output_max, 0.2 * pool_tokens),
        long_share=0.0,
    )


def check(seed: int) -> Checked:
    """Simulate and judge one healthy engine; nothing is kept but the counts."""
    trace, watcher = simulate(scenario(seed), seed), Judge()
    proven = stalled = tickets = 0
    for seen in observations(trace):
        now = watcher.observe(seen)
        proven += bool(now.orphaned_blocks_low)
        stalled += now.state is State.STALLED
        tickets += now.leak_active
    return Checked(digest(), seed, trace.days, proven, stalled, tickets)


def load(path: Path = RESULTS) -> list[Checked]:
    """What earlier runs of the present judge left."""
    if not path.exists():
        return []
    done = (Checked(*json.loads(line)) for line in path.read_text().splitlines())
    return [one for one in done if one.judge == digest()]


@cache
def digest() -> str:
    """Of what decides about pages and tickets: idle floor, stalls, breaks, how they are told."""
    modules = (history, idle, blocks, marks, idle_floor, stall, _explain, _regression, _objection,
               _trend, _look, _floors, slope, leak, verdict, judge, judge_settings)  # fmt: skip
    source = "".join(map(inspect.getsource, modules))
    return hashlib.blake2b(source.encode(), digest_size=6).hexdigest()


def tell(done: list[Checked]) -> str:
    """The counts with their upper 95 % bounds."""
    days = sum(one.days for one in done)
    lines = [f"{days:.0f} healthy engine-days, {len(done)} random engines"]
    for what in ("proven", "stalled", "tickets"):
        hits = sum(getattr(one, what) > 0 for one in done)
        bound = poisson_upper(hits) / days if days else float("nan")
        lines.append(f"{what:8} alarmed on {hits} engines: fewer than {bound:.6f} a day (95 %)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=5000, help="engine-days in all")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    done = load()
    first = PAGE_PATH_SEEDS.start
    known = {one.seed for one in done}
    wanted = [
        seed
        for seed in range(first, first + math.ceil(args.days / MEAN_DAYS) + 1)
        if seed not in known
    ]
    CACHE.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.processes) as pool, RESULTS.open("a") as file:
        futures = [pool.submit(check, seed) for seed in wanted]
        for future in with_progress(as_completed(futures), len(wanted)):
            done.append(future.result())
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    print(tell(done))
    report.insert(PAGE, {"page path": tell(done).replace("\n", "  \n")})


if __name__ == "__main__":
    main()
