"""``python -m benchmarks.detection.tradeoff``: what another threshold would buy, and cost.

Development draws, the trend's score at several values, everything else as shipped. Writes the table
in docs/detection.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from benchmarks.detection import report
from benchmarks.detection.dev import random_jobs
from benchmarks.detection.feed import observations
from benchmarks.detection.random_suite import DEVELOPMENT_SEEDS
from benchmarks.detection.runner import PROCESSES, Job, trace_of, with_progress
from benchmarks.detection.score import Outcome, outcome, summarise
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings

PAGE = Path(__file__).parents[2] / "docs" / "detection.md"
SCORES = (4.0, 4.5, 5.0, 5.5, 6.0)


def judged(job: Job) -> dict[float, Outcome]:
    """What the judge makes of one trace at each score."""
    trace, found = trace_of(job), {}
    for score in SCORES:
        judge = Judge(JudgeSettings(trend_score=score))
        on = [judge.observe(seen).leak_active for seen in observations(trace)]
        found[score] = outcome(trace, (trace["time"], np.array(on, dtype=np.bool_)))
    return found


def table(outcomes: Mapping[float, Sequence[Outcome]]) -> str:
    """One line a score; the shipped one in bold."""
    rows = []
    for score, some in outcomes.items():
        row = summarise(some)
        cells = [
            f"{score:.1f}",
            f"{row.found}/{row.leaky}",
            f"{row.delay(0.5):.1f}",
            f"{row.delay(0.95):.1f}",
            f"{row.false_alarms} in {row.healthy_days:.0f} d",
        ]
        shipped = score == JudgeSettings().trend_score
        rows.append([f"**{cell}**" for cell in cells] if shipped else cells)
    header = ("score", "found", "median delay, h", "p95 delay, h", "false alarms")
    return report.markdown(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=60, help="half of them leaking")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    jobs = random_jobs(DEVELOPMENT_SEEDS, 0, args.traces)
    done: list[dict[float, Outcome]] = []
    with ProcessPoolExecutor(args.processes) as pool:
        futures = [pool.submit(judged, job) for job in jobs]
        for future in with_progress(as_completed(futures), len(jobs)):
            done.append(future.result())
    outcomes = {score: [one[score] for one in done] for score in SCORES}
    report.insert(PAGE, {"trade-off": table(outcomes)})


if __name__ == "__main__":
    main()
